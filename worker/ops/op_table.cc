#include "worker/ops/op_table.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/graph/operator_list.h"

namespace syncline::worker {

// MakeX is in the file of the operator's family, in a room of worker/ops.
#define SYNCLINE_DECLARE_OPERATOR(name, ...) OpFactory Make##name;
SYNCLINE_OPERATORS(SYNCLINE_DECLARE_OPERATOR)
#undef SYNCLINE_DECLARE_OPERATOR

namespace {

#define SYNCLINE_TABULATE_OPERATOR(name, inputs, outputs, ...) \
  {#name, inputs, outputs, Make##name},
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
  auto op = entry->make(spec);
  if (!op.ok()) return Annotate(op.status(), Describe(*spec.node));
  return op;
}

}  // namespace syncline::worker
