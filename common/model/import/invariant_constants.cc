#include "common/model/import/invariant_constants.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "common/model/graph/graph.h"
#include "common/model/inference/constant_folding.h"

namespace syncline {
namespace {

// 1 for each element that is open, 0 for one that is fixed.
using Marks = std::vector<int64_t>;

ConstantTensor ToTensor(const Marks& marks, const Dims& dims) {
  ConstantTensor tensor;
  tensor.dtype = DType::kInt64;
  tensor.dims = dims;
  tensor.bytes.assign(reinterpret_cast<const char*>(marks.data()),
                      marks.size() * sizeof(int64_t));
  return tensor;
}

// Operators whose result consists of elements of their first input, or of all
// inputs.
bool MovesElements(absl::string_view op_type) {
  static constexpr absl::string_view kOps[] = {
      "Cast",    "CastLike", "Concat",  "Flatten",   "Gather",   "Identity",
      "Reshape", "Slice",    "Squeeze", "Transpose", "Unsqueeze"};
  return absl::c_linear_search(kOps, op_type);
}

// Which of its inputs is the shape of its result, or the end of it; -1: none.
int ShapeInputOf(absl::string_view op_type) {
  if (op_type == "ConstantOfShape") return 0;
  return op_type == "Reshape" || op_type == "Expand" ? 1 : -1;
}

// Operators whose result's shape depends on the values of other inputs than the
// first.
bool ResizesByValue(absl::string_view op_type) {
  static constexpr absl::string_view kOps[] = {
      "OneHot", "Pad", "Range", "Resize", "Slice", "Split", "Tile", "TopK"};
  return absl::c_linear_search(kOps, op_type);
}

// Which elements of folded values depend on a dimension that is not fixed.
class OpenElements {
 public:
  OpenElements(const Graph& graph, absl::Span<const InferredValue> values,
               absl::Span<const InferredValue> at_other_length)
      : graph_(graph),
        values_(values),
        at_other_length_(at_other_length),
        marks_(values.size()),
        hides_open_dims_(values.size()) {}

  // REQUIRES: in topological order.
  void Visit(const Node& node) {
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) hides_open_dims_[v] = HidesOpenDims(node, v);
    }
    if (node.op_type == "Shape" || node.op_type == "Size") {
      marks_[node.outputs[0]] = MarksOfShape(node);
    } else if (absl::c_any_of(node.inputs,
                              [&](ValueId v) { return IsOpen(v); })) {
      for (const ValueId v : node.outputs) {
        if (v == kNoValue || !graph_.values[v].folded) continue;
        marks_[v] = MovesElements(node.op_type) ? MovedMarks(node, v) : Open(v);
      }
    }
  }

  bool IsOpen(ValueId v) const {
    return v != kNoValue && absl::c_linear_search(marks_[v], 1);
  }

 private:
  bool IsOpenDim(ValueId v, size_t d) const {
    if (hides_open_dims_[v] || graph_.values[v].dims[d] < 0) return true;
    if (at_other_length_.empty()) return false;
    const InferredValue& other = at_other_length_[v];
    return !other.known || other.dims.size() != values_[v].dims.size() ||
           other.dims[d] != values_[v].dims[d];
  }

  Marks MarksOfShape(const Node& node) const {
    const ValueId of = node.inputs[0];
    Dims marks(values_[of].dims.size());
    for (size_t d = 0; d < marks.size(); ++d) marks[d] = IsOpenDim(of, d);
    if (node.op_type == "Size") {
      return {absl::c_linear_search(marks, 1) ? 1 : 0};
    }
    // The shape of what has these dimensions, from `start` to `end`.
    const InferredValue& out = values_[node.outputs[0]];
    return FoldMarks(node, {FoldInput{true, marks, nullptr}}, out.dims);
  }

  // True if a dimension of `v` may be open although trials do not show it, such
  // as the smaller of the length and 100.
  bool HidesOpenDims(const Node& node, ValueId v) const {
    for (const ValueId x : node.inputs) {
      if (x != kNoValue && hides_open_dims_[x]) return true;
    }
    if (absl::c_none_of(node.inputs, [&](ValueId x) { return IsOpen(x); })) {
      return false;
    }
    const Dims& dims = values_[v].dims;
    const int shape_input = ShapeInputOf(node.op_type);
    if (shape_input >= 0) {
      const Marks& marks = marks_[node.inputs[shape_input]];
      const size_t before = dims.size() - std::min(dims.size(), marks.size());
      for (size_t i = 0; before + i < dims.size(); ++i) {
        if (i < marks.size() && marks[i] != 0 && !IsOpenDim(v, before + i)) {
          return true;
        }
      }
      return false;
    }
    if (!ResizesByValue(node.op_type)) return false;
    const Dims& from = values_[node.inputs[0]].dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      const bool is_kept = from.size() == dims.size() && from[d] == dims[d];
      if (!is_kept && !IsOpenDim(v, d)) return true;
    }
    return false;
  }

  Marks Open(ValueId v) const {
    return Marks(ElementCount(values_[v].dims), 1);
  }

  Marks MovedMarks(const Node& node, ValueId v) const {
    if (ElementCount(values_[v].dims) > kReadableElementsMax) return Open(v);
    std::vector<ConstantTensor> tensors(node.inputs.size());
    std::vector<FoldInput> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId from = node.inputs[i];
      if (from == kNoValue) {
        inputs.emplace_back();
        continue;
      }
      const bool moved = i == 0 || node.op_type == "Concat";
      const bool counts = moved || node.op_type != "CastLike";
      if (!moved && counts && IsOpen(from)) return Open(v);
      const Dims& dims = values_[from].dims;
      if (moved) {
        Marks marks = marks_[from];
        marks.resize(ElementCount(dims), 0);
        tensors[i] = ToTensor(marks, dims);
      }
      inputs.push_back({true, dims, moved ? &tensors[i] : ValueOf(from)});
    }
    return FoldMarks(node, inputs, values_[v].dims);
  }

  const ConstantTensor* ValueOf(ValueId v) const {
    const int at = graph_.values[v].initializer;
    return at < 0 ? values_[v].constant.get() : &graph_.initializers[at].tensor;
  }

  static Marks FoldMarks(const Node& node, absl::Span<const FoldInput> inputs,
                         const Dims& dims) {
    const auto marks = FoldNode(node, inputs, DType::kInt64, dims);
    if (!marks.ok() || !marks->has_value()) {
      return Marks(ElementCount(dims), 1);
    }
    const absl::Span<const int64_t> ints = (*marks)->ints();
    return Marks(ints.begin(), ints.end());
  }

  const Graph& graph_;
  const absl::Span<const InferredValue> values_;
  const absl::Span<const InferredValue> at_other_length_;
  std::vector<Marks> marks_;           // by value; none: all are fixed
  std::vector<bool> hides_open_dims_;  // by value
};

}  // namespace

InvariantConstants FindInvariantConstants(
    const Graph& graph, absl::Span<const Node> nodes,
    absl::Span<const InferredValue> values,
    absl::Span<const InferredValue> at_other_length) {
  OpenElements open(graph, values, at_other_length);
  InvariantConstants numbers;
  for (const Node& node : nodes) {
    open.Visit(node);
    for (const ValueId v : node.outputs) {
      if (v == kNoValue || !graph.values[v].folded || open.IsOpen(v)) continue;
      const auto number = NumberIn(*values[v].constant);
      if (number.has_value()) numbers[v] = *number;
    }
  }
  return numbers;
}

}  // namespace syncline
