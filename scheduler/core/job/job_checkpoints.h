#ifndef SYNCLINE_SCHEDULER_CORE_JOB_JOB_CHECKPOINTS_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_JOB_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// The checkpoints in a job's record, JobStatus.checkpoints: by clock, the
// oldest first, no two of one clock. Pure.

// The checkpoints that a record has at most; of more the oldest are left out.
inline constexpr int kCheckpointsMax = 250;

// The state that the next attempt of a job starts from.
struct StartPoint {
  int64_t clock = 0;                        // that it trains first
  std::optional<CheckpointInfo> from = {};  // none: the initial values
};

// The job's latest checkpoint; without one what the job itself starts from.
StartPoint NextStart(const JobStatus& job);
// The chief of a job by ALL_REDUCE has saved `checkpoint` by itself when a rank
// was lost, and the job's gradients were compressed before it: what the workers
// kept of them is not there.
bool LacksResiduals(const JobStatus& job, const CheckpointInfo& checkpoint);
// "from the checkpoint at clock 800", for people; where residuals of
// compression then begin anew, that too.
std::string StartText(const JobStatus& job);

// Takes over what the chief of an attempt says: a checkpoint that is whole, and
// those that were deleted for it. `attempt`: that chief's; 0: the present one.
// Of a path that is empty or too long, and of clocks below `first_clock`,
// nothing is taken. True if anything has changed.
bool TakeCheckpoint(const WorkerReport& report, int64_t first_clock,
                    JobStatus* job, uint32_t attempt = 0);

// The record's last checkpoint is damaged, as a ps says in `problems` with
// preparing the present attempt (kDamagedCheckpoint), all of them name its
// folder, and there is a checkpoint before it: leaves out the damaged one. True
// if so. A ps that does not see it, or has no room for it, is no reason.
bool DropDamaged(absl::Span<const std::string> problems, JobStatus* job);

// The checkpoints that all members have found which found any (found).
std::vector<FoundCheckpoint> FoundByAll(
    absl::Span<const std::vector<FoundCheckpoint>> lists);

// The record's last checkpoint, `start`'s, is not in its folder, where members
// have found these, by attempt and clock: takes over those that were made after
// it, with the regimes of the last one, and leaves out what is not there any
// more. False: there is no later one; nothing has changed.
bool TakeFound(absl::Span<const FoundCheckpoint> found, const StartPoint& start,
               absl::Time now, JobStatus* job);

// `problems` with preparing a later attempt than the first are all that a ps
// does not see its checkpoint (kUnseenCheckpoint, kDeletedCheckpoint),
// `start`'s: that may go away by itself. With the first it is more likely that
// the path is wrong.
bool IsUnseen(absl::Span<const std::string> problems, const StartPoint& start,
              const JobStatus& job);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_JOB_CHECKPOINTS_H_
