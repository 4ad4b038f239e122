#include "scheduler/single_job.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/exit_codes.h"
#include "common/base/status_macros.h"
#include "common/job/evaluation_values.h"
#include "common/job/skipped_text.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace syncline::scheduler {
namespace {

constexpr int kAttemptsMax = 1000;
// Scheduler::Options::model_bytes_max is the limit that counts.
constexpr uint64_t kModelBytesMax = 8ull << 30;
constexpr absl::Duration kLook = absl::Milliseconds(500);
constexpr absl::Duration kDaemonsLeave = absl::Seconds(8);
// Daemons that have started look for their scheduler every two seconds or so.
constexpr absl::Duration kDaemonsCome = absl::Seconds(10);

bool IsFinal(const JobStatus& status) {
  return status.state() == SUCCEEDED || status.state() == FAILED ||
         status.state() == CANCELLED;
}

// The same for the same job, whatever files it is read from. `weights`: the
// content of start.weights; empty: it has none.
std::string ContentKey(const JobSpec& spec, absl::string_view model,
                       absl::string_view weights) {
  std::string text;
  {
    google::protobuf::io::StringOutputStream stream(&text);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  return absl::StrCat(
      "job-", absl::Hex(Crc32c(text), absl::kZeroPad8), "-", text.size(), "-",
      absl::Hex(Crc32c(model), absl::kZeroPad8), "-", model.size(),
      weights.empty()
          ? ""
          : absl::StrCat("-", absl::Hex(Crc32c(weights), absl::kZeroPad8), "-",
                         weights.size()));
}

// The scheduler logs states, and the chief logs evaluations. This object logs
// what a queued job waits for, and the outcome.
void LogWaiting(const JobStatus& status, std::string* said) {
  if (status.state() != QUEUED || status.waiting_for() == *said) return;
  *said = status.waiting_for();
  LogInfo("the job waits").Job(status.job_id()).Field("for", *said);
}

void LogOutcome(const JobStatus& status, const std::string& files) {
  LogInfo line("the job is over");
  const std::string skipped = SkippedText(status);
  if (IsHardlyTrained(status)) {
    LogWarning("the model is hardly trained")
        .Job(status.job_id())
        .Field("why", skipped);
  } else if (!skipped.empty()) {
    line.Field("skipped", skipped);
  }
  line.Job(status.job_id())
      .Field("state", JobState_Name(status.state()))
      .Field("exit_code", status.exit_code())
      .Field("files", files);
  if (status.evaluations().empty()) return;
  const Evaluation& last = *status.evaluations().rbegin();
  line.Field("loss", last.loss());
  for (const EvaluationValue& metric : EvaluationValues(last)) {
    line.Field(metric.field, metric.value);
  }
}

}  // namespace

SingleJob::SingleJob(Scheduler* scheduler, absl::StatusOr<ctl::JobFile> job,
                     std::optional<int> members,
                     std::function<void(int exit_code)> done)
    : scheduler_(scheduler),
      job_(std::move(job)),
      members_(members),
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
  EndCluster(exit_code);
  done_(exit_code);
}

// After a job that ran, all members that it needed are there. A bad job is
// known before any member has come: a member that is not told now would look
// for a scheduler for minutes.
void SingleJob::EndCluster(int exit_code) {
  if (found_ == Found::kRuns) {
    scheduler_->ShutdownCluster(exit_code, "the job of --job is over",
                                /*members=*/0, MonotonicNow() + kDaemonsLeave);
  } else {
    scheduler_->ShutdownCluster(
        exit_code,
        found_ == Found::kWasOver
            ? "the job of --job has run before and is over"
            : "the job of --job was not taken",
        members_.value_or(std::numeric_limits<int>::max()),
        MonotonicNow() + kDaemonsCome);
  }
}

int SingleJob::SubmitAndFollow() {
  if (!job_.ok()) return kExitFailed;  // the owner has said why
  auto job_id = Submit();
  if (job_id.ok()) {
    const int exit_code = Follow(*job_id);
    int told_to_stop = 0;
    if (!taken_up_ || exit_code != kExitRetryable || Abandoned(&told_to_stop)) {
      return exit_code;
    }
    // It ran when this process started, with members that are no more, as where
    // a chief hosts the scheduler: as good as one that had failed before.
    job_id = Submit();
    if (job_id.ok()) return Follow(*job_id);
  }
  LogError("the job was not taken").Status(job_id.status());
  return kExitFailed;
}

absl::StatusOr<std::string> SingleJob::Submit() {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string model,
                            ReadFile(job_->model_file, kModelBytesMax));
  std::string weights;
  if (!job_->weights_file.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(weights,
                              ReadFile(job_->weights_file, kModelBytesMax));
  }
  const std::string content = ContentKey(job_->spec, model, weights);
  weights = {};
  for (int attempt = 1; attempt <= kAttemptsMax; ++attempt) {
    const auto submission = scheduler_->Submit(
        job_->spec, model, absl::StrCat(content, "/", attempt),
        job_->weights_file);
    // As good as impossible: another job with these checksums.
    if (absl::IsAlreadyExists(submission.status())) continue;
    SYNCLINE_RETURN_IF_ERROR(submission.status());
    if (!submission->repeated) {
      found_ = Found::kRuns;
      return submission->job_id;
    }
    const auto before = AwaitStatus(submission->job_id);
    const bool is_over = before.ok() && IsFinal(*before);
    if (is_over && before->exit_code() == kExitRetryable) continue;
    taken_up_ = before.ok() &&
                (before->state() == PREPARING || before->state() == RUNNING);
    found_ = is_over ? Found::kWasOver : Found::kRuns;
    LogWarning(is_over
                   ? "the job of --job has run before and is not run again; to "
                     "run it anew, use another --state-dir"
                   : "the job of --job is there already")
        .Job(submission->job_id);
    return submission->job_id;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the job was run ", kAttemptsMax,
                   " times and was worth a retry each "
                   "time; to run it anew, use another --state-dir"));
}

// A scheduler that waits for its disk gives no status for a while. A guess
// would follow a job that is over, and not run it again.
absl::StatusOr<JobStatus> SingleJob::AwaitStatus(const std::string& job_id) {
  int exit_code = 0;
  while (!Abandoned(&exit_code)) {
    auto status = scheduler_->WaitFor(job_id, MonotonicNow() + kLook);
    if (!absl::IsDeadlineExceeded(status.status())) return status;
  }
  return absl::CancelledError("the process is told to stop");
}

int SingleJob::Follow(const std::string& job_id) {
  std::string said;
  int exit_code = 0;
  while (!Abandoned(&exit_code)) {
    const auto status = scheduler_->WaitFor(job_id, MonotonicNow() + kLook);
    if (absl::IsDeadlineExceeded(status.status())) continue;
    if (!status.ok()) {
      LogError("the job is lost").Job(job_id).Status(status.status());
      return kExitFailed;
    }
    LogWaiting(*status, &said);
    if (!IsFinal(*status)) continue;
    LogOutcome(*status, scheduler_->FilesOf(job_id));
    return status->exit_code();
  }
  return exit_code;
}

}  // namespace syncline::scheduler
