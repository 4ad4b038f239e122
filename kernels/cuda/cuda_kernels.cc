#include "kernels/cuda/cuda_kernels.h"

namespace syncline {

const KernelTable& CudaKernelTable() {
  static const KernelTable table = {
      .binary = &CudaBinaryKernels(),
      .block_copy = &CudaBlockCopyKernels(),
      .cast = &CudaCastKernels(),
      .clip = &CudaClipKernels(),
      .combination = &CudaCombinationKernels(),
      .comparison = &CudaComparisonKernels(),
      .cumulative_sum = &CudaCumulativeSumKernels(),
      .dropout = &CudaDropoutKernels(),
      .einsum = &CudaEinsumKernels(),
      .extremum = &CudaExtremumKernels(),
      .layer_norm = &CudaLayerNormKernels(),
      .matrix_product = &CudaMatrixProductKernels(),
      .pointwise = &CudaPointwiseKernels(),
      .pooling = &CudaPoolingKernels(),
      .power = &CudaPowerKernels(),
      .reduction = &CudaReductionKernels(),
      .resample = &CudaResampleKernels(),
      .select = &CudaSelectKernels(),
      .softmax = &CudaSoftmaxKernels(),
      .strided_copy = &CudaStridedCopyKernels(),
      .triangle = &CudaTriangleKernels(),
  };
  return table;
}

}  // namespace syncline
