#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/product_library.h"
#include "kernels/cuda/product_types.h"
#include "kernels/cuda/spread.h"
#include "kernels/device/device.h"
#include "kernels/device/matrix_product_kernels.h"

namespace syncline {
namespace {

// Sums over nothing, for which the library has no algorithm.
class EmptyProduct : public MatrixProduct {
 public:
  explicit EmptyProduct(const MatrixProductShape& shape) : s_(shape) {}

  absl::Status Run(Stream& stream, ConstFloats, ConstFloats, const float* bias,
                   Floats c) override {
    const int64_t bytes = c.Bytes(s_.n);
    const int64_t row = s_.c_row == 0 ? s_.n : s_.c_row;
    if (bias == nullptr && row == s_.n) {  // one array, without gaps
      stream.Clear(c, s_.batch * s_.m * bytes);
      return absl::OkStatus();
    }
    for (int64_t i = 0; i < s_.batch * s_.m; ++i) {
      if (bias == nullptr) {
        stream.Clear(c + i * row, bytes);
      } else {
        stream.Copy(c + i * row, bias, bytes);
      }
    }
    return absl::OkStatus();
  }
  absl::Status Accumulate(Stream&, ConstFloats, ConstFloats, Floats) override {
    return absl::OkStatus();
  }

 private:
  const MatrixProductShape s_;
};

absl::StatusOr<std::unique_ptr<MatrixProduct>> Make(
    Device& device, const MatrixProductShape& shape) {
  SYNCLINE_RETURN_IF_ERROR(CheckCudaProductTypes(shape));
  if (shape.k == 0) return std::make_unique<EmptyProduct>(shape);
  return cuda::MakeLibraryProduct(device, shape);
}

}  // namespace

const MatrixProductKernels& CudaMatrixProductKernels() {
  static constexpr MatrixProductKernels kKernels = {
      .make = Make,
      .spread = cuda::Spread,
      .spread_gradient = cuda::SpreadGradient};
  return kKernels;
}

}  // namespace syncline
