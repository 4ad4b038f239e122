#ifndef SYNCLINE_COMMON_CHECKPOINT_RETENTION_H_
#define SYNCLINE_COMMON_CHECKPOINT_RETENTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/checkpoint/manifest.h"

namespace syncline {

// A folder of a job's checkpoints, as retention sees it.
struct KeptCheckpoint {
  CheckpointName name;
  // It has a whole manifest of this job. Else it is a leftover: its writer was
  // killed, or is at work.
  bool whole = false;
  // Its folder has a mark (checkpoint_marks.h).
  bool marked = false;
};

// Indices of those that are to be deleted now that `committed` is whole, oldest
// first: by cut_id, since clocks of machines differ. `committed` is of an
// attempt that began at start_clock. Those of earlier attempts behind that the
// job has gone back from: they may be damaged, and take nobody's place. Kept
// are:
//   - `committed`, and of those before it the keep_last - 1 that were made last
//   - of those that the job has gone back from, as many as keep_last would keep
//     of all together
//   - with keep_every > 0 the first one at or after each multiple of it
//   - those that are marked
//   - those of later cuts, by cut_id (common/cuts/cut_id.h: the attempt comes
//     first, modulo 4096): they may be being written, or are of a later attempt
//     while members of an earlier one are still alive
// REQUIRES: keep_last >= 1.
std::vector<size_t> ChooseDeleted(absl::Span<const KeptCheckpoint> all,
                                  const CheckpointName& committed,
                                  int64_t start_clock, uint32_t keep_last,
                                  uint64_t keep_every);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_RETENTION_H_
