#include "common/model/graph/fusion.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/model/graph/graph.h"

namespace syncline {
namespace {

constexpr int kNobody = -1;
constexpr int kSeveral = -2;

// Tests on nodes and values that the patterns are made of.
class NodePatterns {
 public:
  NodePatterns(const InvariantConstants& numbers, Graph* graph)
      : graph_(*graph), numbers_(numbers) {
    reader_.resize(graph_.values.size(), kNobody);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const ValueId v : graph_.nodes[n].inputs) {
        if (v != kNoValue) AddReader(v, static_cast<int>(n));
      }
    }
    for (const ValueId v : graph_.outputs) AddReader(v, kSeveral);
  }

 protected:
  // A node of two operands, seen from one of them.
  struct Step {
    int node = kNobody;
    ValueId other = kNoValue;
    ValueId result = kNoValue;
  };

  // The number that `v` is known to be before training.
  std::optional<float> NumberOf(ValueId v) const {
    if (v == kNoValue) return std::nullopt;
    if (const auto it = numbers_.find(v); it != numbers_.end()) {
      return it->second;
    }
    const int at = graph_.values[v].initializer;
    if (at < 0) return std::nullopt;
    const Initializer& initializer = graph_.initializers[at];
    if (initializer.origin != Initializer::Origin::kConstant) {
      return std::nullopt;
    }
    return NumberIn(initializer.tensor);
  }
  bool IsNumber(ValueId v, double number) const {
    const std::optional<float> found = NumberOf(v);
    return found.has_value() && std::abs(*found - number) <= 1e-5 * number;
  }

  // The node that computes `v`, if it is this operation; else null.
  const Node* Producer(ValueId v, const char* op_type) const {
    const int n = v == kNoValue ? -1 : graph_.values[v].producer;
    if (n < 0 || graph_.nodes[n].op_type != op_type) return nullptr;
    return &graph_.nodes[n];
  }
  // The only reader of `v`, if it is this operation.
  std::optional<Step> Next(ValueId v, const char* op_type) const {
    const int n = v == kNoValue ? -1 : reader_[v];
    if (n < 0 || graph_.nodes[n].op_type != op_type) return std::nullopt;
    const Node& node = graph_.nodes[n];
    const size_t other = node.inputs[0] == v ? 1 : 0;
    return Step{n, other < node.inputs.size() ? node.inputs[other] : kNoValue,
                node.outputs[0]};
  }
  bool IsReadOnce(ValueId v) const { return v != kNoValue && reader_[v] >= 0; }
  bool IsFloat(ValueId v) const {
    const Value& value = graph_.values[v];
    return value.dtype == DType::kFloat32 && !value.folded;
  }

  Graph& graph_;

 private:
  void AddReader(ValueId v, int node) {
    reader_[v] = reader_[v] == kNobody ? node : kSeveral;
  }

  const InvariantConstants& numbers_;
  std::vector<int> reader_;  // by ValueId: a node, kNobody or kSeveral
};

class GeluFusion : NodePatterns {
 public:
  using NodePatterns::NodePatterns;

  void Run() {
    for (const Node& node : graph_.nodes) {
      if (node.op_type != "Erf") continue;
      const std::optional<Match> match = MatchFrom(node);
      if (!match.has_value()) continue;
      Node& last = graph_.nodes[match->last];
      last.op_type = "Gelu";
      last.since_version = 20;
      last.inputs = {match->x};
      last.attributes.clear();
      last.is_fused = true;
    }
  }

 private:
  struct Match {
    ValueId x = kNoValue;
    int last = kNobody;  // node
  };

