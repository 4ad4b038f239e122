// The operators that a GPU computes in bfloat16 and float16 itself; all others
// are widened (worker/ops/widened_op.h). Without CUDA, for plans that are made
// without a GPU.

#include <algorithm>
#include <iterator>

#include "kernels/cuda/cuda_kernels.h"

namespace syncline {
namespace {

// Sorted.
constexpr absl::string_view kOperators[] = {
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Attention",
    "AveragePool",
    "BatchNormalization",
    "Ceil",
    "Celu",
    "Clip",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Cos",
    "Cosh",
    "DepthToSpace",
    "Div",
    "Dropout",
    "Elu",
    "Erf",
    "Exp",
    "Expand",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "InstanceNormalization",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "MatMul",
    "MaxPool",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "PRelu",
    "Pad",
    "RMSNormalization",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceMean",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "RotaryEmbedding",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Tile",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
};

}  // namespace

bool CudaComputesIn(absl::string_view op_type, DType type) {
  return Is16Bit(type) && std::binary_search(std::begin(kOperators),
                                             std::end(kOperators), op_type);
}

}  // namespace syncline
