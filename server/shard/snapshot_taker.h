#ifndef SYNCLINE_SERVER_SHARD_SNAPSHOT_TAKER_H_
#define SYNCLINE_SERVER_SHARD_SNAPSHOT_TAKER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/cuts/cut_use.h"
#include "server/consistency/controller_state.h"
#include "server/consistency/shard_call.h"

namespace syncline::ps {

// Takes the state of one job's shard as of its cuts. The calls on lanes come in
// the lanes' order: between the steps that the cut includes and those that it
// does not. A later step of a lane waits while that lane's call runs, so a call
// copies, or marks what is to be copied before it changes (OnWrite).
//
// A cut may be withdrawn after it was passed on some shards, and announced
// again at later clocks and with another id. Whoever reads snapshots reads
// those of the agreed id.
class SnapshotTaker {
 public:
  virtual ~SnapshotTaker() = default;

  // OK if such a cut may be announced now. Its announcer is told an error.
  // FailedPrecondition: a later try is worth it. Unavailable: nobody knows when
  // one will be, so the cut is to be left out.
  virtual absl::Status CheckAnnouncement(uint64_t /*cut_id*/, CutUse /*use*/) {
    return absl::OkStatus();
  }
  // The shard has passed the cut: before OnSnapshot on any lane, under the
  // shard's lock, so it must not block. `state` is the controller's there.
  virtual void OnCutPassed(uint64_t /*cut_id*/, CutUse /*use*/,
                           absl::Span<const int64_t> /*clocks*/,
                           const ControllerState& /*state*/,
                           int64_t /*total_clocks*/) {}
  // On each lane once; lanes run at the same time. The lane's blocks and slots
  // have exactly the pushes below `clocks`, by rank.
  virtual void OnSnapshot(uint64_t cut_id, absl::Span<const int64_t> clocks,
                          int lane) = 0;
  // After OnSnapshot has returned on every lane, on one of their threads.
  virtual void OnSnapshotDone(uint64_t cut_id) = 0;
  // The block's lane is about to change values or optimizer state of a dense
  // block. For each such step, so it must be cheap without a snapshot.
  virtual void OnWrite(BlockIndex /*block*/) {}
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_SNAPSHOT_TAKER_H_
