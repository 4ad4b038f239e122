#include "scheduler/ctl/text/job_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/base/unsigned_nan.h"
#include "common/job/evaluation_values.h"
#include "common/job/skipped_text.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

std::string StateText(JobState state) {
  return absl::AsciiStrToLower(JobState_Name(state));
}

std::string TaskText(const Task& task) {
  return absl::StrCat(absl::AsciiStrToLower(TaskType_Name(task.type())), ":",
                      task.index());
}

// Cells under each other, two spaces apart, no space at the line's end.
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i],
                      std::string(widths[i] - row[i].size() + 2, ' '));
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

// "cuda:0 NVIDIA H200", "cpu"; nothing for what trains nothing.
std::string DeviceText(const Member& member) {
  const TaskType type = member.task().type();
  if (type != CHIEF && type != WORKER && type != EVALUATOR) return "";
  if (!member.has_gpu()) return "cpu";
  return absl::StrCat(member.gpu().name(), " ", member.gpu().model());
}

std::string WhoText(const char* title, const auto& participants) {
  std::string text;
  for (const Participant& participant : participants) {
    const Member& member = participant.member();
    absl::StrAppendFormat(
        &text, "%-9s %s at %s (%s, pid %d%s)\n", title, TaskText(member.task()),
        member.address(), member.hostname(), member.pid(),
        member.has_gpu() ? absl::StrCat(", ", DeviceText(member)) : "");
    title = "";
  }
  return text;
}

// All that a worker has reported of its time.
double TotalSeconds(const WorkerProgress& worker) {
  return worker.compute_seconds() + worker.push_seconds() +
         worker.wait_seconds() + worker.pull_seconds() + worker.data_seconds();
}

// A worker's progress, with the shares of its time in percent.
std::string WorkerText(const WorkerProgress& worker) {
  const double total = TotalSeconds(worker);
  const auto percent = [&](double seconds) {
    return total > 0 ? 100 * seconds / total : 0.0;
  };
  return absl::StrFormat(
      "          rank %d: step %s, %s samples/s; compute %.0f%%, push %.0f%%, "
      "wait %.0f%%, pull %.0f%%, data %.0f%%\n",
      worker.rank(), FormatCount(worker.clock()),
      FormatCount(std::llround(worker.samples_per_second())),
      percent(worker.compute_seconds()), percent(worker.push_seconds()),
      percent(worker.wait_seconds()), percent(worker.pull_seconds()),
      percent(worker.data_seconds()));
}

// The last interval of a job that has ended is its evaluation: what counts then
// is the whole of it.
JobProgress OverTheWholeJob(JobProgress progress) {
  double samples_per_second = 0;
  for (WorkerProgress& worker : *progress.mutable_workers()) {
    const double seconds = TotalSeconds(worker);
    if (seconds > 0) {
      worker.set_samples_per_second(static_cast<double>(worker.samples()) /
                                    seconds);
    }
    samples_per_second += worker.samples_per_second();
  }
  progress.set_samples_per_second(samples_per_second);
  progress.set_seconds_left(-1);
  return progress;
}

// "1,250/3,130"; the total is left out where it is not known.
std::string OutOf(uint64_t part, uint64_t total) {
  return total > 0 ? absl::StrCat(FormatCount(part), "/", FormatCount(total))
                   : FormatCount(part);
}

}  // namespace

std::string FormatCount(uint64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped.push_back(',');
    grouped.push_back(digits[i]);
  }
  return grouped;
}

std::string FormatAmount(uint64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  const char* unit = "KiB";
  for (const char* next : {"MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return absl::StrFormat("%.1f %s", value, unit);
}

std::string FormatElapsed(absl::Duration time) {
  const int64_t seconds = absl::ToInt64Seconds(time + absl::Milliseconds(500));
  if (seconds < 3600) {
    return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
  }
  return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60,
                         seconds % 60);
}

absl::Time ToTime(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) +
         absl::Nanoseconds(timestamp.nanos());
}

namespace {

// "  loss scale 65536"; "64 to 65536" where workers differ, as they may outside
// of SYNC. Empty: the job has none.
std::string LossScaleText(const JobProgress& progress) {
  double least = 0;
  double most = 0;
  for (const WorkerProgress& worker : progress.workers()) {
    if (worker.loss_scale() == 0) continue;  // before its first step
    least =
        least == 0 ? worker.loss_scale() : std::min(least, worker.loss_scale());
    most = std::max(most, worker.loss_scale());
  }
  if (least == 0) return "";
  std::string text = absl::StrFormat("  loss scale %.9g", least);
  if (most > least) absl::StrAppendFormat(&text, " to %.9g", most);
  return text;
}

}  // namespace

