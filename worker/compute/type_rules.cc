#include "worker/compute/type_rules.h"

#include <iterator>

#include "common/model/graph/operator_list.h"

namespace syncline::worker {
namespace {

using Kind = TypeRule::Kind;

struct NamedRule {
  absl::string_view op_type;
  TypeRule rule;
};

constexpr uint32_t kFirst = 0b1;

constexpr TypeRule Narrow(uint32_t inputs) {
  return {Kind::kNarrow, inputs, kFirst};
}
// Most are functions of one element, or move elements.
constexpr TypeRule kFollowsFirst = {Kind::kFollows, kFirst, kFirst};
constexpr TypeRule kFollowsAll = {Kind::kFollows, kEvery, kFirst};
constexpr TypeRule kView = {Kind::kIsViewOf, kFirst, kFirst};

// Sorted. A product's bias, a recurrent layer's initial state and an
// attention's mask stay as they are.
constexpr NamedRule kRules[] = {
    {"Abs", kFollowsFirst},
    {"Add", kFollowsAll},
    {"Attention", Narrow(0b111)},
    {"AveragePool", kFollowsFirst},
    {"BatchNormalization", kFollowsFirst},
    {"Celu", kFollowsFirst},
    {"Clip", kFollowsFirst},
    {"Concat", kFollowsAll},
    {"Conv", Narrow(0b11)},
    {"ConvTranspose", Narrow(0b11)},
    {"DepthToSpace", kFollowsFirst},
    {"Div", kFollowsAll},
    {"Dropout", kFollowsFirst},
    {"Einsum", Narrow(kEvery)},
    {"Elu", kFollowsFirst},
    {"Erf", kFollowsFirst},
    {"Expand", kFollowsFirst},
    {"Flatten", kView},
    {"GRU", Narrow(0b111)},
    {"Gather", kFollowsFirst},
    {"GatherElements", kFollowsFirst},
    {"GatherND", kFollowsFirst},
    {"Gelu", kFollowsFirst},
    {"Gemm", Narrow(0b11)},
    {"GlobalAveragePool", kFollowsFirst},
    {"GlobalMaxPool", kFollowsFirst},
    {"GroupNormalization", kFollowsFirst},
    {"HardSigmoid", kFollowsFirst},
    {"HardSwish", kFollowsFirst},
    {"Identity", kView},
    {"InstanceNormalization", kFollowsFirst},
    {"LSTM", Narrow(0b111)},
    {"LayerNormalization", kFollowsFirst},
    {"LeakyRelu", kFollowsFirst},
    {"MatMul", Narrow(0b11)},
    {"Max", kFollowsAll},
    {"MaxPool", kFollowsFirst},
    {"Min", kFollowsAll},
    {"Mish", kFollowsFirst},
    {"Mul", kFollowsAll},
    {"Neg", kFollowsFirst},
    {"PRelu", kFollowsFirst},
    {"Pad", kFollowsFirst},
    {"RMSNormalization", kFollowsFirst},
    {"RNN", Narrow(0b111)},
    {"Relu", kFollowsFirst},
    {"Reshape", kView},
    {"Resize", kFollowsFirst},
    {"RotaryEmbedding", kFollowsFirst},
    {"Selu", kFollowsFirst},
    {"Shrink", kFollowsFirst},
    {"Sigmoid", kFollowsFirst},
    {"Slice", kFollowsFirst},
    {"Softsign", kFollowsFirst},
    {"SpaceToDepth", kFollowsFirst},
    {"Split", {Kind::kFollows, kFirst, kEvery}},
    {"Squeeze", kView},
    {"Sub", kFollowsAll},
    {"Sum", kFollowsAll},
    {"Swish", kFollowsFirst},
    {"Tanh", kFollowsFirst},
    {"ThresholdedRelu", kFollowsFirst},
    {"Tile", kFollowsFirst},
    {"Transpose", kFollowsFirst},
    {"Trilu", kFollowsFirst},
    {"Unsqueeze", kView},
    {"Where", {Kind::kFollows, 0b110, kFirst}},
};

}  // namespace

TypeRule TypeRuleOf(absl::string_view op_type) {
  for (const NamedRule& named : kRules) {
    if (named.op_type == op_type) return named.rule;
  }
  return {};
}

int TypeRuleCount() { return static_cast<int>(std::size(kRules)); }

}  // namespace syncline::worker
