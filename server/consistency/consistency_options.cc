#include "server/consistency/consistency_options.h"

#include "absl/strings/str_cat.h"
#include "common/base/incarnation.h"

namespace syncline::ps {

absl::Status ConsistencyOptions::CheckCaller(uint32_t rank,
                                             uint64_t incarnation) const {
  if (rank >= caller_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": rank ", rank, " calls, the job has ranks 0 to ",
                     caller_count() - 1));
  }
  if (incarnation != caller(rank).incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat(label, ": incarnation ", IncarnationText(incarnation),
                     " of ", caller(rank).name, " was replaced by ",
                     IncarnationText(caller(rank).incarnation)));
  }
  return absl::OkStatus();
}

}  // namespace syncline::ps
