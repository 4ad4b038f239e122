#include "worker/compute/fans.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/model/graph/einsum.h"
#include "common/model/graph/graph.h"

namespace syncline::worker {
namespace {

// The fan that a dimension of the weights counts for.
enum class Role { kNone, kIn, kOut, kBoth };
using Roles = std::vector<Role>;

// How one node uses the weights.
struct Use {
  Roles roles;           // by dimension
  int64_t in_group = 1;  // `in` is divided by it, `out` multiplied
  bool is_table = false;
  const Node* node = nullptr;
};

// [.., in, out], or [.., out, in] if `transposed`. The dimensions before these
// two are a batch of matrices and feed other outputs. One dimension is summed
// over.
Roles MatrixRoles(size_t rank, bool transposed) {
  Roles roles(rank, Role::kNone);
  if (rank == 1) return {Role::kIn};
  if (rank < 2) return roles;
  roles[rank - 2] = transposed ? Role::kOut : Role::kIn;
  roles[rank - 1] = transposed ? Role::kIn : Role::kOut;
  return roles;
}

Roles WindowRoles(size_t rank, Role first, Role second) {
  Roles roles(rank, Role::kBoth);
  if (rank > 0) roles[0] = first;
  if (rank > 1) roles[1] = second;
  return roles;
}

std::optional<Roles> EinsumRoles(const Graph& graph, const Node& node,
                                 size_t position) {
  std::vector<Dims> operands;
  for (const ValueId input : node.inputs) {
    operands.push_back(graph.values[input].dims);
  }
  const auto einsum = ParseEinsum(node.String("equation", ""), operands);
  if (!einsum.ok() || operands.size() < 2) return std::nullopt;
  std::string others;
  for (size_t i = 0; i < einsum->inputs.size(); ++i) {
    if (i != position) others += einsum->inputs[i];
  }
  Roles roles;
  for (const char label : einsum->inputs[position]) {
    const bool kept = einsum->output.find(label) != std::string::npos;
    const bool shared = others.find(label) != std::string::npos;
    roles.push_back(!kept ? Role::kIn : shared ? Role::kNone : Role::kOut);
  }
  return roles;
}

std::optional<Roles> RecurrentRoles(size_t position, size_t rank) {
  const bool is_matrix = (position == 1 || position == 2) && rank == 3;
  if (is_matrix) return MatrixRoles(rank, true);
  const bool is_vector = (position == 3 || position == 7) && rank == 2;
  if (is_vector) return Roles{Role::kNone, Role::kBoth};
  return std::nullopt;
}

// None: the node does not multiply by what it reads at `position`.
std::optional<Use> UseBy(const Graph& graph, const Node& node,
                         size_t position) {
  const size_t rank = graph.values[node.inputs[position]].dims.size();
  const std::string& op = node.op_type;
  Use use;
  use.node = &node;
  if (op == "MatMul") {
    use.roles = MatrixRoles(rank, position == 0);
  } else if (op == "Gemm" && position == 0) {
    use.roles = MatrixRoles(rank, node.Int("transA", 0) == 0);
  } else if (op == "Gemm" && position == 1) {
    use.roles = MatrixRoles(rank, node.Int("transB", 0) != 0);
  } else if (op == "Conv" && position == 1) {
    use.roles = WindowRoles(rank, Role::kOut, Role::kIn);
  } else if (op == "ConvTranspose" && position == 1) {
    use.roles = WindowRoles(rank, Role::kIn, Role::kOut);
    use.in_group = std::max<int64_t>(1, node.Int("group", 1));
  } else if (op == "Gather" && position == 0 && rank >= 2 &&
             node.Int("axis", 0) == 0) {
    use.roles.assign(rank, Role::kIn);
    use.roles[0] = Role::kOut;
    use.is_table = true;
  } else if (op == "LSTM" || op == "GRU" || op == "RNN") {
    auto roles = RecurrentRoles(position, rank);
    if (!roles.has_value()) return std::nullopt;
    use.roles = *std::move(roles);
  } else if (op == "Einsum") {
    auto roles = EinsumRoles(graph, node, position);
    if (!roles.has_value()) return std::nullopt;
    use.roles = *std::move(roles);
  } else {
    return std::nullopt;
  }
  return use;
}

// Roles of what a node reads from those of what it makes of it, where it does
// nothing but put dimensions in another order or form.
std::optional<Roles> RolesBefore(const Graph& graph, const Node& node,
                                 const Roles& after) {
  const Dims& from = graph.values[node.inputs[0]].dims;
  const Dims& to = graph.values[node.outputs[0]].dims;
  Roles before(from.size(), Role::kNone);
  if (node.op_type == "Transpose") {
    const std::vector<int64_t> perm = node.Ints("perm");
    for (size_t d = 0; d < after.size(); ++d) {
      before[perm.empty() ? after.size() - 1 - d : perm[d]] = after[d];
    }
    return before;
  }
  size_t f = 0;
  for (size_t t = 0; t < to.size(); ++t) {
    if (to[t] == 1) continue;
    while (f < from.size() && from[f] == 1) ++f;
    if (f == from.size() || from[f] != to[t]) return std::nullopt;
    before[f++] = after[t];
  }
  return before;
}

bool IsRearrangement(const Node& node, size_t position) {
  static constexpr absl::string_view kOps[] = {
      "Cast",    "Flatten",   "Identity", "Reshape",
      "Squeeze", "Transpose", "Unsqueeze"};
  return position == 0 && std::find(std::begin(kOps), std::end(kOps),
                                    node.op_type) != std::end(kOps);
}

// Of all nodes that use `value`, in the graph's order but for those behind a
// rearrangement, which are in the place of the first of it. `depth` bounds
// chains of rearrangements.
std::vector<Use> UsesOf(const Graph& graph, ValueId value, int depth = 8) {
  std::vector<Use> uses;
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != value || !node.domain.empty()) continue;
      if (auto use = UseBy(graph, node, i)) uses.push_back(*std::move(use));
      if (!IsRearrangement(node, i) || depth == 0) continue;
      for (Use& use : UsesOf(graph, node.outputs[0], depth - 1)) {
        auto roles = RolesBefore(graph, node, use.roles);
        if (!roles.has_value()) continue;
        use.roles = *std::move(roles);
        uses.push_back(std::move(use));
      }
    }
  }
  return uses;
}

