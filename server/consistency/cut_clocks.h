#ifndef SYNCLINE_SERVER_CONSISTENCY_CUT_CLOCKS_H_
#define SYNCLINE_SERVER_CONSISTENCY_CUT_CLOCKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/regime/regime_schedule.h"
#include "server/consistency/consistency_options.h"
#include "server/consistency/push_ledger.h"

namespace syncline::ps {

// By rank: the smallest clocks, none below `clocks`, at which the workers can
// still be cut here, as close to each other as the regimes allow.
std::vector<int64_t> SmallestCutClocks(const RegimeSchedule& regimes,
                                       absl::Span<const PushLedger> workers,
                                       absl::Span<const int64_t> clocks);

// True if a cut at these clocks, which is announced, can be reached under these
// regimes: no worker that is held at its clock keeps another one from its own.
bool AllowsCut(const RegimeSchedule& regimes,
               absl::Span<const PushLedger> workers,
               absl::Span<const int64_t> clocks);

// OK if these can be the clocks of a cut at all, wherever the workers are: one
// of each worker, from 0 to kCutClockMax. To be asked before anything else is.
// Errors: InvalidArgument.
absl::Status CheckCutForm(const ConsistencyOptions& options,
                          absl::Span<const int64_t> clocks);

// OK if a cut at these clocks, one of each worker, may be announced: no worker
// is past it, and no worker that is held at its clock keeps another one from
// reaching its own. Errors: InvalidArgument: as CheckCutForm; OutOfRange: a
// worker is past the cut, or the clocks are further apart than the consistency
// mode allows; the message has the smallest clocks that are possible.
absl::Status CheckCutClocks(const ConsistencyOptions& options,
                            absl::Span<const PushLedger> workers,
                            absl::Span<const int64_t> clocks);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_CUT_CLOCKS_H_
