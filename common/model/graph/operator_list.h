#ifndef SYNCLINE_COMMON_MODEL_GRAPH_OPERATOR_LIST_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_OPERATOR_LIST_H_

// The one list of operators: what a model may use, what a gradient flows
// through, and what a worker executes are all made from it. schemas.cc makes
// the table that reads files, worker/ops/op_table.cc the table of code: an
// operator without code does not link.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace syncline {

// The operators of the list below by name, sorted.
std::vector<std::string> SupportedOperators();
bool IsSupportedOperator(absl::string_view op_type);

// An attribute that BatchNormalization has besides ONNX's, int 1: the running
// variance follows sums of squares over n - 1 instead of ONNX's n, as PyTorch's
// does. So in all files that PyTorch wrote.
inline constexpr char kSampleVariance[] = "syncline.sample_variance";

// Inputs or outputs of an operator by position, bit i for position i. Only an
// operator that may have any number of them has more than 32: it names all,
// however many a node has, or some among the first 32.
inline constexpr uint32_t kEvery = ~uint32_t{0};

// True if `positions` contains `position`.
constexpr bool HasPosition(uint32_t positions, size_t position) {
  return positions == kEvery ||
         (position < 32 && (positions >> position & 1) != 0);
}

}  // namespace syncline

// One line per operator, sorted: its name; which inputs have a gradient (the
// rest are settings, such as Reshape's shape and Dropout's ratio); from which
// outputs it flows (the rest are for reading); and every schema version from
// the one that opset 11 selects, ascending. Versions that only widened the
// accepted types are listed, too, so that Node::since_version agrees
// with ONNX. Constant and CastLike are not here: neither reaches an executor.
#define SYNCLINE_OPERATORS(OPERATOR)                              \
  OPERATOR(Abs, 0b1, 0b1, 6, 13)                                  \
  OPERATOR(Acos, 0b1, 0b1, 7, 22)                                 \
  OPERATOR(Acosh, 0b1, 0b1, 9, 22)                                \
  OPERATOR(Add, 0b11, 0b1, 7, 13, 14)                             \
  OPERATOR(And, 0, 0b1, 7)                                        \
  OPERATOR(ArgMax, 0, 0b1, 11, 12, 13)                            \
  OPERATOR(Asin, 0b1, 0b1, 7, 22)                                 \
  OPERATOR(Asinh, 0b1, 0b1, 9, 22)                                \
  OPERATOR(Atan, 0b1, 0b1, 7, 22)                                 \
  OPERATOR(Atanh, 0b1, 0b1, 9, 22)                                \
  OPERATOR(Attention, 0b111111, 0b111, 23, 24)                    \
  OPERATOR(AveragePool, 0b1, 0b1, 10, 11, 19, 22)                 \
  OPERATOR(BatchNormalization, 0b11111, 0b1, 9, 14, 15)           \
  OPERATOR(Cast, 0b1, 0b1, 9, 13, 19, 21, 23, 24, 25)             \
  OPERATOR(Ceil, 0, 0b1, 6, 13)                                   \
  OPERATOR(Celu, 0b1, 0b1, 12)                                    \
  OPERATOR(Clip, 0b1, 0b1, 11, 12, 13)                            \
  OPERATOR(Concat, kEvery, 0b1, 11, 13)                           \
  OPERATOR(ConstantOfShape, 0, 0b1, 9, 20, 21, 23, 24, 25)        \
  OPERATOR(Conv, 0b111, 0b1, 11, 22)                              \
  OPERATOR(ConvTranspose, 0b111, 0b1, 11, 22)                     \
  OPERATOR(Cos, 0b1, 0b1, 7, 22)                                  \
  OPERATOR(Cosh, 0b1, 0b1, 9, 22)                                 \
  OPERATOR(CumSum, 0b1, 0b1, 11, 14)                              \
  OPERATOR(DepthToSpace, 0b1, 0b1, 11, 13)                        \
  OPERATOR(Div, 0b11, 0b1, 7, 13, 14)                             \
  OPERATOR(Dropout, 0b1, 0b1, 10, 12, 13, 22)                     \
  OPERATOR(Einsum, kEvery, 0b1, 12)                               \
  OPERATOR(Elu, 0b1, 0b1, 6, 22)                                  \
  OPERATOR(Equal, 0, 0b1, 11, 13, 19)                             \
  OPERATOR(Erf, 0b1, 0b1, 9, 13)                                  \
  OPERATOR(Exp, 0b1, 0b1, 6, 13)                                  \
  OPERATOR(Expand, 0b1, 0b1, 8, 13)                               \
  OPERATOR(Flatten, 0b1, 0b1, 11, 13, 21, 23, 24, 25)             \
  OPERATOR(Floor, 0, 0b1, 6, 13)                                  \
  OPERATOR(GRU, 0b101111, 0b11, 7, 14, 22)                        \
  OPERATOR(Gather, 0b1, 0b1, 11, 13)                              \
  OPERATOR(GatherElements, 0b1, 0b1, 11, 13)                      \
  OPERATOR(GatherND, 0b1, 0b1, 11, 12, 13)                        \
  OPERATOR(Gelu, 0b1, 0b1, 20)                                    \
  OPERATOR(Gemm, 0b111, 0b1, 11, 13)                              \
  OPERATOR(GlobalAveragePool, 0b1, 0b1, 1, 22)                    \
  OPERATOR(GlobalMaxPool, 0b1, 0b1, 1, 22)                        \
  OPERATOR(Greater, 0, 0b1, 9, 13)                                \
  OPERATOR(GreaterOrEqual, 0, 0b1, 12, 16)                        \
  OPERATOR(GroupNormalization, 0b111, 0b1, 18, 21)                \
  OPERATOR(HardSigmoid, 0b1, 0b1, 6, 22)                          \
  OPERATOR(HardSwish, 0b1, 0b1, 14, 22)                           \
  OPERATOR(Identity, 0b1, 0b1, 1, 13, 14, 16, 19, 21, 23, 24, 25) \
  OPERATOR(InstanceNormalization, 0b111, 0b1, 6, 22)              \
  OPERATOR(IsInf, 0, 0b1, 10, 20)                                 \
  OPERATOR(IsNaN, 0, 0b1, 9, 13, 20)                              \
  OPERATOR(LRN, 0b1, 0b1, 1, 13)                                  \
  OPERATOR(LSTM, 0b11101111, 0b111, 7, 14, 22)                    \
  OPERATOR(LayerNormalization, 0b111, 0b111, 17)                  \
  OPERATOR(LeakyRelu, 0b1, 0b1, 6, 16)                            \
  OPERATOR(Less, 0, 0b1, 9, 13)                                   \
  OPERATOR(LessOrEqual, 0, 0b1, 12, 16)                           \
  OPERATOR(Log, 0b1, 0b1, 6, 13)                                  \
  OPERATOR(LogSoftmax, 0b1, 0b1, 11, 13)                          \
  OPERATOR(MatMul, 0b11, 0b1, 9, 13)                              \
  OPERATOR(Max, kEvery, 0b1, 8, 12, 13)                           \
  OPERATOR(MaxPool, 0b1, 0b1, 11, 12, 22)                         \
  OPERATOR(Mean, kEvery, 0b1, 8, 13)                              \
  OPERATOR(Min, kEvery, 0b1, 8, 12, 13)                           \
  OPERATOR(Mish, 0b1, 0b1, 18, 22)                                \
  OPERATOR(Mod, 0b11, 0b1, 10, 13)                                \
  OPERATOR(Mul, 0b11, 0b1, 7, 13, 14)                             \
  OPERATOR(Neg, 0b1, 0b1, 6, 13)                                  \
  OPERATOR(NegativeLogLikelihoodLoss, 0b1, 0b1, 12, 13, 22)       \
  OPERATOR(Not, 0, 0b1, 1)                                        \
  OPERATOR(OneHot, 0, 0b1, 11)                                    \
  OPERATOR(Or, 0, 0b1, 7)                                         \
  OPERATOR(PRelu, 0b11, 0b1, 9, 16)                               \
  OPERATOR(Pad, 0b1, 0b1, 11, 13, 18, 19, 21, 23, 24, 25)         \
  OPERATOR(Pow, 0b11, 0b1, 7, 12, 13, 15)                         \
  OPERATOR(RMSNormalization, 0b11, 0b1, 23)                       \
  OPERATOR(RNN, 0b101111, 0b11, 7, 14, 22)                        \
  OPERATOR(Range, 0, 0b1, 11)                                     \
  OPERATOR(Reciprocal, 0b1, 0b1, 6, 13)                           \
  OPERATOR(ReduceL1, 0b1, 0b1, 11, 13, 18)                        \
  OPERATOR(ReduceL2, 0b1, 0b1, 11, 13, 18)                        \
  OPERATOR(ReduceLogSum, 0b1, 0b1, 11, 13, 18)                    \
  OPERATOR(ReduceLogSumExp, 0b1, 0b1, 11, 13, 18)                 \
  OPERATOR(ReduceMax, 0b1, 0b1, 11, 12, 13, 18, 20)               \
  OPERATOR(ReduceMean, 0b1, 0b1, 11, 13, 18)                      \
  OPERATOR(ReduceMin, 0b1, 0b1, 11, 12, 13, 18, 20)               \
  OPERATOR(ReduceProd, 0b1, 0b1, 11, 13, 18)                      \
  OPERATOR(ReduceSum, 0b1, 0b1, 11, 13)                           \
  OPERATOR(ReduceSumSquare, 0b1, 0b1, 11, 13, 18)                 \
  OPERATOR(Relu, 0b1, 0b1, 6, 13, 14)                             \
  OPERATOR(Reshape, 0b1, 0b1, 5, 13, 14, 19, 21, 23, 24, 25)      \
  OPERATOR(Resize, 0b1, 0b1, 11, 13, 18, 19)                      \
  OPERATOR(RotaryEmbedding, 0b1, 0b1, 23)                         \
  OPERATOR(Round, 0, 0b1, 11, 22)                                 \
  OPERATOR(ScatterElements, 0b101, 0b1, 11, 13, 16, 18)           \
  OPERATOR(ScatterND, 0b101, 0b1, 11, 13, 16, 18)                 \
  OPERATOR(Selu, 0b1, 0b1, 6, 22)                                 \
  OPERATOR(Shape, 0, 0b1, 1, 13, 15, 19, 21, 23, 24, 25)          \
  OPERATOR(Shrink, 0b1, 0b1, 9)                                   \
  OPERATOR(Sigmoid, 0b1, 0b1, 6, 13)                              \
  OPERATOR(Sign, 0, 0b1, 9, 13)                                   \
  OPERATOR(Sin, 0b1, 0b1, 7, 22)                                  \
  OPERATOR(Sinh, 0b1, 0b1, 9, 22)                                 \
  OPERATOR(Size, 0, 0b1, 1, 13, 19, 21, 23, 24, 25)               \
  OPERATOR(Slice, 0b1, 0b1, 11, 13)                               \
  OPERATOR(Softmax, 0b1, 0b1, 11, 13)                             \
  OPERATOR(SoftmaxCrossEntropyLoss, 0b1, 0b11, 12, 13)            \
  OPERATOR(Softplus, 0b1, 0b1, 1, 22)                             \
  OPERATOR(Softsign, 0b1, 0b1, 1, 22)                             \
  OPERATOR(SpaceToDepth, 0b1, 0b1, 1, 13)                         \
  OPERATOR(Split, 0b1, kEvery, 11, 13, 18)                        \
  OPERATOR(Sqrt, 0b1, 0b1, 6, 13)                                 \
  OPERATOR(Squeeze, 0b1, 0b1, 11, 13, 21, 23, 24, 25)             \
  OPERATOR(Sub, 0b11, 0b1, 7, 13, 14)                             \
  OPERATOR(Sum, kEvery, 0b1, 8, 13)                               \
  OPERATOR(Swish, 0b1, 0b1, 24)                                   \
  OPERATOR(Tan, 0b1, 0b1, 7, 22)                                  \
  OPERATOR(Tanh, 0b1, 0b1, 6, 13)                                 \
  OPERATOR(ThresholdedRelu, 0b1, 0b1, 10, 22)                     \
  OPERATOR(Tile, 0b1, 0b1, 6, 13)                                 \
  OPERATOR(Transpose, 0b1, 0b1, 1, 13, 21, 23, 24, 25)            \
  OPERATOR(Trilu, 0b1, 0b1, 14)                                   \
  OPERATOR(Unsqueeze, 0b1, 0b1, 11, 13, 21, 23, 24, 25)           \
  OPERATOR(Where, 0b110, 0b1, 9, 16)                              \
  OPERATOR(Xor, 0, 0b1, 7)

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_OPERATOR_LIST_H_
