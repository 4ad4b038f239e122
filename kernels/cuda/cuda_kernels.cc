#include "kernels/cuda/cuda_kernels.h"

namespace syncline {

const KernelTable& CudaKernelTable() {
  static const KernelTable table = {
      .binary = &CudaBinaryKernels(),
      .matrix_product = &CudaMatrixProductKernels(),
      .pointwise = &CudaPointwiseKernels(),
      .softmax = &CudaSoftmaxKernels(),
  };
  return table;
}

}  // namespace syncline
