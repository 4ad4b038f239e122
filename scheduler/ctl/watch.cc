#include "scheduler/ctl/watch.h"

#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/job/blame_text.h"
#include "common/job/quorum_validator.h"
#include "common/job/skipped_text.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/job_text.h"
#include "scheduler/ctl/text/progress_view.h"

namespace syncline::ctl {

absl::StatusOr<JobStatus> WatchOnConsole(JobsClient* client,
                                         const std::string& job_id,
                                         const Console& console,
                                         InterruptSignals* interrupts,
                                         const OnIdle& on_idle) {
  using Style = ProgressView::Style;
  ProgressView view(console.json   ? Style::kJson
                    : console.live ? Style::kLive
                                   : Style::kLines,
                    console.width);
  JobStatus latest;
  JobsClient::WatchOptions options;
  options.on_status = [&](const JobStatus& job) {
    latest = job;
    console.PrintLive(view.Update(job, absl::Now()));
  };
  options.on_silence = [&](absl::Duration silence) {
    console.PrintLive(view.Silence(silence));
  };
  options.on_idle = [&] { return on_idle(latest); };
  absl::StatusOr<JobStatus> end = client->Watch(job_id, options, interrupts);
  console.PrintLive(view.Finish());
  return end;
}

namespace {

void PrintSkipped(const JobStatus& job, const Console& console) {
  const std::string skipped = SkippedText(job);
  if (skipped.empty()) return;
  if (IsHardlyTrained(job)) {
    console.err << "WARNING: " << skipped << "." << std::endl;
  } else {
    console.out << "  " << skipped << std::endl;
  }
}

// Prints the workers that were left behind, and the cost of that.
void PrintLeftBehind(const JobStatus& job, std::ostream& out) {
  if (!LeavesBehind(job.spec().consistency().mode())) return;
  constexpr size_t kLinesMax = 8;
  for (const std::string& line : BlameLines(job, kLinesMax)) {
    out << "  " << line << std::endl;
  }
}

void PrintReason(const JobStatus& job, std::ostream& out) {
  out << "  " << absl::StrReplaceAll(ReasonText(job), {{"\n", "\n  "}})
      << std::endl;
}

// Not all of its steps were made, or some of its files were not stored: more to
// say than that it is done.
bool HasMoreToSay(const JobStatus& job) {
  return job.progress().clock() < job.progress().clocks_total() ||
         absl::StrContains(ReasonText(job), '\n');
}

}  // namespace

int PrintOutcome(const JobStatus& job, const Console& console) {
  const int code = ExitCodeOf(job);
  if (console.json) return code;
  const std::string name =
      absl::StrCat("job ", job.job_id(), " (", job.spec().name(), ")");
  const std::string after =
      absl::StrCat(" after ", FormatElapsed(JobAge(job, absl::Now())));
  if (job.state() == SUCCEEDED) {
    console.out << name << " succeeded" << after << std::endl;
    if (!job.evaluations().empty()) {
      console.out << "  "
                  << EvaluationText(*job.evaluations().rbegin(), job.spec())
                  << std::endl;
    }
    if (HasMoreToSay(job)) PrintReason(job, console.out);
    PrintSkipped(job, console);
    PrintLeftBehind(job, console.out);
    return code;
  }
  const char* what = job.state() == CANCELLED ? " was cancelled" : " failed";
  console.err << name << what << after << ":\n";
  PrintReason(job, console.err);
  PrintSkipped(job, console);
  PrintLeftBehind(job, console.err);
  if (!job.trace_id().empty()) {
    console.err << "  trace=" << job.trace_id() << " (synctl logs "
                << job.job_id() << ")" << std::endl;
  }
  if (code == kExitRetryable) {
    console.err << "  The job itself is not at fault; it may be submitted "
                   "again (exit code "
                << kExitRetryable << ")." << std::endl;
  }
  return code;
}

}  // namespace syncline::ctl
