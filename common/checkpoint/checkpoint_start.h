#ifndef SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_START_H_
#define SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_START_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace syncline {

// The checks of every member that begins with a checkpoint, and its error where
// it cannot. REQUIRES of all: the assignment has start_from.

// True if the attempt takes values alone from its checkpoint: the one that the
// job names with StartSpec.weights_only. A later attempt starts from one of the
// job's own.
bool TakesValuesOnly(const JobAssignment& assignment);

// For how long a member that begins with a checkpoint waits for one call of its
// disk, before it says that the disk hangs and does not begin: a minute, and
// the job's step timeout at most. To find a file and its size, or to read a
// manifest, is one call; a look at many files may take longer.
absl::Duration StartDiskWaitMax(const JobSpec& spec);

// OK if the manifest, whose file has this checksum, is that of start_from, and
// the job can take over its values at its clock. Errors: FailedPrecondition: it
// is another checkpoint; CheckSameModel's.
absl::Status CheckStart(const CheckpointManifest& manifest, uint32_t crc32c,
                        const JobAssignment& assignment);

// An error of a manifest or of a file, with kDamagedCheckpoint or
// kUnseenCheckpoint (common/job/checkpoint_trouble.h). Another version's format
// is no damage: all of the job's checkpoints may have it.
absl::Status WithFileTrouble(const absl::Status& status);

// `status`, with which the reading of the checkpoint's state has ended: with
// the checkpoint's path, and with kDamagedCheckpoint or kUnseenCheckpoint if it
// is DataLoss or Unavailable and does not say so.
absl::Status WithStartTrouble(const absl::Status& status,
                              const JobAssignment& assignment);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_START_H_
