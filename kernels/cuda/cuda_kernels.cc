#include "kernels/cuda/cuda_kernels.h"

namespace syncline {

const KernelTable& CudaKernelTable() {
  static const KernelTable table = {
      .binary = &CudaBinaryKernels(),
      .block_copy = &CudaBlockCopyKernels(),
      .dropout = &CudaDropoutKernels(),
      .einsum = &CudaEinsumKernels(),
      .layer_norm = &CudaLayerNormKernels(),
      .matrix_product = &CudaMatrixProductKernels(),
      .pointwise = &CudaPointwiseKernels(),
      .pooling = &CudaPoolingKernels(),
      .reduction = &CudaReductionKernels(),
      .resample = &CudaResampleKernels(),
      .softmax = &CudaSoftmaxKernels(),
      .strided_copy = &CudaStridedCopyKernels(),
      .triangle = &CudaTriangleKernels(),
  };
  return table;
}

}  // namespace syncline
