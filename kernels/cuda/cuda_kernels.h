#ifndef SYNCLINE_KERNELS_CUDA_CUDA_KERNELS_H_
#define SYNCLINE_KERNELS_CUDA_CUDA_KERNELS_H_

// The families of kernels for CUDA, each in the file of its name.

#include "absl/strings/string_view.h"
#include "common/base/dtype.h"
#include "kernels/device/kernel_table.h"

namespace syncline {

const AttentionKernels& CudaAttentionKernels();
const BinaryKernels& CudaBinaryKernels();
const BlockCopyKernels& CudaBlockCopyKernels();
const CastKernels& CudaCastKernels();
const ClassLossKernels& CudaClassLossKernels();
const ClipKernels& CudaClipKernels();
const CombinationKernels& CudaCombinationKernels();
const ComparisonKernels& CudaComparisonKernels();
const ConvolutionKernels& CudaConvolutionKernels();
const CumulativeSumKernels& CudaCumulativeSumKernels();
const DropoutKernels& CudaDropoutKernels();
const EinsumKernels& CudaEinsumKernels();
const ExtremumKernels& CudaExtremumKernels();
const FloatClassKernels& CudaFloatClassKernels();
const GatherKernels& CudaGatherKernels();
const GeneratorKernels& CudaGeneratorKernels();
const IndexedKernels& CudaIndexedKernels();
const IntegerKernels& CudaIntegerKernels();
const LayerNormKernels& CudaLayerNormKernels();
const LocalResponseKernels& CudaLocalResponseKernels();
const LossKernels& CudaLossKernels();
const LossScaleKernels& CudaLossScaleKernels();
const MatrixProductKernels& CudaMatrixProductKernels();
const NormalizationKernels& CudaNormalizationKernels();
const PaddingKernels& CudaPaddingKernels();
const PointwiseKernels& CudaPointwiseKernels();
const PoolingKernels& CudaPoolingKernels();
const PowerKernels& CudaPowerKernels();
const RecurrentKernels& CudaRecurrentKernels();
const ReductionKernels& CudaReductionKernels();
const ResampleKernels& CudaResampleKernels();
const RotaryKernels& CudaRotaryKernels();
const ScatterKernels& CudaScatterKernels();
const SelectKernels& CudaSelectKernels();
const SoftmaxKernels& CudaSoftmaxKernels();
const StridedCopyKernels& CudaStridedCopyKernels();
const TensorUpdateKernels& CudaTensorUpdateKernels();
const TriangleKernels& CudaTriangleKernels();

// All of them; null where there is none yet.
const KernelTable& CudaKernelTable();
// Device::computes_in of a GPU (narrow_operators.cc).
bool CudaComputesIn(absl::string_view op_type, DType type);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_CUDA_KERNELS_H_
