#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/axes.h"
#include "worker/ops/scatter.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeScatterElements(const OpSpec& spec) {
  const Dims& data = spec.input(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis, ResolveAxis(spec.node->Int("axis", 0), data.size()));
  SYNCLINE_ASSIGN_OR_RETURN(IndexedShape shape,
                            ElementsAlong(data, spec.input(1).dims, axis));
  if (spec.input(2).dims != spec.input(1).dims) {
    return absl::InvalidArgumentError(absl::StrCat(
        "updates ", DimsToString(spec.input(2).dims),
        " are not of the indices' shape ", DimsToString(spec.input(1).dims)));
  }
  return MakeScatter(spec, std::move(shape));
}

}  // namespace syncline::worker
