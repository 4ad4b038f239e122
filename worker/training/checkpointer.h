#ifndef SYNCLINE_WORKER_TRAINING_CHECKPOINTER_H_
#define SYNCLINE_WORKER_TRAINING_CHECKPOINTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/checkpoint/manifest.h"
#include "common/job/evaluate_validator.h"
#include "common/system/periodic_task.h"
#include "proto/job.pb.h"
#include "worker/data/epochs.h"
#include "worker/exchange/checkpoint_writing.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/job/prepared_job.h"
#include "worker/training/checkpoint_policy.h"

namespace syncline::worker {

// Has a job's checkpoints made: the chief's part of it, around its steps.
//
//   BeforeStep(c)  a checkpoint is due: a cut is announced before the next step
//   step c
//   AfterStep      at the cut: waits until all ranks have reached it, and ends
//                  it, so that they go on
//   a thread       waits for the disks of the ps, and has the manifest written
//
// In SYNC the cut is where it was asked for: it is announced before any rank
// can be past it. In the other modes ranks are cut where they are, and the
// clocks of the cut differ.
//
// Where checkpoints are evaluated (EvaluateSpec), the values behind the last
// clock are always one: they are the job's result. The last step waits for a
// checkpoint that is still written.
//
// One checkpoint is made at a time. A checkpoint that fails is told with its
// reason, and the job goes on; the next is tried when it is due. One thread,
// but for Cancel.
class Checkpointer {
 public:
  static constexpr absl::Duration kSaveMax = absl::Seconds(60);
  // Often enough for a scheduler that waits for the member to leave the job.
  static constexpr absl::Duration kSayPeriod = absl::Seconds(2);

  struct Options {
    uint32_t model_crc32c = 0;
    // A checkpoint is whole; others were deleted for it. On another thread.
    std::function<void(const CheckpointInfo& whole,
                       const std::vector<std::string>& deleted)>
        on_whole;
    // A checkpoint was not made, in words. On any thread.
    std::function<void(const std::string& why)> on_trouble;
    // A checkpoint that Request asked for was not made, in words. On any
    // thread; may be null.
    std::function<void(const std::string& why)> on_refused = nullptr;
    // SaveAlone goes on, in words (kSavesAlone), each kSayPeriod. On another
    // thread; may be null.
    std::function<void(const std::string& what)> on_saving = nullptr;
  };
  using LossScale = CheckpointManifest::LossScale;

  // The objects that are referred to outlive this. Of a job that asks for no
  // checkpoint, or that begins after its last clock, none is made.
  Checkpointer(const PreparedJob& job, const Epochs& epochs,
               ParameterExchange* parameters, Options options);
  ~Checkpointer();

  // `next`: this rank's step after step `clock`, clock + 1 but for leased data.
  // Blocks for a round trip where a checkpoint is due. Errors: those that end
  // the job.
  absl::Status BeforeStep(int64_t clock, int64_t next);
  // In place of BeforeStep, where another cut is in the way: a checkpoint that
  // every_clocks asks for here begins at the next BeforeStep.
  void PutOff(int64_t clock, int64_t next);
  // True if the steps before `clock`, all that this rank has made, reach the
  // cut that is announced.
  bool IsAtCut(int64_t clock) const {
    return open_.has_value() && clock >= open_->clocks[0];
  }
  // Some rank is cut after `clock`, an epoch's end that this rank is at: the
  // epoch's cut has to end before that rank can get there.
  bool IsBehind(int64_t clock) const;
  // A cut is announced that has not been written.
  bool IsOpen() const { return open_.has_value(); }
  // One is being written, behind its cut.
  bool IsBusy() const ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the cut is reached.
  absl::Status Await(int64_t clock);
  // Ends the cut that Await has waited for, and goes on with the checkpoint on
  // another thread. `loss_scale`: of all ranks; none: they have none, or
  // differ. Errors: those that end the job.
  absl::Status Write(int64_t clock, const std::optional<LossScale>& loss_scale);

  // One more checkpoint is made, before the next step at which that is
  // possible, whenever the next one is due. Several requests before that are
  // one. The answer is on_whole or on_refused. Thread-safe.
  void Request() ABSL_LOCKS_EXCLUDED(mu_);
  // Request has asked for a checkpoint that has not begun.
  bool IsRequested() const ABSL_LOCKS_EXCLUDED(mu_);
  // No step follows: requests that are not met by a cut that is reached, and
  // later ones, are refused.
  void EndSteps() ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until no checkpoint is being written, eight step timeouts, or 8 s,
  // at most: one that takes longer is given up, and told. An announced cut that
  // is not reached is given up.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);
  // After the training has failed: gives up what is being written, and saves
  // what this rank has of the job by itself, if that is more than the last
  // checkpoint has (ParameterExchange::OwnClock). A job that goes back then
  // loses no step that was applied. Blocks while the file is written, at most
  // kSaveMax.
  void SaveAlone() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends SaveAlone, now or later. Thread-safe.
  void EndSaving() ABSL_LOCKS_EXCLUDED(mu_);
  // Gives up what is being written, now and later. Thread-safe.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A cut that is announced.
  struct OpenCut {
    uint64_t id = 0;
    std::vector<int64_t> clocks;  // by rank
    absl::Time begun;
    bool requested = false;
  };
  // A checkpoint that the shards are writing.
  struct Written {
    std::shared_ptr<CheckpointWriting> writing;
    CheckpointParts parts;
    absl::Time begun;
    bool requested = false;
  };

  // Until no checkpoint is being written, at most half a step timeout: the
  // other ranks wait meanwhile.
  void AwaitWritten() ABSL_LOCKS_EXCLUDED(mu_);
  // True once for all requests that there are.
  bool TakeRequest() ABSL_LOCKS_EXCLUDED(mu_);
  void Refuse(const std::string& why) const;
  absl::Status Begin(int64_t clock);
  std::vector<int64_t> ClocksToAskFor(int64_t clock) const;
  // The checkpoint at `clock` is the job's result, which is evaluated.
  bool IsResult(int64_t clock) const {
    return EvaluatesCheckpoints(job_.spec()) && clock == epochs_.clocks_total;
  }
  // The thread's work: makes the checkpoint whole that was written.
  void WriteNext() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status MakeWhole(Written* written);
  // Parts of all checkpoints of the job.
  CheckpointParts PartsOf(const CheckpointWriting& writing) const;
  void Fail(int64_t clock, bool requested, const absl::Status& why);
  std::string Name(int64_t clock) const;

  const PreparedJob& job_;
  const Epochs epochs_;
  ParameterExchange* const parameters_;
  const Options options_;
  CheckpointPolicy policy_;
  std::optional<OpenCut> open_;
  bool put_off_ = false;  // and not begun yet
  absl::Time next_log_ = absl::InfinitePast();

  mutable Mutex mu_;
  CondVar idle_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool requested_ ABSL_GUARDED_BY(mu_) = false;  // and not begun yet
  bool steps_ended_ ABSL_GUARDED_BY(mu_) = false;
  // From Write on, until it is whole or has failed.
  std::shared_ptr<Written> written_ ABSL_GUARDED_BY(mu_);
  int64_t whole_clock_ ABSL_GUARDED_BY(mu_) = -1;        // the last one's
  std::shared_ptr<Written> alone_ ABSL_GUARDED_BY(mu_);  // SaveAlone's
  bool saving_ended_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<PeriodicTask> thread_;  // last: it uses the rest
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_CHECKPOINTER_H_
