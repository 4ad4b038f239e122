#include "kernels/cuda/cuda_kernels.h"

namespace syncline {

const KernelTable& CudaKernelTable() {
  static const KernelTable table = {
      .attention = &CudaAttentionKernels(),
      .binary = &CudaBinaryKernels(),
      .block_copy = &CudaBlockCopyKernels(),
      .cast = &CudaCastKernels(),
      .class_loss = &CudaClassLossKernels(),
      .clip = &CudaClipKernels(),
      .combination = &CudaCombinationKernels(),
      .comparison = &CudaComparisonKernels(),
      .convolution = &CudaConvolutionKernels(),
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
      .local_response = &CudaLocalResponseKernels(),
      .loss = &CudaLossKernels(),
      .loss_scale = &CudaLossScaleKernels(),
      .matrix_product = &CudaMatrixProductKernels(),
      .normalization = &CudaNormalizationKernels(),
      .padding = &CudaPaddingKernels(),
      .pointwise = &CudaPointwiseKernels(),
      .pooling = &CudaPoolingKernels(),
      .power = &CudaPowerKernels(),
      .recurrent = &CudaRecurrentKernels(),
      .reduction = &CudaReductionKernels(),
      .resample = &CudaResampleKernels(),
      .rotary = &CudaRotaryKernels(),
      .scatter = &CudaScatterKernels(),
      .select = &CudaSelectKernels(),
      .softmax = &CudaSoftmaxKernels(),
      .strided_copy = &CudaStridedCopyKernels(),
      .tensor_update = &CudaTensorUpdateKernels(),
      .triangle = &CudaTriangleKernels(),
  };
  return table;
}

}  // namespace syncline
