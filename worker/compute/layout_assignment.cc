#include "worker/compute/layout_assignment.h"

#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "common/model/graph/graph.h"
#include "worker/ops/widened_op.h"

namespace syncline::worker {
namespace {

// An operator's demand on the layout of its first input and output. All of its
// other inputs and outputs are row-major.
enum class Role {
  kRowMajor,     // takes no other
  kElementwise,  // the same for all that have the output's shape
  kByChannel,    // the same for both
  kCollapsing,   // takes any; one element a channel, so that all are the same
  kConverting,   // takes and makes any
};

Role RoleOf(absl::string_view op_type) {
  constexpr absl::string_view kElementwise[] = {
      "Abs",         "Add",
      kCastTo16Bits, "Celu",
      "Clip",        "Div",
      "Elu",         "Exp",
      "Gelu",        "HardSigmoid",
      "HardSwish",   "Identity",
      "LeakyRelu",   "Mish",
      "Mul",         "Neg",
      "Relu",        "Selu",
      "Sigmoid",     "Softplus",
      "Softsign",    "Sub",
      "Sum",         "Swish",
      "Tanh",        "ThresholdedRelu"};
  constexpr absl::string_view kByChannel[] = {"AveragePool",
                                              "BatchNormalization", "MaxPool"};
  constexpr absl::string_view kCollapsing[] = {"GlobalAveragePool",
                                               "GlobalMaxPool"};
  if (op_type == "Conv") return Role::kConverting;
  if (absl::c_linear_search(kElementwise, op_type)) return Role::kElementwise;
  if (absl::c_linear_search(kByChannel, op_type)) return Role::kByChannel;
  if (absl::c_linear_search(kCollapsing, op_type)) return Role::kCollapsing;
  return Role::kRowMajor;
}

// Values that must have one layout are one set.
class LayoutSets {
 public:
  explicit LayoutSets(size_t values)
      : parents_(values), row_major_(values), convolved_(values) {
    std::iota(parents_.begin(), parents_.end(), 0);
  }

  void Join(ValueId a, ValueId b) {
    a = RootOf(a);
    b = RootOf(b);
    parents_[b] = a;
    row_major_[a] = row_major_[a] || row_major_[b];
    convolved_[a] = convolved_[a] || convolved_[b];
  }
  // Users of `value`, which may be absent, decide on its layout with these two.
  void KeepRowMajor(ValueId value) {
    if (value != kNoValue) row_major_[RootOf(value)] = true;
  }
  void WantBlocks(ValueId value) { convolved_[RootOf(value)] = true; }

  bool IsBlocked(ValueId value) {
    const ValueId root = RootOf(value);
    return convolved_[root] && !row_major_[root];
  }

 private:
  ValueId RootOf(ValueId value) {
    while (parents_[value] != value) {
      parents_[value] = parents_[parents_[value]];
      value = parents_[value];
    }
    return value;
  }

  std::vector<ValueId> parents_;
  std::vector<bool> row_major_;  // of a root: one of the set must be
  std::vector<bool> convolved_;  // likewise: a convolution reads or writes it
};

bool FitsBlocks(const Dims& dims, int64_t block) {
  return (dims.size() == 3 || dims.size() == 4) && ElementCount(dims) > 0 &&
         dims[1] % block == 0;
}

void JoinElementwise(const Node& node, absl::Span<const Dims> shapes,
                     LayoutSets* sets) {
  const ValueId y = node.outputs[0];
  for (const ValueId x : node.inputs) {
    if (x == kNoValue) continue;
    if (shapes[x] == shapes[y]) {
      sets->Join(x, y);
      continue;
    }
    sets->KeepRowMajor(x);
    if (ElementCount(shapes[x]) != 1) sets->KeepRowMajor(y);
  }
}

void Visit(const Node& node, absl::Span<const Dims> shapes, LayoutSets* sets) {
  const auto keep_from = [&](absl::Span<const ValueId> values, size_t first) {
    for (size_t i = first; i < values.size(); ++i) {
      sets->KeepRowMajor(values[i]);
    }
  };
  keep_from(node.outputs, 1);
  const bool alone = absl::c_count(node.outputs, kNoValue) + 1 ==
                     static_cast<std::ptrdiff_t>(node.outputs.size());
  switch (RoleOf(node.op_type)) {
    case Role::kRowMajor:
      keep_from(node.inputs, 0);
      keep_from(node.outputs, 0);
      return;
    case Role::kElementwise:
      return JoinElementwise(node, shapes, sets);
    case Role::kByChannel:
      keep_from(node.inputs, 1);
      sets->Join(node.inputs[0], node.outputs[0]);
      // The positions of maxima are those of the input's own order.
      if (node.op_type == "MaxPool" && !alone) {
        sets->KeepRowMajor(node.inputs[0]);
      }
      return;
    case Role::kCollapsing:
      return sets->KeepRowMajor(node.outputs[0]);
    case Role::kConverting:
      keep_from(node.inputs, 1);
      sets->WantBlocks(node.inputs[0]);
      sets->WantBlocks(node.outputs[0]);
      return;
  }
}

}  // namespace

std::vector<int64_t> AssignLayouts(const Graph& graph,
                                   const BackwardGraph& flow,
                                   absl::Span<const Dims> shapes,
                                   ValueId loss_output, int64_t block) {
  std::vector<int64_t> blocks(graph.values.size(), 1);
  if (block == 1) return blocks;
  LayoutSets sets(graph.values.size());
  std::vector<bool> made(graph.values.size(), false);
  for (const int n : flow.nodes) {
    const Node& node = graph.nodes[n];
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) made[v] = true;
    }
    // Without a first output nothing says what the others are of.
    if (node.inputs.empty() || node.inputs[0] == kNoValue ||
        node.outputs[0] == kNoValue) {
      for (const ValueId v : node.inputs) sets.KeepRowMajor(v);
      for (const ValueId v : node.outputs) sets.KeepRowMajor(v);
      continue;
    }
    Visit(node, shapes, &sets);
  }
  sets.KeepRowMajor(loss_output);
  for (size_t v = 0; v < blocks.size(); ++v) {
    if (!made[v] || !FitsBlocks(shapes[v], block)) {
      sets.KeepRowMajor(static_cast<ValueId>(v));
    }
  }
  for (size_t v = 0; v < blocks.size(); ++v) {
    if (sets.IsBlocked(static_cast<ValueId>(v))) blocks[v] = block;
  }
  return blocks;
}

}  // namespace syncline::worker
