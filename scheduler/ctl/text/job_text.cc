#include "scheduler/ctl/text/job_text.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/base/unsigned_nan.h"
#include "common/job/auto_regime_rules.h"
#include "common/job/blame_text.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/evaluate_validator.h"
#include "common/job/evaluation_values.h"
#include "common/job/gpu_text.h"
#include "common/job/hidden_job.h"
#include "common/job/job_spec_validator.h"
#include "common/job/lease_rules.h"
#include "common/job/regime_rules.h"
#include "common/job/skipped_text.h"
#include "common/job/worker_groups.h"
#include "scheduler/ctl/text/elastic_text.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/top_text.h"

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

// "cuda:0 NVIDIA H200, cuDNN 9.19.0", "cpu"; nothing for what trains nothing.
std::string DeviceText(const Member& member) {
  const TaskType type = member.task().type();
  if (type != CHIEF && type != WORKER && type != EVALUATOR) return "";
  if (!member.has_gpu()) return "cpu";
  return GpuText(member.gpu());
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

// " (forward 33%, backward 67%)": of the time that a worker computes; empty: it
// has not told.
std::string ComputeText(const WorkerProgress& worker) {
  const double total = worker.forward_seconds() + worker.backward_seconds() +
                       worker.update_seconds();
  if (!(total > 0)) return "";
  std::string text = absl::StrFormat(" (forward %.0f%%, backward %.0f%%",
                                     100 * worker.forward_seconds() / total,
                                     100 * worker.backward_seconds() / total);
  if (worker.update_seconds() > 0) {
    absl::StrAppendFormat(&text, ", update %.0f%%",
                          100 * worker.update_seconds() / total);
  }
  return text + ")";
}

// A worker's progress, with the shares of its time in percent. Of leased data
// its samples, because it does not make all steps.
std::string WorkerText(const WorkerProgress& worker, bool leases,
                       bool is_straggler) {
  const double total = TotalSeconds(worker);
  const auto percent = [&](double seconds) {
    return total > 0 ? 100 * seconds / total : 0.0;
  };
  return absl::StrFormat(
      "          rank %d: step %s, %s%s samples/s; compute %.0f%%%s, push "
      "%.0f%%, wait %.0f%%, pull %.0f%%, data %.0f%%%s\n",
      worker.rank(), FormatCount(worker.clock()),
      leases ? absl::StrCat(FormatCount(worker.samples()), " samples, ") : "",
      FormatCount(std::llround(worker.samples_per_second())),
      percent(worker.compute_seconds()), ComputeText(worker),
      percent(worker.push_seconds()), percent(worker.wait_seconds()),
      percent(worker.pull_seconds()), percent(worker.data_seconds()),
      is_straggler ? "  <- the others wait for it" : "");
}

// "gradients 12.0 MiB, 3.98 times smaller than float32; values 48.0 MiB", of
// all workers; empty: none is counted.
std::string TransferText(const JobProgress& progress) {
  WorkerProgress sum;
  for (const WorkerProgress& worker : progress.workers()) {
    sum.set_gradient_bytes(sum.gradient_bytes() + worker.gradient_bytes());
    sum.set_gradient_float32_bytes(sum.gradient_float32_bytes() +
                                   worker.gradient_float32_bytes());
    sum.set_value_bytes(sum.value_bytes() + worker.value_bytes());
    sum.set_value_float32_bytes(sum.value_float32_bytes() +
                                worker.value_float32_bytes());
  }
  const auto part = [](absl::string_view what, uint64_t sent,
                       uint64_t float32) {
    std::string text = absl::StrCat(what, " ", FormatBytes(sent));
    if (sent > 0 && sent != float32) {
      absl::StrAppendFormat(
          &text, ", %.2f times smaller than float32",
          static_cast<double>(float32) / static_cast<double>(sent));
    }
    return text;
  };
  if (sum.gradient_bytes() == 0 && sum.value_bytes() == 0) return "";
  return absl::StrCat(
      "dense     ",
      part("gradients", sum.gradient_bytes(), sum.gradient_float32_bytes()),
      "; ", part("values", sum.value_bytes(), sum.value_float32_bytes()), "\n");
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

// How the job trained, where that has changed.
std::string RegimesText(const JobStatus& job) {
  std::string text;
  if (job.regimes_size() < 2) return text;
  const char* title = "regimes";
  for (int i = 0; i < job.regimes_size(); ++i) {
    absl::StrAppendFormat(&text, "%-9s %s\n", std::exchange(title, ""),
                          RegimeEntryText(job, i));
  }
  return text;
}

}  // namespace

std::string RegimeEntryText(const JobStatus& job, int entry) {
  const RegimeTransition& transition = job.regimes(entry);
  if (!transition.error().empty()) {
    return absl::StrCat("not made: ", transition.error(), " (",
                        transition.reason(), ")");
  }
  if (IsStay(job.regimes(), entry)) {
    return absl::StrFormat("stays  %s (%s)", RegimeText(transition.regime()),
                           transition.reason());
  }
  return absl::StrFormat(
      "from clock %d  %s (%s%s)", transition.regime().first_clock(),
      RegimeText(transition.regime()), transition.reason(),
      transition.pause_seconds() > 0
          ? absl::StrFormat(", pause %.3f s", transition.pause_seconds())
          : "");
}

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

std::string EvaluationText(const Evaluation& evaluation, const JobSpec& spec) {
  std::string text =
      OnlyEvaluates(spec)
          ? absl::StrCat("clock ", FormatCount(evaluation.clock()))
          : absl::StrCat("epoch ", evaluation.epoch());
  absl::StrAppendFormat(&text, ": test loss %.4f",
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

std::string OnlyEvaluatesText(const JobSpec& spec) {
  return absl::StrCat("evaluates ", spec.start().checkpoint(), ", of clock ",
                      FormatCount(spec.start().clock()));
}

namespace {

// The checkpoints that are listed one by one; of more the latest ones.
constexpr int kListedMax = 10;
// The workers that cost most.
constexpr size_t kBlameLinesMax = 4;

std::string StartText(const StartSpec& start) {
  if (!start.weights().empty()) {
    return absl::StrFormat("%-9s clock 0 and the values of a file, %s\n",
                           "start", start.weights());
  }
  if (start.checkpoint().empty()) return "";
  return absl::StrFormat("%-9s %s, %s\n", "start",
                         start.weights_only()
                             ? "clock 0 and the values of a checkpoint"
                             : absl::StrCat("clock ", start.clock()),
                         start.checkpoint());
}

std::string CheckpointsText(const JobStatus& job, absl::Time now) {
  std::string text;
  const char* title = "saved";
  const int hidden = std::max(0, job.checkpoints_size() - kListedMax);
  if (hidden > 0) {
    absl::StrAppendFormat(&text, "%-9s %s before these\n", title,
                          FormatAmount(hidden, "checkpoint"));
    title = "";
  }
  for (int i = hidden; i < job.checkpoints_size(); ++i) {
    const CheckpointInfo& one = job.checkpoints(i);
    absl::StrAppendFormat(
        &text, "%-9s %s ago  %s\n", title,
        FormatElapsed(std::max(absl::ZeroDuration(), now - ToTime(one.time()))),
        CheckpointText(one));
    title = "";
  }
  return text;
}

}  // namespace

std::string ReasonText(const JobStatus& job) {
  if (!job.waiting_for().empty()) {
    return job.state() == QUEUED ? job.waiting_for()
                                 : WaitingForText(job.waiting_for());
  }
  return job.transitions().empty() ? "" : job.transitions().rbegin()->reason();
}

absl::Duration JobAge(const JobStatus& job, absl::Time now) {
  if (job.transitions().empty()) return absl::ZeroDuration();
  const absl::Time end =
      HasEnded(job.state()) ? ToTime(job.transitions().rbegin()->time()) : now;
  return end - ToTime(job.transitions(0).time());
}

std::string RestartText(const JobTransition& transition) {
  if (transition.state() != QUEUED) return "";
  return transition.reason().substr(0, transition.reason().find('\n'));
}

std::string CheckpointText(const CheckpointInfo& checkpoint) {
  return absl::StrFormat(
      "clock %s  %s  in %.1f s  %s", FormatCount(checkpoint.clock()),
      FormatBytes(checkpoint.bytes()), checkpoint.seconds(), checkpoint.path());
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
    if (const std::string why = RestartText(transition); !why.empty()) {
      absl::StrAppendFormat(&text, "%-9s   %s\n", title, why);
    }
  }
  if (!job.tenant().empty()) {
    absl::StrAppendFormat(&text, "%-9s %s\n", "tenant", job.tenant());
  }
  if (!job.trace_id().empty()) {
    absl::StrAppendFormat(&text, "%-9s %s\n", "trace", job.trace_id());
  }
  if (const std::string elastic = ElasticText(job); !elastic.empty()) {
    absl::StrAppendFormat(&text, "%-9s %s\n", "scale", elastic);
  }
  absl::StrAppend(&text, WhoText("workers", job.workers()));
  title = "lost";
  for (const JobStatus::Lost& lost : job.lost_workers()) {
    absl::StrAppendFormat(
        &text, "%-9s %s  rank %d: %s\n", title,
        absl::FormatTime("%Y-%m-%d %H:%M:%S", ToTime(lost.time()),
                         absl::LocalTimeZone()),
        lost.rank(), lost.reason());
    title = "";
    if (!lost.leases().empty()) {
      absl::StrAppendFormat(&text, "%-9s   %s\n", title, lost.leases());
    }
  }
  if (const std::string groups = GroupsText(job); !groups.empty()) {
    absl::StrAppendFormat(&text, "%-9s %s\n", "groups", groups);
  }
  if (job.has_evaluator()) {
    absl::StrAppend(&text,
                    WhoText("evaluator", absl::MakeSpan(&job.evaluator(), 1)));
  }
  absl::StrAppend(&text, WhoText("ps", job.ps()));
  const JobProgress progress =
      HasEnded(job.state()) ? OverTheWholeJob(job.progress()) : job.progress();
  if (progress.clocks_total() > 0 && !OnlyEvaluates(job.spec())) {
    absl::StrAppend(&text, "progress  ", ProgressText(progress), "\n");
  }
  const auto straggler = StragglerOf(job, progress, JobProgress());
  for (const WorkerProgress& worker : progress.workers()) {
    absl::StrAppend(&text, WorkerText(worker, LeasesData(job.spec()),
                                      straggler == worker.rank()));
  }
  absl::StrAppend(&text, TransferText(progress));
  title = "blame";
  for (const std::string& line : BlameLines(job, kBlameLinesMax)) {
    absl::StrAppendFormat(&text, "%-9s %s\n", title, line);
    title = "";
  }
  if (const std::string skipped = SkippedText(job); !skipped.empty()) {
    absl::StrAppendFormat(&text, "%-9s %s\n",
                          IsHardlyTrained(job) ? "WARNING" : "skipped",
                          skipped);
  }
  absl::StrAppend(&text, StartText(job.spec().start()),
                  CheckpointsText(job, now), RegimesText(job));
  title = "results";
  for (const Evaluation& evaluation : job.evaluations()) {
    absl::StrAppendFormat(&text, "%-9s %s\n", title,
                          EvaluationText(evaluation, job.spec()));
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
  const bool has_tenants = absl::c_any_of(
      jobs.jobs(), [](const JobStatus& job) { return !job.tenant().empty(); });
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "NAME", "STATE", "SUBMITTED", "TIME", "PROGRESS"}};
  if (has_tenants) rows[0].insert(rows[0].begin() + 2, "TENANT");
  for (const JobStatus& job : jobs.jobs()) {
    const std::string submitted =
        job.transitions().empty()
            ? ""
            : absl::FormatTime("%Y-%m-%d %H:%M:%S",
                               ToTime(job.transitions(0).time()),
                               absl::LocalTimeZone());
    std::string detail;
    if (IsHardlyTrained(job)) {
      detail = absl::StrCat("WARNING: ", SkippedText(job));
    } else if (job.state() == PREPARING || job.state() == RUNNING) {
      detail = OnlyEvaluates(job.spec()) ? OnlyEvaluatesText(job.spec())
                                         : ProgressText(job.progress());
    } else if (job.state() == SUCCEEDED && !job.evaluations().empty()) {
      detail = EvaluationText(*job.evaluations().rbegin(), job.spec());
    } else {
      const std::string reason = ReasonText(job);
      detail = reason.substr(0, reason.find('\n'));
    }
    rows.push_back({job.job_id(), job.spec().name(), StateText(job.state()),
                    submitted, FormatElapsed(JobAge(job, now)), detail});
    if (!has_tenants) continue;
    rows.back().insert(rows.back().begin() + 2,
                       job.tenant().empty() ? "-" : job.tenant());
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
  const ResourcesSpec& resources = spec.resources();
  Kind workers{std::max(1u, resources.min_workers() > 0
                                ? resources.min_workers()
                                : resources.workers())};
  Kind ps{WithDefaults(spec).resources().ps()};
  for (const ClusterStatus::Entry& entry : cluster.members()) {
    const TaskType type = entry.member().task().type();
    if (type != CHIEF && type != WORKER && type != PS) continue;
    // In brackets: why it is given no job, ClusterStatus.Entry.job_id; but for
    // those of jobs that the user does not see.
    if (absl::StartsWith(entry.job_id(), "(") && entry.job_id() != kHiddenJob) {
      continue;
    }
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

namespace {

// "ps:1 is drained (new kernel): it can be stopped; synctl uncordon ..."
std::string UseNote(const ClusterStatus::Entry& entry) {
  const bool is_drained = entry.use() == SetMemberUseRequest::DRAIN;
  const std::string task = TaskText(entry.member().task());
  std::string text =
      absl::StrCat(task, is_drained ? " is drained" : " is cordoned");
  if (!entry.use_reason().empty()) {
    absl::StrAppend(&text, " (", entry.use_reason(), ")");
  }
  if (is_drained) {
    absl::StrAppend(&text, entry.job_id().empty()
                               ? ": it can be stopped"
                               : absl::StrCat(": ", entry.job_id(),
                                              " leaves it once it has saved"));
  } else {
    absl::StrAppend(&text, ": it gets no more jobs");
  }
  return absl::StrCat(text, "; `synctl uncordon ", task,
                      "` gives it jobs again");
}

}  // namespace

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
    if (entry.use() != SetMemberUseRequest::USE_UNSPECIFIED) {
      absl::StrAppend(&notes, UseNote(entry), "\n");
      if (entry.job_id().empty()) job = "none, see below";
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
