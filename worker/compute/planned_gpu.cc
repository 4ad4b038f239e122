#include "worker/compute/planned_gpu.h"

#include <memory>

#include "common/base/status_macros.h"
#include "kernels/cuda/product_types.h"
#include "kernels/device/matrix_product_kernels.h"

namespace syncline::worker {
namespace {

// It takes any shape and all types, and no memory, as cuBLASLt's.
class PlannedProduct : public MatrixProduct {
 public:
  absl::Status Run(Stream&, ConstFloats, ConstFloats, const float*,
                   Floats) override {
    return absl::InternalError("a planned GPU computes nothing");
  }
  absl::Status Accumulate(Stream&, ConstFloats, ConstFloats, Floats) override {
    return absl::InternalError("a planned GPU computes nothing");
  }
};

absl::StatusOr<std::unique_ptr<MatrixProduct>> Make(
    Device&, const MatrixProductShape& shape) {
  SYNCLINE_RETURN_IF_ERROR(CheckCudaProductTypes(shape));
  return std::make_unique<PlannedProduct>();
}

}  // namespace

PlannedGpu::PlannedGpu() : kernels_(CpuDevice::kernels()) {
  static const MatrixProductKernels& products = *new MatrixProductKernels{
      .make = Make,
      .spread = kernels_.matrix_product->spread,
      .spread_gradient = kernels_.matrix_product->spread_gradient};
  kernels_.matrix_product = &products;
}

}  // namespace syncline::worker