  // `v` times `divisor`, if a node divides by `divisor` to compute `v`.
  std::optional<ValueId> Quotient(ValueId v, double divisor) const {
    const Node* const quotient = Producer(v, "Div");
    if (quotient != nullptr && IsNumber(quotient->inputs[1], divisor)) {
      return quotient->inputs[0];
    }
    const Node* const product = Producer(v, "Mul");
    if (product == nullptr) return std::nullopt;
    for (const int i : {0, 1}) {
      if (IsNumber(product->inputs[i], 1 / divisor)) {
        return product->inputs[1 - i];
      }
    }
    return std::nullopt;
  }

  std::optional<Match> MatchFrom(const Node& erf) const {
    const auto x = Quotient(erf.inputs[0], std::sqrt(2.0));
    if (!x.has_value() || !IsReadOnce(erf.inputs[0])) return std::nullopt;
    if (!IsFloat(*x)) return std::nullopt;
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
};

using Permutation = std::vector<int64_t>;

class AttentionFusion : NodePatterns {
 public:
  using NodePatterns::NodePatterns;

  void Run() {
    for (const Node& node : graph_.nodes) {
      if (node.op_type != "Softmax") continue;
      std::optional<Match> match = MatchFrom(node);
      if (!match.has_value()) continue;
      Node& last = graph_.nodes[match->last];
      last.op_type = "Attention";
      last.since_version = 23;
      last.inputs = {match->q.value, match->k.value, match->v.value};
      if (match->mask != kNoValue) last.inputs.push_back(match->mask);
      last.attributes = std::move(match->attributes);
      last.attributes["scale"] = match->scale;
      last.attributes[kRowsFirst] =
          std::vector<int64_t>{match->q.rows_first, match->k.rows_first,
                               match->v.rows_first, match->y_rows_first};
      last.is_fused = true;
    }
  }

 private:
  struct Operand {
    ValueId value = kNoValue;
    bool rows_first = false;
  };
  struct Match {
    Operand q, k, v;
    ValueId mask = kNoValue;
    float scale = 1;
    std::map<std::string, Attribute> attributes;  // of the mask
    int last = kNobody;                           // node
    bool y_rows_first = false;
  };

  std::optional<Match> MatchFrom(const Node& softmax) const {
    const ValueId weights = softmax.outputs[0];
    const int64_t last_axis = softmax.since_version < 13 ? 1 : -1;
    const int64_t axis = softmax.Int("axis", last_axis);
    if (DimsOf(weights).size() != 4 || (axis != -1 && axis != 3)) {
      return std::nullopt;
    }
    const auto mix = Next(weights, "MatMul");
    if (!mix.has_value() || graph_.nodes[mix->node].inputs[0] != weights) {
      return std::nullopt;
    }
    Match match;
    match.v = WithoutTranspose({mix->other, false});
    match.last = mix->node;
    const bool fits = MatchScores(softmax.inputs[0], &match) &&
                      IsFloat(match.q.value) && IsFloat(match.k.value) &&
                      IsFloat(match.v.value) && HeadsFit(match, weights);
    if (!fits) return std::nullopt;
    const auto back = Next(mix->result, "Transpose");
    if (back.has_value() &&
        graph_.nodes[back->node].Ints("perm") == kRowsToFront) {
      match.last = back->node;
      match.y_rows_first = true;
    }
    return match;
  }

  // From what Softmax reads: masked, then scaled, then the product.
  bool MatchScores(ValueId scores, Match* match) const {
    if (MatchProduct(scores, match)) return true;
    if (!IsReadOnce(scores)) return false;
    if (const Node* const sum = Producer(scores, "Add")) {
      for (const int i : {0, 1}) {
        match->mask = sum->inputs[1 - i];
        const bool fits = graph_.values[match->mask].dtype == DType::kFloat32 &&
                          MatchProduct(sum->inputs[i], match);
        if (fits) return true;
      }
      return false;
    }
    const Node* const where = Producer(scores, "Where");
    if (where == nullptr) return false;
    for (const int i : {1, 2}) {
      const std::optional<float> hidden = NumberOf(where->inputs[3 - i]);
      if (!hidden.has_value() || !MatchProduct(where->inputs[i], match)) {
        continue;
      }
      match->mask = where->inputs[0];
      match->attributes[kMaskHides] = int64_t{i == 2};
      match->attributes[kHiddenScore] = *hidden;
      return true;
    }
    return false;
  }

