#include "worker/training/step_profiler.h"

#include "absl/algorithm/container.h"
#include "common/job/profile_limits.h"
#include "common/system/log.h"

namespace syncline::worker {

StepProfiler::StepProfiler(const PreparedJob& job,
                           const std::atomic<bool>* stop, OnProfile on_profile)
    : job_(job), stop_(*stop), on_profile_(std::move(on_profile)) {}

void StepProfiler::Request(const ProfileSteps& request) {
  MutexLock lock(&mu_);
  // The scheduler repeats it after a broken stream, until it is stored.
  if (Has(request.artifact())) return;
  if (requests_.size() == kProfilesPerWorkerMax) {
    LogWarning("too many profiles are wanted")
        .Job(request.job_id())
        .Field("dropped", request.artifact());
    return;
  }
  requests_.push_back(request);
  wanted_.store(true);
}

bool StepProfiler::Has(const std::string& artifact) const {
  return delivering_ == artifact ||
         absl::c_any_of(requests_,
                        [&](const ProfileSteps& request) {
                          return request.artifact() == artifact;
                        }) ||
         absl::c_any_of(recorded_, [&](const auto& recorded) {
           return recorded.first == artifact;
         });
}

void StepProfiler::BeginStep(int64_t clock) {
  if (!recorder_.has_value() && wanted_.load()) {
    MutexLock lock(&mu_);
    recorder_.emplace(requests_.front().steps());
    job_.executor->UseRecorder(&*recorder_);
  }
  if (recorder_.has_value()) recorder_->BeginStep(clock);
}

void StepProfiler::Record(std::initializer_list<StepRecorder::Timed> sequence) {
  if (recorder_.has_value()) recorder_->AddLast(sequence);
}

void StepProfiler::EndStep(uint64_t samples) {
  if (!recorder_.has_value()) return;
  recorder_->EndStep(samples);
  if (recorder_->done()) Finish();
}

void StepProfiler::Finish() {
  if (!recorder_.has_value()) return;
  job_.executor->UseRecorder(nullptr);
  StepProfile profile = recorder_->profile();
  recorder_.reset();
  profile.set_job_id(job_.assignment.job_id());
  profile.set_task(job_.task_name());
  profile.set_rank(job_.rank);
  profile.set_threads(static_cast<uint32_t>(job_.threads));
  MutexLock lock(&mu_);
  if (profile.steps_size() > 0) {
    recorded_.emplace_back(requests_.front().artifact(), std::move(profile));
  }
  requests_.pop_front();
  wanted_.store(!requests_.empty());
}

bool StepProfiler::Deliver() {
  std::pair<std::string, StepProfile> oldest;
  {
    MutexLock lock(&mu_);
    if (stop_.load() || recorded_.empty()) return false;
    oldest = std::move(recorded_.front());
    recorded_.pop_front();
    delivering_ = oldest.first;
  }
  on_profile_(oldest.first, oldest.second);
  MutexLock lock(&mu_);
  delivering_.clear();
  return true;
}

}  // namespace syncline::worker
