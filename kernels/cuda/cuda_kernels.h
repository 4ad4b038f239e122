#ifndef SYNCLINE_KERNELS_CUDA_CUDA_KERNELS_H_
#define SYNCLINE_KERNELS_CUDA_CUDA_KERNELS_H_

// The families of kernels for CUDA, each in the file of its name.

#include "kernels/device/kernel_table.h"

namespace syncline {

const BinaryKernels& CudaBinaryKernels();
const BlockCopyKernels& CudaBlockCopyKernels();
const CastKernels& CudaCastKernels();
const ClipKernels& CudaClipKernels();
const CombinationKernels& CudaCombinationKernels();
const ComparisonKernels& CudaComparisonKernels();
const CumulativeSumKernels& CudaCumulativeSumKernels();
const DropoutKernels& CudaDropoutKernels();
const EinsumKernels& CudaEinsumKernels();
const ExtremumKernels& CudaExtremumKernels();
const LayerNormKernels& CudaLayerNormKernels();
const MatrixProductKernels& CudaMatrixProductKernels();
const PointwiseKernels& CudaPointwiseKernels();
const PoolingKernels& CudaPoolingKernels();
const PowerKernels& CudaPowerKernels();
const ReductionKernels& CudaReductionKernels();
const ResampleKernels& CudaResampleKernels();
const SelectKernels& CudaSelectKernels();
const SoftmaxKernels& CudaSoftmaxKernels();
const StridedCopyKernels& CudaStridedCopyKernels();
const TriangleKernels& CudaTriangleKernels();

// All of them; null where there is none yet.
const KernelTable& CudaKernelTable();

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_CUDA_KERNELS_H_
