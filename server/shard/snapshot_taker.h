#ifndef SYNCLINE_SERVER_SHARD_SNAPSHOT_TAKER_H_
#define SYNCLINE_SERVER_SHARD_SNAPSHOT_TAKER_H_

#include <cstdint>

#include "absl/types/span.h"

namespace syncline::ps {

// Takes the state of one job's shard as of its cuts. The calls come in the
// lanes' order: between the steps that the cut includes and those that it does
// not. A later step of a lane waits while that lane's call runs, so a call
// copies, or marks what is to be copied before it changes, and does no I/O.
//
// A cut may be withdrawn after it was passed on some shards, and announced
// again at later clocks and with another id. Whoever reads snapshots reads
// those of the agreed id.
class SnapshotTaker {
 public:
  virtual ~SnapshotTaker() = default;

  // On each lane once; lanes run at the same time. The lane's blocks and slots
  // have exactly the pushes below `clocks`, by rank.
  virtual void OnSnapshot(uint64_t cut_id, absl::Span<const int64_t> clocks,
                          int lane) = 0;
  // After OnSnapshot has returned on every lane, on one of their threads.
  virtual void OnSnapshotDone(uint64_t cut_id) = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_SNAPSHOT_TAKER_H_
