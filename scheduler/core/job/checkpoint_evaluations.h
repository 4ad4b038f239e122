#ifndef SYNCLINE_SCHEDULER_CORE_JOB_CHECKPOINT_EVALUATIONS_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_CHECKPOINT_EVALUATIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace syncline::scheduler {

// Chooses which checkpoint the evaluator of one attempt scores next
// (EvaluateSpec.checkpoints). It scores one at a time. Where checkpoints come
// faster, the newest one that waits is next, and those before it are skipped;
// the last one of the job is never skipped, because none comes after it.
//
//   OnWhole -> waiting --Next--> under way --OnEvaluated, OnFailed--> nothing
//              | a newer one: skipped
//   OnWorkersDone: no more come; when nothing waits or is under way, the
//   evaluator is told to finish, once (Next without a path)
//
// Pure, thread-compatible.
class CheckpointEvaluations {
 public:
  // A checkpoint is whole. A repeat, or one that is no later than the last one,
  // changes nothing.
  void OnWhole(const CheckpointInfo& checkpoint);
  // The job has a checkpoint at `clock` that is evaluated already.
  void OnEvaluatedBefore(int64_t clock);
  // A checkpoint is gone. One that waits is skipped.
  void OnDeleted(const std::string& path);
  // The evaluator has scored the checkpoint in `path`, or could not, and why.
  // An answer about another one than what is under way counts as well: that
  // one does not wait any more.
  void OnEvaluated(const std::string& path);
  void OnFailed(const std::string& path, const std::string& why);
  // The workers are done: no checkpoint comes any more. `final_clock`: theirs,
  // whose values are the job's result.
  void OnWorkersDone(int64_t final_clock);

  // The checkpoint to tell the evaluator now; none: there is nothing to tell.
  // With an empty path the evaluator is to store its results and be done.
  std::optional<CheckpointInfo> Next();
  // The checkpoint that the evaluator was told last and has not answered, for a
  // stream that is new; none: it has answered.
  const std::optional<CheckpointInfo>& under_way() const { return under_way_; }
  // The evaluator was told to finish.
  bool finishing() const { return finish_told_; }

  // Sentences for people about the checkpoints that were skipped, or could not
  // be read, since the last call.
  std::vector<std::string> TakeNotes();

 private:
  void Skip(const CheckpointInfo& checkpoint, const std::string& why);
  void Forget(const std::string& path);

  std::optional<CheckpointInfo> waiting_;
  std::optional<CheckpointInfo> under_way_;
  int64_t last_clock_ = -1;  // of the latest that came
  bool workers_done_ = false;
  int64_t final_clock_ = 0;
  bool finish_told_ = false;
  std::vector<std::string> notes_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_CHECKPOINT_EVALUATIONS_H_
