#include "common/model/fusion.h"

#include <cmath>
#include <optional>

namespace syncline {
namespace {

constexpr int kNobody = -1;
constexpr int kSeveral = -2;

class GeluFusion {
 public:
  explicit GeluFusion(Graph* graph)
      : graph_(*graph), reader_(graph->values.size(), kNobody) {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const ValueId v : graph_.nodes[n].inputs) {
        if (v != kNoValue) AddReader(v, static_cast<int>(n));
      }
    }
    for (const ValueId v : graph_.outputs) AddReader(v, kSeveral);
  }

  std::vector<int> Run() {
    std::vector<int> changed;
    for (const Node& node : graph_.nodes) {
      if (node.op_type != "Erf") continue;
      const std::optional<Match> match = MatchFrom(node);
      if (!match.has_value()) continue;
      Node& last = graph_.nodes[match->last];
      last.op_type = "Gelu";
      last.since_version = 20;
      last.inputs = {match->x};
      last.attributes.clear();
      changed.push_back(match->last);
    }
    return changed;
  }

 private:
  struct Match {
    ValueId x = kNoValue;
    int last = kNobody;  // node
  };
  // A node of two operands, seen from one of them.
  struct Step {
    int node = kNobody;
    ValueId other = kNoValue;
    ValueId result = kNoValue;
  };

  void AddReader(ValueId v, int node) {
    reader_[v] = reader_[v] == kNobody ? node : kSeveral;
  }

  bool IsNumber(ValueId v, double number) const {
    const int at = graph_.values[v].initializer;
    if (at < 0) return false;
    const Initializer& initializer = graph_.initializers[at];
    const ConstantTensor& tensor = initializer.tensor;
    return initializer.origin == Initializer::Origin::kConstant &&
           tensor.dtype == DType::kFloat32 && ElementCount(tensor.dims) == 1 &&
           tensor.dims.size() <= 1 &&
           std::abs(tensor.floats()[0] - number) <= 1e-5 * number;
  }

  // The only reader of `v`, if it is this operation.
  std::optional<Step> Next(ValueId v, const char* op_type) const {
    const int n = v == kNoValue ? -1 : reader_[v];
    if (n < 0 || graph_.nodes[n].op_type != op_type) return std::nullopt;
    const Node& node = graph_.nodes[n];
    const ValueId other = node.inputs[node.inputs[0] == v ? 1 : 0];
    return Step{n, other, node.outputs[0]};
  }

  // What `v` is the product of with 1 / divisor.
  std::optional<ValueId> Quotient(ValueId v, double divisor) const {
    const int n = v == kNoValue ? -1 : graph_.values[v].producer;
    if (n < 0) return std::nullopt;
    const Node& node = graph_.nodes[n];
    if (node.op_type == "Div" && IsNumber(node.inputs[1], divisor)) {
      return node.inputs[0];
    }
    if (node.op_type != "Mul") return std::nullopt;
    for (const int i : {0, 1}) {
      if (IsNumber(node.inputs[i], 1 / divisor)) return node.inputs[1 - i];
    }
    return std::nullopt;
  }
  bool IsReadOnce(ValueId v) const { return reader_[v] >= 0; }

  std::optional<Match> MatchFrom(const Node& erf) const {
    const auto x = Quotient(erf.inputs[0], std::sqrt(2.0));
    if (!x.has_value() || !IsReadOnce(erf.inputs[0])) return std::nullopt;
    const Value& value = graph_.values[*x];
    if (value.dtype != DType::kFloat32 || value.folded) return std::nullopt;
    const auto plus_one = Next(erf.outputs[0], "Add");
    if (!plus_one.has_value() || !IsNumber(plus_one->other, 1)) {
      return std::nullopt;
    }
    const auto first = Next(plus_one->result, "Mul");
    if (!first.has_value()) return std::nullopt;
    // Half of x, already.
    const auto halved = Quotient(first->other, 2);
    if (halved == x && IsReadOnce(first->other)) return Match{*x, first->node};
    const auto second = Next(first->result, "Mul");
    if (!second.has_value()) return std::nullopt;
    const bool fits = (first->other == *x && IsNumber(second->other, 0.5)) ||
                      (second->other == *x && IsNumber(first->other, 0.5));
    if (!fits) return std::nullopt;
    return Match{*x, second->node};
  }

  Graph& graph_;
  std::vector<int> reader_;  // by ValueId: a node, kNobody or kSeveral
};

}  // namespace

std::vector<int> FuseNodes(Graph* graph) { return GeluFusion(graph).Run(); }

}  // namespace syncline