std::string ProgressText(const JobProgress& progress) {
  std::string text =
      absl::StrCat("epoch ", OutOf(progress.epoch(), progress.epochs_total()),
                   "  step ", OutOf(progress.clock(), progress.clocks_total()));
  if (progress.has_loss() && !std::isnan(progress.loss())) {
    absl::StrAppendFormat(&text, "  loss %.4f", progress.loss());
  }
  absl::StrAppend(&text, "  ",
                  FormatCount(std::llround(progress.samples_per_second())),
                  " samples/s");
  if (progress.seconds_left() >= 0) {
    absl::StrAppend(&text, "  ",
                    FormatElapsed(absl::Seconds(progress.seconds_left())),
                    " left");
  }
  absl::StrAppend(&text, LossScaleText(progress));
  if (progress.skipped_clocks() > 0) {
    absl::StrAppend(&text, "  ", FormatCount(progress.skipped_clocks()),
                    " skipped");
  }
  if (progress.dropped_blocks() > 0) {
    absl::StrAppend(&text, "  ", FormatCount(progress.dropped_blocks()),
                    " dropped");
  }
  return text;
}

std::string EvaluationText(const Evaluation& evaluation) {
  std::string text =
      absl::StrFormat("epoch %d: test loss %.4f", evaluation.epoch(),
                      UnsignedNan(evaluation.loss()));
  for (const EvaluationValue& metric : EvaluationValues(evaluation)) {
    if (metric.is_fraction) {
      absl::StrAppendFormat(&text, ", %s %.2f%%", metric.title,
                            UnsignedNan(100 * metric.value));
    } else {
      absl::StrAppendFormat(&text, ", %s %.4f", metric.title,
                            UnsignedNan(metric.value));
    }
  }
  return absl::StrCat(text, " (", FormatCount(evaluation.samples()),
                      " samples)");
}

std::string ReasonText(const JobStatus& job) {
  if (!job.waiting_for().empty()) {
    return job.state() == QUEUED
               ? job.waiting_for()
               : absl::StrCat("waiting for ", job.waiting_for());
  }
  return job.transitions().empty() ? "" : job.transitions().rbegin()->reason();
}

absl::Duration JobAge(const JobStatus& job, absl::Time now) {
  if (job.transitions().empty()) return absl::ZeroDuration();
  const absl::Time end =
      HasEnded(job.state()) ? ToTime(job.transitions().rbegin()->time()) : now;
  return end - ToTime(job.transitions(0).time());
}

std::string JobDetails(const JobStatus& job, absl::Time now) {
  std::string text = absl::StrFormat(
      "job       %s (%s)\nstate     %s, %s\n", job.job_id(), job.spec().name(),
      StateText(job.state()), FormatElapsed(JobAge(job, now)));
  const std::string reason = ReasonText(job);
  const char* title = "why";
  for (absl::string_view line : absl::StrSplit(reason, '\n')) {
    if (line.empty()) continue;
    absl::StrAppendFormat(&text, "%-9s %s\n", title, line);
    title = "";
  }
  // Warnings of the state that the job is in are among the reasons.
  title = "warning";
  for (int i = 0; i + 1 < job.transitions_size(); ++i) {
    for (absl::string_view line :
         absl::StrSplit(job.transitions(i).reason(), '\n')) {
      if (!absl::ConsumePrefix(&line, "warning: ")) continue;
      absl::StrAppendFormat(&text, "%-9s %s\n", title, line);
      title = "";
    }
  }
  title = "history";
  for (const JobTransition& transition : job.transitions()) {
    absl::StrAppendFormat(
        &text, "%-9s %s  %s\n", title,
        absl::FormatTime("%Y-%m-%d %H:%M:%S", ToTime(transition.time()),
                         absl::LocalTimeZone()),
        StateText(transition.state()));
    title = "";
  }
  absl::StrAppend(&text, WhoText("workers", job.workers()));
  if (job.has_evaluator()) {
    absl::StrAppend(&text,
                    WhoText("evaluator", absl::MakeSpan(&job.evaluator(), 1)));
  }
  absl::StrAppend(&text, WhoText("ps", job.ps()));
  const JobProgress progress =
      HasEnded(job.state()) ? OverTheWholeJob(job.progress()) : job.progress();
  if (progress.clocks_total() > 0) {
    absl::StrAppend(&text, "progress  ", ProgressText(progress), "\n");
  }
  for (const WorkerProgress& worker : progress.workers()) {
    absl::StrAppend(&text, WorkerText(worker));
  }
  if (const std::string skipped = SkippedText(job); !skipped.empty()) {
    absl::StrAppendFormat(&text, "%-9s %s\n",
                          AllWereSkipped(job) ? "WARNING" : "skipped", skipped);
  }
  title = "results";
  for (const Evaluation& evaluation : job.evaluations()) {
    absl::StrAppendFormat(&text, "%-9s %s\n", title,
                          EvaluationText(evaluation));
    title = "";
  }
  title = "files";
  for (const Artifact& artifact : job.artifacts()) {
    absl::StrAppendFormat(&text, "%-9s %s  %s\n", title, artifact.name(),
                          FormatBytes(artifact.size_bytes()));
    title = "";
  }
  return text;
}

