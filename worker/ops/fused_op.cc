#include "worker/ops/fused_op.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> CreateFusedOp(const OpSpec& spec) {
  const std::string kind = spec.node->String(kFusedKind, "");
  absl::StatusOr<std::unique_ptr<Op>> op =
      absl::UnimplementedError(absl::StrCat("no such kind: ", kind));
  if (kind == kFusedProduct) op = MakeFusedProduct(spec);
  if (kind == kFusedSumNorm) op = MakeFusedSumNorm(spec);
  if (!op.ok()) return Annotate(op.status(), Describe(*spec.node));
  return op;
}

}  // namespace syncline::worker
