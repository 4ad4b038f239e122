#include "common/model/import/weight_choice.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "common/model/graph/graph.h"
#include "common/model/graph/operator_list.h"

namespace syncline {
namespace {

// Inputs of an operator, as HasPosition counts them.
struct Places {
  absl::string_view op_type;
  uint32_t inputs;
};

constexpr Places kWeights[] = {{"BatchNormalization", 0b110},
                               {"Conv", 0b110},
                               {"ConvTranspose", 0b110},
                               {"Einsum", 0b11},
                               {"GRU", 0b1110},
                               {"Gather", 0b1},
                               {"GatherElements", 0b1},
                               {"GatherND", 0b1},
                               {"Gemm", 0b111},
                               {"GroupNormalization", 0b110},
                               {"InstanceNormalization", 0b110},
                               {"LSTM", 0b10001110},
                               {"LayerNormalization", 0b110},
                               {"MatMul", 0b11},
                               {"PRelu", 0b10},
                               {"RMSNormalization", 0b10},
                               {"RNN", 0b1110}};
constexpr Places kStates[] = {
    {"GRU", 0b100000}, {"LSTM", 0b1100000}, {"RNN", 0b100000}};
constexpr Places kStatistics[] = {{"BatchNormalization", 0b11000}};
// The input whose numbers come out as they are.
constexpr Places kMoves[] = {
    {"Cast", 1},     {"Concat", kEvery}, {"Expand", 1},  {"Flatten", 1},
    {"Identity", 1}, {"Pad", 1},         {"Reshape", 1}, {"Slice", 1},
    {"Split", 1},    {"Squeeze", 1},     {"Tile", 1},    {"Transpose", 1},
    {"Unsqueeze", 1}};
constexpr absl::string_view kProducts[] = {"Conv", "ConvTranspose", "Einsum",
                                           "Gemm", "MatMul"};
constexpr absl::string_view kWeightNames[] = {"weight", "bias", "kernel",
                                              "gamma", "beta"};

bool IsAt(absl::Span<const Places> table, absl::string_view op_type,
          int input) {
  for (const Places& places : table) {
    if (places.op_type != op_type) continue;
    return HasPosition(places.inputs, static_cast<size_t>(input));
  }
  return false;
}

// "encoder.fc1.bias", "dense/kernel:0".
bool IsNamedAsWeight(absl::string_view name) {
  if (const size_t colon = name.rfind(':'); colon != name.npos) {
    name = name.substr(0, colon);
  }
  const size_t begin = name.find_last_of("./");
  const absl::string_view last =
      begin == name.npos ? name : name.substr(begin + 1);
  return absl::c_linear_search(kWeightNames, last);
}

// Two numbers, one of them so low that no weight has it.
bool IsMask(absl::Span<const float> values) {
  constexpr float kLow = -1e4f;
  const float first = values[0];
  const auto other =
      absl::c_find_if(values, [=](float x) { return x != first; });
  if (other == values.end()) return false;
  return std::min(first, *other) <= kLow && std::max(first, *other) > kLow &&
         absl::c_all_of(values,
                        [=](float x) { return x == first || x == *other; });
}

bool IsGeometric(absl::Span<const float> values) {
  constexpr size_t kCountMin = 4;
  constexpr float kTolerance = 1e-3f;
  if (values.size() < kCountMin || values[0] != 1) return false;
  const float ratio = values[1];
  if (!(ratio > 0 && ratio < 1)) return false;
  for (size_t i = 1; i < values.size(); ++i) {
    const float wanted = values[i - 1] * ratio;
    if (!(std::fabs(values[i] - wanted) <= kTolerance * wanted)) return false;
  }
  return true;
}

// Rows of sines and cosines of multiples of one angle for each column: what
// follows a row is 2 cos(angle) of it less the row before. The first row has
// the sines and cosines of 0.
bool IsSinusoidal(absl::Span<const float> values, const Dims& dims) {
  constexpr int64_t kRowsMin = 4;
  constexpr double kTolerance = 1e-3;
  if (dims.size() < 2) return false;
  const int64_t width = dims.back();
  const int64_t rows = dims[dims.size() - 2];
  if (rows < kRowsMin || width < 1 ||
      static_cast<int64_t>(values.size()) != rows * width) {
    return false;
  }
  // Ones are weights of a normalisation.
  if (absl::c_all_of(values, [](float x) { return x == 0 || x == 1; })) {
    return false;
  }
  // Any differences are within the tolerance where all numbers are small; a
  // table of sines has a cosine near 1.
  if (absl::c_all_of(values, [](float x) { return std::fabs(x) < 0.5f; })) {
    return false;
  }
  for (int64_t c = 0; c < width; ++c) {
    const double first = values[c];
    const double second = values[width + c];
    if ((first != 0 && first != 1) || (first == 0 && second == 0)) return false;
    const double cosine =
        first == 1 ? second : std::sqrt(std::max(0.0, 1 - second * second));
    const auto at = [&](int64_t r) { return double{values[r * width + c]}; };
    // The sine alone does not say on which side its cosine is.
    const double third = 2 * cosine * second - first;
    const double sign = std::fabs(third - at(2)) <= kTolerance ? 1 : -1;
    for (int64_t r = 2; r < rows; ++r) {
      const double wanted = 2 * sign * cosine * at(r - 1) - at(r - 2);
      if (!(std::fabs(wanted - at(r)) <= kTolerance)) return false;
    }
  }
  return true;
}

std::optional<WeightReason> JudgeValues(const ConstantTensor& tensor) {
  if (tensor.dtype != DType::kFloat32 || tensor.bytes.empty() ||
      ElementCount(tensor.dims) < 2) {
    return std::nullopt;
  }
  const absl::Span<const float> values = tensor.floats();
  if (IsMask(values)) return WeightReason::kMask;
  if (IsGeometric(values)) return WeightReason::kFrequencies;
  if (IsSinusoidal(values, tensor.dims)) return WeightReason::kPositions;
  return std::nullopt;
}

bool IsZero(const ConstantTensor& tensor) {
  return tensor.dtype == DType::kFloat32 && !tensor.bytes.empty() &&
         absl::c_all_of(tensor.floats(), [](float x) { return x == 0; });
}

}  // namespace

bool IsTrained(WeightReason reason) { return reason < WeightReason::kFrozen; }

absl::string_view Explain(WeightReason reason) {
  switch (reason) {
    case WeightReason::kFileSays:
      return "the file calls them PARAMETER";
    case WeightReason::kStatistic:
      return "running means and variances";
    case WeightReason::kDeclared:
      return "without values in the file";
    case WeightReason::kStarted:
      return "without values in the model file, with those of start.weights";
    case WeightReason::kJobTrains:
      return "named by model.train";
    case WeightReason::kJobFills:
      return "named by a rule of model.initialize";
    case WeightReason::kLayer:
      return "weights of layers, by place or name";
    case WeightReason::kAssumed:
      return "assumed to be weights; constants among them belong into "
             "model.freeze";
    case WeightReason::kFrozen:
      return "named by model.freeze";
    case WeightReason::kKept:
      return "running means and variances of layers in inference mode, beside "
             "others in training mode";
    case WeightReason::kBuffer:
      return "the file calls them BUFFER";
    case WeightReason::kConstant:
      return "the file calls them constants";
    case WeightReason::kUnnamed:
      return "the file calls others PARAMETER; model.train adds to them";
    case WeightReason::kSingleNumber:
      return "single numbers in arithmetic; weights among them belong into "
             "model.train";
    case WeightReason::kZeroState:
      return "zeros that recurrent layers start from; learnt ones among them "
             "belong into model.train";
    case WeightReason::kMask:
      return "masks, by their values";
    case WeightReason::kFrequencies:
      return "frequencies of positions, by their values";
    case WeightReason::kPositions:
      return "sines and cosines of positions, by their values";
    case WeightReason::kUnreached:
      return "no gradient of the loss reaches them";
  }
  return "";
}

WeightUses::WeightUses(const Graph& graph)
    : graph_(graph), readers_(graph.values.size()) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::vector<ValueId>& inputs = graph.nodes[n].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue) continue;
      readers_[inputs[i]].push_back({static_cast<int>(n), static_cast<int>(i)});
    }
  }
}