std::string JobTable(const ListResponse& jobs, absl::Time now) {
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "NAME", "STATE", "SUBMITTED", "TIME", "PROGRESS"}};
  for (const JobStatus& job : jobs.jobs()) {
    const std::string submitted =
        job.transitions().empty()
            ? ""
            : absl::FormatTime("%Y-%m-%d %H:%M:%S",
                               ToTime(job.transitions(0).time()),
                               absl::LocalTimeZone());
    std::string detail;
    if (AllWereSkipped(job)) {
      detail = absl::StrCat("WARNING: ", SkippedText(job));
    } else if (job.state() == PREPARING || job.state() == RUNNING) {
      detail = ProgressText(job.progress());
    } else if (job.state() == SUCCEEDED && !job.evaluations().empty()) {
      detail = EvaluationText(*job.evaluations().rbegin());
    } else {
      const std::string reason = ReasonText(job);
      detail = reason.substr(0, reason.find('\n'));
    }
    rows.push_back({job.job_id(), job.spec().name(), StateText(job.state()),
                    submitted, FormatElapsed(JobAge(job, now)), detail});
  }
  return AlignColumns(rows);
}

std::string CapacityWarning(const JobSpec& spec, const ClusterStatus& cluster) {
  struct Kind {
    uint64_t needed = 0;
    uint64_t members = 0;
    uint64_t free = 0;
  };
  const bool wants_gpus = spec.resources().device() == ResourcesSpec::CUDA;
  Kind workers{std::max(1u, spec.resources().workers())};
  Kind ps{std::max(1u, spec.resources().ps())};
  for (const ClusterStatus::Entry& entry : cluster.members()) {
    const TaskType type = entry.member().task().type();
    if (type != CHIEF && type != WORKER && type != PS) continue;
    // In brackets: why it is given no job, ClusterStatus.Entry.job_id.
    if (absl::StartsWith(entry.job_id(), "(")) continue;
    if (type != PS && wants_gpus && !entry.member().has_gpu()) continue;
    Kind& kind = type == PS ? ps : workers;
    ++kind.members;
    kind.free += entry.job_id().empty() ? 1 : 0;
  }
  if (workers.members >= workers.needed && ps.members >= ps.needed) return "";
  const absl::string_view kind = wants_gpus ? " with a GPU" : "";
  return absl::StrCat(
      "warning: the job needs ", FormatAmount(workers.needed, "worker"), kind,
      " and ", ps.needed, " ps, but the cluster has ",
      FormatAmount(workers.members, "worker"), kind, " (", workers.free,
      " free) and ", ps.members, " ps (", ps.free,
      " free). It is queued and waits until more daemons join; jobs behind it "
      "need not wait for that");
}

std::string ClusterTable(const ClusterStatus& cluster) {
  std::vector<std::vector<std::string>> rows = {{"TASK", "ADDRESS", "HOST",
                                                 "PID", "VERSION", "DEVICE",
                                                 "JOB", "LAST HEARD"}};
  // Why a member is given no job is too long for a column.
  std::string notes;
  for (const ClusterStatus::Entry& entry : cluster.members()) {
    const Member& member = entry.member();
    std::string job = entry.job_id().empty() ? "free" : entry.job_id();
    absl::string_view why = job;
    if (absl::ConsumePrefix(&why, "(") && absl::ConsumeSuffix(&why, ")")) {
      absl::StrAppend(&notes, TaskText(member.task()), " is ", why, "\n");
      job = "none, see below";
    }
    rows.push_back({TaskText(member.task()), member.address(),
                    member.hostname(), absl::StrCat(member.pid()),
                    member.version(), DeviceText(member), job,
                    absl::StrFormat("%.1f s", entry.silent_seconds())});
  }
  return absl::StrCat("scheduler ", cluster.scheduler_address(), ", version ",
                      cluster.version(), "\n", AlignColumns(rows), notes);
}

}  // namespace syncline::ctl
