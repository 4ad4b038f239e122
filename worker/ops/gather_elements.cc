#include "common/base/status_macros.h"
#include "worker/ops/axes.h"
#include "worker/ops/indexed.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeGatherElements(const OpSpec& spec) {
  const Dims& data = spec.input(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis, ResolveAxis(spec.node->Int("axis", 0), data.size()));
  SYNCLINE_ASSIGN_OR_RETURN(IndexedShape shape,
                            ElementsAlong(data, spec.input(1).dims, axis));
  return MakeIndexed(spec, std::move(shape));
}

}  // namespace syncline::worker
