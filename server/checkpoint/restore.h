#ifndef SYNCLINE_SERVER_CHECKPOINT_RESTORE_H_
#define SYNCLINE_SERVER_CHECKPOINT_RESTORE_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/system/memory_claim.h"
#include "proto/job.pb.h"
#include "server/shard/shard_start.h"

namespace syncline::ps {

// How the shards that the ps `ps_rank` opens begin with the checkpoint
// JobAssignment.start_from. Reads the manifest, and looks for the files that
// these shards need; their content is read when a shard is opened.
// Blocks as long as the disk does, but a disk that hangs (StartDiskWaitMax) is
// left behind, here and while a shard reads: Unavailable, with
// kUnseenCheckpoint.
// `go_on` is asked while the disk is waited for; its error ends the opening.
// May be null. It outlives the shards' opening. `own_dir` is the ps'
// --checkpoint-dir, or empty. Where each ps has a folder of its own,
// start_from.path is another's; the same checkpoint below `own_dir` is looked
// at first. REQUIRES: the assignment has start_from. Errors name the ps and the
// path:
//   NotFound            the folder or a file is not there, as this ps sees it;
//                       others by errno, where it cannot be read
//   DataLoss            the manifest or the size of a file is damaged
//   FailedPrecondition  it is not the checkpoint of start_from
//   InvalidArgument     of another model, or of a format of another version
absl::StatusOr<ShardStarts> StartsFromCheckpoint(
    const JobAssignment& assignment, uint32_t ps_rank,
    const GoOnCheck& go_on = nullptr, const std::string& own_dir = "");

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CHECKPOINT_RESTORE_H_
