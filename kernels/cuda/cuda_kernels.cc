#include "kernels/cuda/cuda_kernels.h"

namespace syncline {

const KernelTable& CudaKernelTable() {
  static const KernelTable table = {
      .binary = &CudaBinaryKernels(),
      .einsum = &CudaEinsumKernels(),
      .matrix_product = &CudaMatrixProductKernels(),
      .pointwise = &CudaPointwiseKernels(),
      .pooling = &CudaPoolingKernels(),
      .resample = &CudaResampleKernels(),
      .softmax = &CudaSoftmaxKernels(),
  };
  return table;
}

}  // namespace syncline
