#ifndef SYNCLINE_KERNELS_CPU_CPU_KERNELS_H_
#define SYNCLINE_KERNELS_CPU_CPU_KERNELS_H_

// The families of kernels on this machine's processors, each in the file of its
// name. They share large loops among the threads that the calling thread may
// use; the bits do not depend on how many there are.

#include "kernels/device/kernel_table.h"

namespace syncline {

const AttentionKernels& CpuAttentionKernels();
const BinaryKernels& CpuBinaryKernels();
const BlockCopyKernels& CpuBlockCopyKernels();
const CastKernels& CpuCastKernels();
const ClassLossKernels& CpuClassLossKernels();
const ClipKernels& CpuClipKernels();
const CombinationKernels& CpuCombinationKernels();
const ComparisonKernels& CpuComparisonKernels();
const ConvolutionKernels& CpuConvolutionKernels();
const CumulativeSumKernels& CpuCumulativeSumKernels();
const DropoutKernels& CpuDropoutKernels();
const EinsumKernels& CpuEinsumKernels();
const ExtremumKernels& CpuExtremumKernels();
const FloatClassKernels& CpuFloatClassKernels();
const GatherKernels& CpuGatherKernels();
const GeneratorKernels& CpuGeneratorKernels();
const IndexedKernels& CpuIndexedKernels();
const IntegerKernels& CpuIntegerKernels();
const LayerNormKernels& CpuLayerNormKernels();
const LocalResponseKernels& CpuLocalResponseKernels();
const LossKernels& CpuLossKernels();
const LossScaleKernels& CpuLossScaleKernels();
const MatrixProductKernels& CpuMatrixProductKernels();
const NormalizationKernels& CpuNormalizationKernels();
const PaddingKernels& CpuPaddingKernels();
const PointwiseKernels& CpuPointwiseKernels();
const PoolingKernels& CpuPoolingKernels();
const PowerKernels& CpuPowerKernels();
const RecurrentKernels& CpuRecurrentKernels();
const ReductionKernels& CpuReductionKernels();
const ResampleKernels& CpuResampleKernels();
const RotaryKernels& CpuRotaryKernels();
const ScatterKernels& CpuScatterKernels();
const SelectKernels& CpuSelectKernels();
const SoftmaxKernels& CpuSoftmaxKernels();
const StridedCopyKernels& CpuStridedCopyKernels();
const TriangleKernels& CpuTriangleKernels();

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CPU_CPU_KERNELS_H_