  bool MatchProduct(ValueId scores, Match* match) const {
    match->scale = 1;
    const ValueId product = WithoutFactors(scores, &match->scale);
    if (!IsReadOnce(scores) || !IsReadOnce(product)) return false;
    const Node* const matmul = Producer(product, "MatMul");
    if (matmul == nullptr) return false;
    match->q =
        WithoutTranspose({WithoutFactors(matmul->inputs[0], &match->scale)});
    // K is given transposed.
    const ValueId k = WithoutFactors(matmul->inputs[1], &match->scale);
    const Node* const transpose = Producer(k, "Transpose");
    if (transpose == nullptr) return false;
    const Permutation order = transpose->Ints("perm");
    match->k = {transpose->inputs[0], order == Permutation{0, 2, 3, 1}};
    if (match->k.rows_first) return true;
    match->k = WithoutTranspose(match->k);
    return order == Permutation{0, 1, 3, 2};
  }

  // `v` without the known numbers that nodes multiply it by; `factor` is
  // multiplied by these.
  ValueId WithoutFactors(ValueId v, float* factor) const {
    for (;;) {
      const Node* const quotient = Producer(v, "Div");
      const Node* const product = Producer(v, "Mul");
      if (quotient != nullptr && NumberOf(quotient->inputs[1])) {
        *factor /= *NumberOf(quotient->inputs[1]);
        v = quotient->inputs[0];
      } else if (product != nullptr && NumberOf(product->inputs[1])) {
        *factor *= *NumberOf(product->inputs[1]);
        v = product->inputs[0];
      } else if (product != nullptr && NumberOf(product->inputs[0])) {
        *factor *= *NumberOf(product->inputs[0]);
        v = product->inputs[1];
      } else {
        return v;
      }
    }
  }

  Operand WithoutTranspose(const Operand& operand) const {
    const Node* const transpose = Producer(operand.value, "Transpose");
    if (transpose == nullptr || transpose->Ints("perm") != kRowsToFront) {
      return operand;
    }
    return {transpose->inputs[0], true};
  }

  // Masks and products may enlarge what they are given, in batch, heads and
  // rows; the operator does not.
  bool HeadsFit(const Match& match, ValueId weights) const {
    const auto shape_of = [&](const Operand& operand) {
      Dims dims = DimsOf(operand.value);
      if (dims.size() != 4) return Dims{};
      if (operand.rows_first) std::swap(dims[1], dims[2]);
      return dims;
    };
    const Dims q = shape_of(match.q), k = shape_of(match.k),
               v = shape_of(match.v);
    if (q.empty() || k.empty() || v.empty()) return false;
    const Dims expected = {q[0], q[1], q[2], k[2]};
    return DimsOf(weights) == expected && k[0] == q[0] && k[1] == q[1] &&
           v[0] == q[0] && v[1] == q[1] && v[2] == k[2];
  }

  const Dims& DimsOf(ValueId v) const { return graph_.values[v].dims; }

  // [batch, heads, rows, width] to [batch, rows, heads, width] and back.
  const Permutation kRowsToFront = {0, 2, 1, 3};
};

}  // namespace

std::optional<float> NumberIn(const ConstantTensor& tensor) {
  if (tensor.dtype != DType::kFloat32 || ElementCount(tensor.dims) != 1 ||
      tensor.dims.size() > 1) {
    return std::nullopt;
  }
  return tensor.floats()[0];
}

void FuseNodes(const InvariantConstants& numbers, Graph* graph) {
  GeluFusion(numbers, graph).Run();
  AttentionFusion(numbers, graph).Run();
}

}  // namespace syncline
