#ifndef SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_SEARCH_H_
#define SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_SEARCH_H_

// Finds a job's other checkpoints where the one is gone that an attempt is
// to start from: retention has deleted it, for later ones that the scheduler
// does not know, since it was away or its state is an old one. Blocks for as
// long as the disk does. REQUIRES of all: the assignment has start_from.
//
// `own_dir` is a ps' --checkpoint-dir. It counts where the job has no
// checkpoint.directory, and may be empty. What is called of the disk is added
// to *calls, which may be null.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/system/disk_thread.h"
#include "proto/job.pb.h"

namespace syncline {

// Of more, those that were made last.
inline constexpr size_t kFoundCheckpointsMax = 100;

// Whole checkpoints of the assignment's job and model in the folder where
// start_from should be, by attempt and then clock. Empty: it is the first
// attempt, whose checkpoint is another job's; or start_from is there. Where
// each ps has a folder of its own some may still have start_from: there each
// says what it has.
std::vector<FoundCheckpoint> FindInsteadOfStart(const JobAssignment& assignment,
                                                const std::string& own_dir,
                                                DiskCalls* calls = nullptr);

// FindInsteadOfStart behind the look at start_from that has ended with
// `opened`, with the disk watched as that look's is: one that makes a call for
// StartDiskWaitMax is left behind. `go_on` is asked meanwhile; may be null.
// Empty, too: the disk hangs here, or has hung while start_from was looked at
// (Unavailable, or Cancelled since nobody waited any longer); or `go_on` says
// no.
std::vector<FoundCheckpoint> FindInsteadOfOpened(
    const JobAssignment& assignment, const std::string& own_dir,
    const absl::Status& opened, const std::function<absl::Status()>& go_on);

// `status`, of reading start_from's manifest, as WithFileTrouble has it; with
// kDeletedCheckpoint, and what is there instead, if it is NotFound and the
// folder of the checkpoint's job is there.
absl::Status WithManifestTrouble(const absl::Status& status,
                                 const JobAssignment& assignment,
                                 const std::string& own_dir,
                                 DiskCalls* calls = nullptr);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_SEARCH_H_
