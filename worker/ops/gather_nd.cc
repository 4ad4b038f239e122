#include "common/base/status_macros.h"
#include "worker/ops/indexed.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeGatherND(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(IndexedShape shape,
                            PartsByTuple(spec.input(0).dims, spec.input(1).dims,
                                         spec.node->Int("batch_dims", 0)));
  return MakeIndexed(spec, std::move(shape));
}

}  // namespace syncline::worker
