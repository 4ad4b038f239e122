#ifndef SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_MARKS_H_
#define SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_MARKS_H_

#include <string>

#include "absl/status/status.h"

namespace syncline {

// Marks say that a checkpoint is not to be deleted by retention: empty files in
// its folder, beside its manifest. The evaluator of a job sets them, whoever
// makes and deletes the job's checkpoints looks at them. Retention that has
// looked just before may still delete it: a reader can lose its checkpoint. A
// user deletes it all the same. Each function may block for as long as the disk
// does.

enum class CheckpointMark {
  kBeingRead,  // "keep-being-read"
  kBest,       // "keep-best": of all evaluations so far
};

// Errors: the disk's by errno, naming the path.
absl::Status SetMark(const std::string& checkpoint, CheckpointMark mark);
// Fine if it is not there.
absl::Status ClearMark(const std::string& checkpoint, CheckpointMark mark);
// True if it has any.
bool IsMarked(const std::string& checkpoint);
// Clears those of all checkpoints in a job's folder, which an evaluator that
// was killed has left. A mark that cannot be cleared stays.
void ClearMarksOfJob(const std::string& job_folder);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_MARKS_H_
