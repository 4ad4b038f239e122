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

// By rank: the smallest clock at which a worker can still be cut here.
std::vector<int64_t> SmallestCutClocks(absl::Span<const PushLedger> workers);

// True if a cut at these clocks, which is announced, can be reached under these
// regimes: no worker that is held at its clock keeps another one from its own.
bool AllowsCut(const RegimeSchedule& regimes,
               absl::Span<const PushLedger> workers,
               absl::Span<const int64_t> clocks);

// OK if a cut at these clocks, one of each worker, may be announced: no worker
// is past it, and no worker that is held at its clock keeps another one from
// reaching its own. Errors: InvalidArgument: not one clock of each worker, or
// they are further apart than the consistency mode allows; OutOfRange: a worker
// is past the cut; the message has the smallest clocks that are possible.
absl::Status CheckCutClocks(const ConsistencyOptions& options,
                            absl::Span<const PushLedger> workers,
                            absl::Span<const int64_t> clocks);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_CUT_CLOCKS_H_
