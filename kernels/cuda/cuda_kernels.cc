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
      .float_class = &CudaFloatClassKernels(),
      .gather = &CudaGatherKernels(),
      .generator = &CudaGeneratorKernels(),
      .indexed = &CudaIndexedKernels(),
      .integer = &CudaIntegerKernels(),
      .layer_norm = &CudaLayerNormKernels(),
      .loss = &CudaLossKernels(),
      .matrix_product = &CudaMatrixProductKernels(),
      .padding = &CudaPaddingKernels(),
      .pointwise = &CudaPointwiseKernels(),
      .pooling = &CudaPoolingKernels(),
      .power = &CudaPowerKernels(),
      .reduction = &CudaReductionKernels(),
      .resample = &CudaResampleKernels(),
      .rotary = &CudaRotaryKernels(),
      .select = &CudaSelectKernels(),
      .softmax = &CudaSoftmaxKernels(),
      .strided_copy = &CudaStridedCopyKernels(),
      .triangle = &CudaTriangleKernels(),
  };
  return table;
}

}  // namespace syncline
