#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/product_library.h"
#include "kernels/cuda/spread.h"
#include "kernels/device/matrix_product_kernels.h"

namespace syncline {

const MatrixProductKernels& CudaMatrixProductKernels() {
  static constexpr MatrixProductKernels kKernels = {
      .make = cuda::MakeLibraryProduct,
      .spread = cuda::Spread,
      .spread_gradient = cuda::SpreadGradient};
  return kKernels;
}

}  // namespace syncline
