#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/strided_copy.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeExpand(const OpSpec& spec) {
  const Dims& out = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const Dims fits,
                            BroadcastDims(spec.input(0).dims, out));
  if (fits != out) {
    return absl::InvalidArgumentError(
        absl::StrCat(DimsToString(spec.input(0).dims),
                     " cannot be repeated to ", DimsToString(out)));
  }
  return MakeRepeatedCopy(spec);
}

}  // namespace syncline::worker