std::vector<WeightUses::Use> WeightUses::UsesOf(ValueId value) const {
  std::vector<Use> uses;
  std::vector<ValueId> pending = {value};
  absl::flat_hash_set<ValueId> seen = {value};
  while (!pending.empty()) {
    const ValueId v = pending.back();
    pending.pop_back();
    for (const Use& use : readers_[v]) {
      const Node& node = graph_.nodes[use.node];
      if (!IsAt(kMoves, node.op_type, use.input)) {
        uses.push_back(use);
        continue;
      }
      for (const ValueId y : node.outputs) {
        if (y != kNoValue && seen.insert(y).second) pending.push_back(y);
      }
    }
  }
  return uses;
}

bool WeightUses::IsProduct(ValueId value) const {
  while (value != kNoValue && graph_.values[value].producer >= 0) {
    const Node& node = graph_.nodes[graph_.values[value].producer];
    if (absl::c_linear_search(kProducts, node.op_type)) return true;
    if (node.op_type == "Concat" || !IsAt(kMoves, node.op_type, 0)) break;
    value = node.inputs[0];
  }
  return false;
}

bool WeightUses::IsBias(const Use& use) const {
  const Node& node = graph_.nodes[use.node];
  if (node.op_type != "Add" && node.op_type != "Sum") return false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (static_cast<int>(i) != use.input && IsProduct(node.inputs[i])) {
      return true;
    }
  }
  return false;
}

WeightReason WeightUses::Judge(const Initializer& initializer) const {
  const std::vector<Use> uses = UsesOf(initializer.value);
  const auto any_at = [&](absl::Span<const Places> table) {
    return absl::c_any_of(uses, [&](const Use& use) {
      return IsAt(table, graph_.nodes[use.node].op_type, use.input);
    });
  };
  if (any_at(kStatistics)) return WeightReason::kStatistic;
  if (const auto reason = JudgeValues(initializer.tensor)) return *reason;
  const std::string& name = graph_.values[initializer.value].name;
  if (any_at(kWeights) || IsNamedAsWeight(name)) return WeightReason::kLayer;
  const Dims& dims = initializer.tensor.dims;
  // A scalar that is added to a product is a constant; a bias has dimensions.
  const bool is_bias =
      !dims.empty() &&
      absl::c_any_of(uses, [&](const Use& use) { return IsBias(use); });
  if (is_bias) return WeightReason::kLayer;
  if (ElementCount(dims) == 1) return WeightReason::kSingleNumber;
  const bool is_state =
      !uses.empty() && absl::c_all_of(uses, [&](const Use& use) {
        return IsAt(kStates, graph_.nodes[use.node].op_type, use.input);
      });
  if (is_state && IsZero(initializer.tensor)) return WeightReason::kZeroState;
  return WeightReason::kAssumed;
}

int WeightUses::ReaderCount(ValueId value) const {
  absl::flat_hash_set<int> nodes;
  for (const Use& use : UsesOf(value)) nodes.insert(use.node);
  return static_cast<int>(nodes.size());
}

}  // namespace syncline