Fans FansBy(const Use& use, absl::Span<const int64_t> dims) {
  Fans fans;
  for (size_t d = 0; d < dims.size(); ++d) {
    const Role role = use.roles[d];
    if (role == Role::kIn || role == Role::kBoth) fans.in *= dims[d];
    if (role == Role::kOut || role == Role::kBoth) fans.out *= dims[d];
  }
  fans.in /= use.in_group;
  fans.out *= use.in_group;
  return fans;
}

Fans FansByShape(absl::Span<const int64_t> dims) {
  if (dims.empty()) return {};
  if (dims.size() == 1) return {dims[0], dims[0]};
  const int64_t window = ElementCount(dims.subspan(2));
  return {dims[1] * window, dims[0] * window};
}

std::string Text(const Fans& fans) {
  return absl::StrCat("in=", fans.in, " out=", fans.out);
}

}  // namespace

FansOfUse FansOf(const Graph& graph, ValueId value) {
  const Dims& dims = graph.values[value].dims;
  std::vector<Use> uses = UsesOf(graph, value);
  std::stable_partition(uses.begin(), uses.end(),
                        [](const Use& use) { return !use.is_table; });
  if (uses.empty()) {
    FansOfUse result = {.fans = FansByShape(dims), .doubt = ""};
    result.doubt =
        absl::StrCat("no node is known to multiply by it; its shape ",
                     DimsToString(dims), " gives ", Text(result.fans));
    return result;
  }
  FansOfUse result = {.fans = FansBy(uses[0], dims), .doubt = ""};
  for (const Use& use : uses) {
    const Fans other = FansBy(use, dims);
    if (other.in == result.fans.in && other.out == result.fans.out) continue;
    result.doubt = absl::StrCat(
        "node \"", uses[0].node->name, "\" gives ", Text(result.fans),
        ", which counts, and node \"", use.node->name, "\" ", Text(other));
    break;
  }
  return result;
}

}  // namespace syncline::worker
