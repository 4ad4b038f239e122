#ifndef SYNCLINE_SERVER_SHARD_STEP_BATCH_H_
#define SYNCLINE_SERVER_SHARD_STEP_BATCH_H_

#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "server/consistency/consistency_controller.h"
#include "server/shard/call_rows.h"
#include "server/shard/lane_executor.h"

namespace syncline::ps {

// The effects of one event on a shard, before they are carried out: the steps
// of each lane, in order, and the calls that end without any lane's work.
// Thread-compatible.
class StepBatch {
 public:
  using Callback = absl::AnyInvocable<void()>;

  // `lanes`: their number, at least one.
  explicit StepBatch(int lanes) : lanes_(lanes) {}

  void Add(int lane, LaneStep step) { lanes_[lane].push_back(std::move(step)); }
  // A step for the rows of a table's slot: `ranks` are those of each worker.
  // If the lane's last step is the same action on the rows right before these,
  // that step is extended instead.
  void AddRows(int lane, const ShardAction& action,
               std::vector<CallRowSpan> ranks);
  // Runs `then` when all steps that the batch has so far have run; with the
  // callbacks if it has none.
  void AfterSteps(Callback then);
  // Runs `then` when every lane has run its steps so far, also those of earlier
  // batches.
  void AfterAllLanes(Callback then);
  // Runs `visit` on every lane, after the lane's steps so far, also those of
  // earlier batches.
  void VisitLanes(LaneVisit visit);
  // Ends a call with `status` and without values.
  void End(PullReading::Done done, absl::Status status) {
    ended_.push_back({std::move(done), std::move(status)});
  }

  const std::vector<std::vector<LaneStep>>& lanes() const { return lanes_; }
  bool empty(int lane) const { return lanes_[lane].empty(); }
  // The lane's steps; it has none afterwards.
  std::vector<LaneStep> TakeSteps(int lane) {
    return std::exchange(lanes_[lane], {});
  }
  // Calls what End was given, in order. Not under a lock.
  void RunCallbacks();

 private:
  struct Ended {
    PullReading::Done done;
    absl::Status status;
  };

  void AddCountdown(Callback then, bool all_lanes);

  std::vector<std::vector<LaneStep>> lanes_;
  std::vector<Ended> ended_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_STEP_BATCH_H_
