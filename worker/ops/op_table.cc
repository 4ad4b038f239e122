#include "worker/ops/op_table.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {

// As many inputs, or outputs, as a node has.
inline constexpr uint32_t kEvery = ~uint32_t{0};

// One line per operator: its name, which inputs have a gradient, and from which
// outputs it flows, where that is not the first alone. MakeX is in the
// operator's own file. (A list macro, so that it stays one line: each is
// declared and tabulated from here.)
#define SYNCLINE_OPERATORS(OPERATOR)           \
  OPERATOR(Abs, 0b1)                           \
  OPERATOR(Add, 0b11)                          \
  OPERATOR(And, 0)                             \
  OPERATOR(ArgMax, 0)                          \
  OPERATOR(Attention, 0b111111, 0b111)         \
  OPERATOR(AveragePool, 0b1)                   \
  OPERATOR(BatchNormalization, 0b11111)        \
  OPERATOR(Cast, 0b1)                          \
  OPERATOR(Ceil, 0)                            \
  OPERATOR(Celu, 0b1)                          \
  OPERATOR(Clip, 0b1)                          \
  OPERATOR(Concat, kEvery)                     \
  OPERATOR(ConstantOfShape, 0)                 \
  OPERATOR(Conv, 0b111)                        \
  OPERATOR(ConvTranspose, 0b111)               \
  OPERATOR(Cos, 0b1)                           \
  OPERATOR(CumSum, 0b1)                        \
  OPERATOR(Div, 0b11)                          \
  OPERATOR(Dropout, 0b1)                       \
  OPERATOR(Einsum, kEvery)                     \
  OPERATOR(Elu, 0b1)                           \
  OPERATOR(Equal, 0)                           \
  OPERATOR(Erf, 0b1)                           \
  OPERATOR(Exp, 0b1)                           \
  OPERATOR(Expand, 0b1)                        \
  OPERATOR(Flatten, 0b1)                       \
  OPERATOR(Floor, 0)                           \
  OPERATOR(GRU, 0b101111, 0b11)                \
  OPERATOR(Gather, 0b1)                        \
  OPERATOR(GatherElements, 0b1)                \
  OPERATOR(GatherND, 0b1)                      \
  OPERATOR(Gelu, 0b1)                          \
  OPERATOR(Gemm, 0b111)                        \
  OPERATOR(GlobalAveragePool, 0b1)             \
  OPERATOR(GlobalMaxPool, 0b1)                 \
  OPERATOR(Greater, 0)                         \
  OPERATOR(GreaterOrEqual, 0)                  \
  OPERATOR(GroupNormalization, 0b111)          \
  OPERATOR(HardSigmoid, 0b1)                   \
  OPERATOR(HardSwish, 0b1)                     \
  OPERATOR(Identity, 0b1)                      \
  OPERATOR(InstanceNormalization, 0b111)       \
  OPERATOR(IsInf, 0)                           \
  OPERATOR(IsNaN, 0)                           \
  OPERATOR(LSTM, 0b11101111, 0b111)            \
  OPERATOR(LayerNormalization, 0b111, 0b111)   \
  OPERATOR(LeakyRelu, 0b1)                     \
  OPERATOR(Less, 0)                            \
  OPERATOR(LessOrEqual, 0)                     \
  OPERATOR(Log, 0b1)                           \
  OPERATOR(LogSoftmax, 0b1)                    \
  OPERATOR(MatMul, 0b11)                       \
  OPERATOR(Max, kEvery)                        \
  OPERATOR(MaxPool, 0b1)                       \
  OPERATOR(Mean, kEvery)                       \
  OPERATOR(Min, kEvery)                        \
  OPERATOR(Mish, 0b1)                          \
  OPERATOR(Mod, 0b11)                          \
  OPERATOR(Mul, 0b11)                          \
  OPERATOR(Neg, 0b1)                           \
  OPERATOR(NegativeLogLikelihoodLoss, 0b1)     \
  OPERATOR(Not, 0)                             \
  OPERATOR(OneHot, 0)                          \
  OPERATOR(Or, 0)                              \
  OPERATOR(PRelu, 0b11)                        \
  OPERATOR(Pad, 0b1)                           \
  OPERATOR(Pow, 0b11)                          \
  OPERATOR(RMSNormalization, 0b11)             \
  OPERATOR(RNN, 0b101111, 0b11)                \
  OPERATOR(Range, 0)                           \
  OPERATOR(Reciprocal, 0b1)                    \
  OPERATOR(ReduceL1, 0b1)                      \
  OPERATOR(ReduceL2, 0b1)                      \
  OPERATOR(ReduceLogSum, 0b1)                  \
  OPERATOR(ReduceLogSumExp, 0b1)               \
  OPERATOR(ReduceMax, 0b1)                     \
  OPERATOR(ReduceMean, 0b1)                    \
  OPERATOR(ReduceMin, 0b1)                     \
  OPERATOR(ReduceProd, 0b1)                    \
  OPERATOR(ReduceSum, 0b1)                     \
  OPERATOR(ReduceSumSquare, 0b1)               \
  OPERATOR(Relu, 0b1)                          \
  OPERATOR(Reshape, 0b1)                       \
  OPERATOR(RotaryEmbedding, 0b1)               \
  OPERATOR(Round, 0)                           \
  OPERATOR(ScatterElements, 0b101)             \
  OPERATOR(ScatterND, 0b101)                   \
  OPERATOR(Selu, 0b1)                          \
  OPERATOR(Shape, 0)                           \
  OPERATOR(Sigmoid, 0b1)                       \
  OPERATOR(Sign, 0)                            \
  OPERATOR(Sin, 0b1)                           \
  OPERATOR(Size, 0)                            \
  OPERATOR(Slice, 0b1)                         \
  OPERATOR(Softmax, 0b1)                       \
  OPERATOR(SoftmaxCrossEntropyLoss, 0b1, 0b11) \
  OPERATOR(Softplus, 0b1)                      \
  OPERATOR(Softsign, 0b1)                      \
  OPERATOR(Split, 0b1, kEvery)                 \
  OPERATOR(Sqrt, 0b1)                          \
  OPERATOR(Squeeze, 0b1)                       \
  OPERATOR(Sub, 0b11)                          \
  OPERATOR(Sum, kEvery)                        \
  OPERATOR(Swish, 0b1)                         \
  OPERATOR(Tanh, 0b1)                          \
  OPERATOR(ThresholdedRelu, 0b1)               \
  OPERATOR(Tile, 0b1)                          \
  OPERATOR(Transpose, 0b1)                     \
  OPERATOR(Trilu, 0b1)                         \
  OPERATOR(Unsqueeze, 0b1)                     \
  OPERATOR(Where, 0b110)                       \
  OPERATOR(Xor, 0)

