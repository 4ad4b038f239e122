#ifndef SYNCLINE_SERVER_CONSISTENCY_WAIT_REASONS_H_
#define SYNCLINE_SERVER_CONSISTENCY_WAIT_REASONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/consistency/caller_activities.h"
#include "server/consistency/consistency_options.h"
#include "server/consistency/cut_schedule.h"
#include "server/consistency/push_ledger.h"
#include "server/consistency/shard_call.h"
#include "server/consistency/sync_clock.h"

namespace syncline::ps {

// Says what a parked call waits for: which workers are missing, how far each of
// them is, and what it reported last. A view of a controller's state, for the
// duration of one event.
class WaitReasons {
 public:
  struct Lost {
    uint32_t rank = 0;
    bool settled = false;  // it is known which of its clocks the chief makes
  };
  // `in_sync`: the clocks that the shard takes now are SYNC's.
  // `initial_values_text`: which initial values are missing; empty: none.
  // `lost`: workers that cuts alone wait for: the chief makes their clocks,
  // once the scheduler has said which.
  WaitReasons(const ConsistencyOptions& options,
              absl::Span<const PushLedger> workers, const CutSchedule& cuts,
              const SyncClock& sync, bool in_sync,
              const CallerActivities& activities,
              std::string initial_values_text, std::vector<Lost> lost)
      : options_(options),
        workers_(workers),
        cuts_(cuts),
        sync_(sync),
        in_sync_(in_sync),
        activities_(activities),
        initial_values_text_(std::move(initial_values_text)),
        lost_(std::move(lost)) {}

  // DeadlineExceeded: the parked push, or the parked pull, of this call has run
  // out of time.
  absl::Status OverduePush(const ShardCall& call) const;
  absl::Status OverduePull(const ShardCall& call) const;

 private:
  std::string OfPush(const ShardCall& call) const;
  std::string OfPull(const ShardCall& call) const;
  // The open clock, which ends without the last workers.
  std::string OfSet() const;
  // The workers that have to come to the cut, or the member that has to end it.
  std::string OfCut(const CutSchedule::Cut& cut) const;
  absl::Status Overdue(const ShardCall& call, absl::string_view what,
                       int64_t clock, const std::string& why) const;
  // The active workers that lack something, and how far they are.
  std::string Missing(const std::function<bool(uint32_t rank)>& lacks) const;
  std::string Standing(uint32_t rank) const;
  // Null: the worker is not lost.
  const Lost* FindLost(uint32_t rank) const;
  // The job's evaluator ends it; else the chief does.
  bool IsEvaluators(const CutSchedule::Cut& cut) const;
  // The participant that ends the cut, and its last report.
  std::string CutterText(const CutSchedule::Cut& cut) const;
  std::string ActivityText(uint32_t rank) const;

  const ConsistencyOptions& options_;
  const absl::Span<const PushLedger> workers_;  // by rank
  const CutSchedule& cuts_;
  const SyncClock& sync_;
  const bool in_sync_;
  const CallerActivities& activities_;
  const std::string initial_values_text_;
  const std::vector<Lost> lost_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_WAIT_REASONS_H_
