#ifndef SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_COMMIT_H_
#define SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_COMMIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace syncline {

// The last step of a checkpoint, wherever a manifest of it is to be.
struct CheckpointCommit {
  std::string label;   // for messages
  std::string job_id;  // whose checkpoints these are
  std::string folder;  // of the job
  uint32_t shards = 1;
  // The one file that has to be there; empty: those of all shards.
  std::string own_file = {};
  int64_t start_clock = 0;  // of the job's attempt
  uint32_t keep_last = 2;
  uint64_t keep_every = 0;
};

struct CommittedCheckpoint {
  std::string path;                  // of its folder
  std::vector<std::string> deleted;  // older ones, by a repeat
};

// Writes the manifest `encoded` if it is not there, else deletes older
// checkpoints of the job (ChooseDeleted): so that nothing is deleted before the
// new one is whole everywhere, a committer calls it once more when it is.
// Blocks for as long as the disk does. Errors, with the label: DataLoss,
// InvalidArgument: not a manifest, or of another job; Unavailable: the disk, or
// a file is not there as its shard has written it; ResourceExhausted: the disk
// is full.
absl::StatusOr<CommittedCheckpoint> CommitCheckpoint(
    const CheckpointCommit& commit, const std::string& encoded);

// `error`, of a disk, as those who wait for a checkpoint are told it.
absl::Status AsCheckpointDiskError(const absl::Status& error);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_COMMIT_H_