#define SYNCLINE_DECLARE_OPERATOR(name, ...) OpFactory Make##name;
SYNCLINE_OPERATORS(SYNCLINE_DECLARE_OPERATOR)
#undef SYNCLINE_DECLARE_OPERATOR

namespace {

#define SYNCLINE_TABULATE_OPERATOR(name, inputs, ...) \
  {#name, inputs, Make##name __VA_OPT__(, ) __VA_ARGS__},
constexpr OpEntry kOps[] = {SYNCLINE_OPERATORS(SYNCLINE_TABULATE_OPERATOR)};
#undef SYNCLINE_TABULATE_OPERATOR

}  // namespace

absl::Span<const OpEntry> OpTable() { return kOps; }

const OpEntry* FindOp(absl::string_view op_type) {
  for (const OpEntry& entry : kOps) {
    if (entry.op_type == op_type) return &entry;
  }
  return nullptr;
}

std::string Describe(const Node& node) {
  return absl::StrCat("node \"", node.name, "\" (", node.op_type,
                      node.is_fused ? ", written out)" : ")");
}

absl::StatusOr<std::unique_ptr<Op>> CreateOp(const OpSpec& spec) {
  const OpEntry* const entry =
      spec.node->domain.empty() ? FindOp(spec.node->op_type) : nullptr;
  if (entry == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*spec.node), ": the operator is not supported"));
  }
  auto op = entry->cpu(spec);
  if (!op.ok()) return Annotate(op.status(), Describe(*spec.node));
  return op;
}

}  // namespace syncline
