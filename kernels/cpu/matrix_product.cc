#include <utility>

#include "common/base/status_macros.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gemm.h"

namespace syncline {
namespace {

class CpuMatrixProduct : public MatrixProduct {
 public:
  explicit CpuMatrixProduct(Gemm product) : product_(std::move(product)) {}

  absl::Status Run(Stream& stream, ConstFloats a, ConstFloats b,
                   const float* bias, Floats c) override {
    const CpuKernel kernel(stream);
    return product_.Run(a, b, bias, c);
  }
  absl::Status Accumulate(Stream& stream, ConstFloats a, ConstFloats b,
                          Floats c) override {
    const CpuKernel kernel(stream);
    return product_.Accumulate(a, b, c);
  }

 private:
  Gemm product_;
};

absl::StatusOr<std::unique_ptr<MatrixProduct>> Make(
    Device&, const MatrixProductShape& shape) {
  SYNCLINE_ASSIGN_OR_RETURN(Gemm product, Gemm::Create(shape));
  return std::make_unique<CpuMatrixProduct>(std::move(product));
}

void SpreadOver(Stream& stream, const Broadcast& s, float scale, const float* c,
                float* y) {
  const CpuKernel kernel(stream);
  Spread(s, scale, c, y);
}

void SpreadGradient(Stream& stream, const Broadcast& s, float scale,
                    const float* dy, bool accumulate, float* dc) {
  const CpuKernel kernel(stream);
  AddGradient(s, Side::kB, scale, dy, accumulate, dc);
}

}  // namespace

const MatrixProductKernels& CpuMatrixProductKernels() {
  static constexpr MatrixProductKernels kKernels = {
      .make = Make,
      .spread = OnFloat32<SpreadOver>,
      .spread_gradient = OnFloat32<SpreadGradient>};
  return kKernels;
}

}  // namespace syncline
