#ifndef SYNCLINE_KERNELS_DEVICE_KERNEL_TABLE_H_
#define SYNCLINE_KERNELS_DEVICE_KERNEL_TABLE_H_

// The kernels of a device, by family. Each family is a struct of function
// pointers in a header of its own, which is the contract of its kernels on all
// devices. All kernels keep these rules:
//
//   - The arguments are the stream, a descriptor of fixed size, inputs and
//     outputs. Arrays lie in memory of the device, dense and row-major, unless
//     the family says otherwise.
//   - Floats and ConstFloats (floats.h) have a type in each call, float32 or 16
//     bits; where one may be another, they have one type. `float*` is float32.
//   - Gradients overwrite their result, or add to it with `accumulate`.
//   - A null family, or a null function: the device does not have it.
//   - Two calls on the same bits give the same bits.
//   - What is wrong with an element goes to an ErrorSlot (data_error.h).
//   - What is compiled for one shape (a matrix product, a convolution) is an
//     object, which its family makes.

namespace syncline {

struct AttentionKernels;
struct BinaryKernels;
struct BlockCopyKernels;
struct CastKernels;
struct ClassLossKernels;
struct ClipKernels;
struct CombinationKernels;
struct ComparisonKernels;
struct ConvolutionKernels;
struct CumulativeSumKernels;
struct DropoutKernels;
struct EinsumKernels;
struct ExtremumKernels;
struct FloatClassKernels;
struct GatherKernels;
struct GeneratorKernels;
struct IndexedKernels;
struct IntegerKernels;
struct LayerNormKernels;
struct LocalResponseKernels;
struct LossKernels;
struct LossScaleKernels;
struct MatrixProductKernels;
struct NormalizationKernels;
struct PaddingKernels;
struct PointwiseKernels;
struct PoolingKernels;
struct PowerKernels;
struct RecurrentKernels;
struct ReductionKernels;
struct ResampleKernels;
struct RotaryKernels;
struct ScatterKernels;
struct SelectKernels;
struct SoftmaxKernels;
struct StridedCopyKernels;
struct TensorUpdateKernels;
struct TriangleKernels;

struct KernelTable {
  const AttentionKernels* attention = nullptr;
  const BinaryKernels* binary = nullptr;
  const BlockCopyKernels* block_copy = nullptr;
  const CastKernels* cast = nullptr;
  const ClassLossKernels* class_loss = nullptr;
  const ClipKernels* clip = nullptr;
  const CombinationKernels* combination = nullptr;
  const ComparisonKernels* comparison = nullptr;
  const ConvolutionKernels* convolution = nullptr;
  const CumulativeSumKernels* cumulative_sum = nullptr;
  const DropoutKernels* dropout = nullptr;
  const EinsumKernels* einsum = nullptr;
  const ExtremumKernels* extremum = nullptr;
  const FloatClassKernels* float_class = nullptr;
  const GatherKernels* gather = nullptr;
  const GeneratorKernels* generator = nullptr;
  const IndexedKernels* indexed = nullptr;
  const IntegerKernels* integer = nullptr;
  const LayerNormKernels* layer_norm = nullptr;
  const LocalResponseKernels* local_response = nullptr;
  const LossKernels* loss = nullptr;
  const LossScaleKernels* loss_scale = nullptr;
  const MatrixProductKernels* matrix_product = nullptr;
  const NormalizationKernels* normalization = nullptr;
  const PaddingKernels* padding = nullptr;
  const PointwiseKernels* pointwise = nullptr;
  const PoolingKernels* pooling = nullptr;
  const PowerKernels* power = nullptr;
  const RecurrentKernels* recurrent = nullptr;
  const ReductionKernels* reduction = nullptr;
  const ResampleKernels* resample = nullptr;
  const RotaryKernels* rotary = nullptr;
  const ScatterKernels* scatter = nullptr;
  const SelectKernels* select = nullptr;
  const SoftmaxKernels* softmax = nullptr;
  const StridedCopyKernels* strided_copy = nullptr;
  const TensorUpdateKernels* tensor_update = nullptr;
  const TriangleKernels* triangle = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_KERNEL_TABLE_H_
