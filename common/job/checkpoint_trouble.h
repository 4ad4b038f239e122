#ifndef SYNCLINE_COMMON_JOB_CHECKPOINT_TROUBLE_H_
#define SYNCLINE_COMMON_JOB_CHECKPOINT_TROUBLE_H_

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace syncline {

// Begins the activity by which a chief reports that a checkpoint was not made,
// and why. It waits for nothing: the job goes on. It stands in
// JobStatus.waiting_for until the next checkpoint is whole.
inline constexpr char kCheckpointTrouble[] = "no checkpoint: ";

// Begins the activity by which a chief that was told to leave an attempt says
// that it is writing a checkpoint of what it has; the clock follows. It may
// take longer than members have to leave.
inline constexpr char kSavesAlone[] =
    "saving what this worker has of the job, at clock ";

// MakeCutId's number, in CutSeries::kChief, of a checkpoint that a chief has
// saved by itself; its others have 0. The cut's id ends the folder's name.
inline constexpr uint32_t kSavedAloneCut = 1;

// Stand in a member's problem with preparing a job that starts from a
// checkpoint, behind the checkpoint's path, and say what may be done about it.
// Those members are its ps, or its workers where it has none.
// Damaged: it is of no use to any of them, now or later. The job goes back to
// the one before it.
inline constexpr char kDamagedCheckpoint[] =
    "the checkpoint is damaged, or another one";
// Unseen: this member does not get at it, as where the folder is not mounted.
// That says nothing of the checkpoint.
inline constexpr char kUnseenCheckpoint[] =
    "this member cannot see the checkpoint (is its folder mounted there?)";
// Deleted: behind the folder of the checkpoint's job, which the member sees,
// and before the checkpoint's clock. What may be done about it is the same, but
// for later ones that are there (FoundCheckpoint).
inline constexpr char kDeletedCheckpoint[] =
    " is there, but not the checkpoint of clock ";

// "waiting for TEXT", for people; a checkpoint that was not made is not waited
// for. `text`: JobStatus.waiting_for of a running job, not empty.
inline std::string WaitingForText(absl::string_view text) {
  return absl::StrCat(
      absl::StartsWith(text, kCheckpointTrouble) ? "" : "waiting for ", text);
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_CHECKPOINT_TROUBLE_H_
