#include "common/model/mixed_samples.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/fusion.h"
#include "common/model/graph/gradient_flow.h"

namespace syncline {
namespace {

constexpr int kSoftmaxOfOneAxis = 13;  // before: of all from `axis` on

// Of the dimensions that depend on the number of samples.
bool IsOpen(int64_t dim) { return dim < 0; }
int64_t OpenDims(const Dims& dims) { return absl::c_count_if(dims, IsOpen); }

class MixedSamplesFinder {
 public:
  explicit MixedSamplesFinder(const Graph& graph) : graph_(graph) {}

  // `output`: one that it has.
  bool Mixes(const Node& node, ValueId output) const {
    int64_t open = 0;
    int with_samples = 0;
    for (const ValueId input : node.inputs) {
      if (input == kNoValue || graph_.values[input].folded) continue;
      const int64_t dims = OpenDims(DimsOf(input));
      open = std::max(open, dims);
      if (dims > 0) ++with_samples;
    }
    if (open == 0) return false;
    const int64_t after = OpenDims(DimsOf(output));
    return after == 0 || (after > open && with_samples > 1) ||
           ComputesAlong(node);
  }

 private:
  const Dims& DimsOf(ValueId id) const { return graph_.values[id].dims; }

  bool ComputesAlong(const Node& node) const {
    const Dims& dims = DimsOf(node.inputs[0]);
    const auto rank = static_cast<int64_t>(dims.size());
    const auto from_end = [&](int64_t axis) {
      return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0,
                                 std::max<int64_t>(rank - 1, 0));
    };
    const std::string& type = node.op_type;
    if (type == "Attention") return AttendsAlong(node);
    if (type == "Softmax" || type == "LogSoftmax" || type == "Hardmax") {
      const bool one = node.since_version >= kSoftmaxOfOneAxis;
      const auto first =
          dims.begin() + from_end(node.Int("axis", one ? -1 : 1));
      return std::any_of(first, one ? first + 1 : dims.end(), IsOpen);
    }
    if (type == "CumSum") {
      const std::optional<int64_t> axis = ScalarOf(node.inputs[1]);
      return axis.has_value() && IsOpen(dims[from_end(*axis)]);
    }
    // Steps are dimension 0, or 1 in the layout that few files have.
    if (type == "LSTM" || type == "GRU" || type == "RNN") {
      return rank == 3 && IsOpen(dims[node.Int("layout", 0) == 0 ? 0 : 1]);
    }
    return false;
  }

  // The rows of K are samples.
  bool AttendsAlong(const Node& node) const {
    constexpr size_t kKeys = 1;
    const Dims& keys = DimsOf(node.inputs[kKeys]);
    const std::vector<int64_t> rows_first = node.Ints(kRowsFirst);
    const bool in_front = keys.size() == 3 ||
                          (rows_first.size() > kKeys && rows_first[kKeys] != 0);
    const size_t rows = in_front ? 1 : 2;
    return rows < keys.size() && IsOpen(keys[rows]);
  }

  std::optional<int64_t> ScalarOf(ValueId id) const {
    const int initializer = graph_.values[id].initializer;
    if (initializer < 0) return std::nullopt;
    const ConstantTensor& tensor = graph_.initializers[initializer].tensor;
    if (tensor.dtype != DType::kInt64 || tensor.ints().size() != 1) {
      return std::nullopt;
    }
    return tensor.ints()[0];
  }

  const Graph& graph_;
};

}  // namespace

std::vector<std::string> FindMixedSamples(const Graph& graph, ValueId output) {
  const MixedSamplesFinder finder(graph);
  const std::vector<bool> influences = Influences(graph, output);
  std::vector<std::string> found;
  for (const Node& node : graph.nodes) {
    const auto first =
        absl::c_find_if(node.outputs, [&](ValueId v) { return v != kNoValue; });
    if (node.inputs.empty() || node.inputs[0] == kNoValue ||
        node.op_type == "BatchNormalization" ||
        !absl::c_any_of(node.outputs,
                        [&](ValueId v) {
                          return v != kNoValue && influences[v] &&
                                 !graph.values[v].folded;
                        }) ||
        !finder.Mixes(node, *first)) {
      continue;
    }
    found.push_back(DescribeNode(node.name, node.op_type, graph.opset_version));
  }
  return found;
}

std::string DescribeMixed(const std::vector<std::string>& mixed) {
  if (mixed.size() == 1) return mixed[0];
  const size_t others = mixed.size() - 1;
  return absl::StrCat(mixed[0], " and ", others,
                      others == 1 ? " other" : " others");
}

}  // namespace syncline
