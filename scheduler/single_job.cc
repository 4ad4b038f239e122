#include "scheduler/single_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

constexpr int kExitFailed = 1;
// Scheduler::Options::model_bytes_max is the limit that counts.
constexpr uint64_t kModelBytesMax = 8ull << 30;
constexpr absl::Duration kLook = absl::Milliseconds(500);
constexpr absl::Duration kDaemonsLeave = absl::Seconds(8);

bool IsFinal(const JobStatus& status) {
  return status.state() == SUCCEEDED || status.state() == FAILED ||
         status.state() == CANCELLED;
}

std::string Reason(const JobStatus& status) {
  if (status.transitions().empty()) return "";
  return status.transitions().rbegin()->reason();
}

// Logs what changed between two looks.
class ProgressLog {
 public:
  void Update(const JobStatus& status) {
    if (status.state() != state_) {
      LogInfo("job")
          .Job(status.job_id())
          .Field("state", JobState_Name(status.state()))
          .Field("reason", Reason(status));
    }
    if (status.waiting_for() != waiting_for_ && status.state() == QUEUED) {
      LogInfo("job waits")
          .Job(status.job_id())
          .Field("for", status.waiting_for());
    }
    for (int i = evaluations_; i < status.evaluations_size(); ++i) {
      const Evaluation& e = status.evaluations(i);
      LogInfo("evaluation")
          .Job(status.job_id())
          .Field("epoch", e.epoch())
          .Field("loss", e.loss())
          .Field("accuracy", e.accuracy())
          .Field("final", e.final() ? 1 : 0);
    }
    state_ = status.state();
    waiting_for_ = status.waiting_for();
    evaluations_ = status.evaluations_size();
  }

 private:
  JobState state_ = JOB_STATE_UNSPECIFIED;
  std::string waiting_for_;
  int evaluations_ = 0;
};

}  // namespace

SingleJob::SingleJob(Scheduler* scheduler, JobFile job,
                     std::function<void(int exit_code)> done)
    : scheduler_(scheduler),
      job_(std::move(job)),
      done_(std::move(done)),
      thread_("single-job", 1) {
  const bool queued = thread_.TrySubmit([this] { Run(); });
  SYNCLINE_CHECK(queued);
}

SingleJob::~SingleJob() {
  Abandon(kExitFailed);
  thread_.Stop();
}

void SingleJob::Abandon(int exit_code) {
  MutexLock lock(&mu_);
  if (abandoned_with_ < 0) abandoned_with_ = exit_code;
}

bool SingleJob::Abandoned(int* exit_code) const {
  MutexLock lock(&mu_);
  if (abandoned_with_ < 0) return false;
  *exit_code = abandoned_with_;
  return true;
}

bool SingleJob::running() const {
  MutexLock lock(&mu_);
  return running_;
}

void SingleJob::Run() {
  const int exit_code = SubmitAndFollow();
  {
    MutexLock lock(&mu_);
    running_ = false;
  }
  scheduler_->ShutdownCluster(exit_code, "the job of --job is over",
                              absl::Now() + kDaemonsLeave);
  done_(exit_code);
}

int SingleJob::SubmitAndFollow() {
  const auto job_id = Submit();
  if (job_id.ok()) return Follow(*job_id);
  LogError("the job was not taken").Status(job_id.status());
  return kExitFailed;
}

absl::StatusOr<std::string> SingleJob::Submit() {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string model,
                            ReadFile(job_.model_file, kModelBytesMax));
  return scheduler_->Submit(job_.spec, model);
}

int SingleJob::Follow(const std::string& job_id) {
  ProgressLog progress;
  int exit_code = 0;
  while (!Abandoned(&exit_code)) {
    const auto status = scheduler_->WaitFor(job_id, absl::Now() + kLook);
    if (absl::IsDeadlineExceeded(status.status())) continue;
    if (!status.ok()) {
      LogError("the job is lost").Job(job_id).Status(status.status());
      return kExitFailed;
    }
    progress.Update(*status);
    if (IsFinal(*status)) return status->exit_code();
  }
  return exit_code;
}

}  // namespace syncline
