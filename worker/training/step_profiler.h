#ifndef SYNCLINE_WORKER_TRAINING_STEP_PROFILER_H_
#define SYNCLINE_WORKER_TRAINING_STEP_PROFILER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "proto/profile.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/compute/step_recorder.h"
#include "worker/job/prepared_job.h"

namespace syncline::worker {

// The profiles that the scheduler asks one trainer for: queued, recorded over
// the trainer's next steps, one profile at a time, and delivered.
//
// Request may come from any thread. The training thread records. Deliver blocks
// and has a thread of its own, so that recording never waits for an upload.
class StepProfiler {
 public:
  using OnProfile =
      std::function<void(const std::string& name, const StepProfile&)>;

  // `job` and `stop` outlive this. `on_profile` may block.
  StepProfiler(const PreparedJob& job, const std::atomic<bool>* stop,
               OnProfile on_profile);

  // Records the next steps, once those that were asked for before are done. The
  // scheduler asks for kProfilesPerWorkerMax at most; others are dropped.
  void Request(const ProfileSteps& request) ABSL_LOCKS_EXCLUDED(mu_);

  // Around a step.
  void BeginStep(int64_t clock) ABSL_LOCKS_EXCLUDED(mu_);
  void EndStep(uint64_t samples) ABSL_LOCKS_EXCLUDED(mu_);
  // Records intervals that ended just now, one after the other.
  void Record(std::initializer_list<StepRecorder::Timed> sequence);
  // Null: nothing is recorded now.
  StepRecorder* recorder() {
    return recorder_.has_value() ? &*recorder_ : nullptr;
  }
  // No step comes any more, or enough have been recorded: queues the profile
  // for delivery, if it has a step.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);

  // Hands the oldest recorded profile to `on_profile`. False: there is none, or
  // the trainer is stopped and delivers none. One at a time, so that
  // progress reports of the same thread need not wait for all.
  bool Deliver() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The profile is wanted, recorded, or being delivered.
  bool Has(const std::string& artifact) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const PreparedJob& job_;
  const std::atomic<bool>& stop_;
  const OnProfile on_profile_;
  std::optional<StepRecorder> recorder_;  // of requests_.front()
  std::atomic<bool> wanted_{false};       // requests_ is not empty
  Mutex mu_;
  std::deque<ProfileSteps> requests_ ABSL_GUARDED_BY(mu_);
  std::deque<std::pair<std::string, StepProfile>> recorded_
      ABSL_GUARDED_BY(mu_);                      // by name
  std::string delivering_ ABSL_GUARDED_BY(mu_);  // its name; empty: none
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_STEP_PROFILER_H_
