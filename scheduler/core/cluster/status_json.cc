#include "scheduler/core/cluster/status_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/json_text.h"
#include "common/job/auto_regime_rules.h"
#include "common/job/blame_text.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/evaluate_validator.h"
#include "common/job/evaluation_values.h"
#include "common/job/gpu_text.h"
#include "common/job/lost_workers.h"
#include "common/job/regime_rules.h"
#include "common/job/skipped_text.h"
#include "scheduler/core/cluster/log_sources.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/regime_history.h"

namespace syncline::scheduler {
namespace {

// The workers that cost most.
constexpr size_t kBlameLinesMax = 4;

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

std::string ReasonText(const JobStatus& job) {
  if (job.state() == RUNNING && !job.waiting_for().empty()) {
    return WaitingForText(job.waiting_for());
  }
  if (!IsFinal(job.state())) return job.waiting_for();
  if (job.transitions().empty()) return "";
  return job.transitions(job.transitions_size() - 1).reason();
}

JsonObject JobObject(const JobStatus& job, absl::Time now) {
  const JobProgress& progress = job.progress();
  JsonObject object;
  object.Text("id", job.job_id())
      .Text("name", job.spec().name())
      .Text("state", absl::AsciiStrToLower(JobState_Name(job.state())))
      .Count("attempt", job.attempt())
      .Text("reason", ReasonText(job));
  if (!job.tenant().empty()) object.Text("tenant", job.tenant());
  if (!job.transitions().empty()) {
    const absl::Time since =
        FromTimestamp(job.transitions(job.transitions_size() - 1).time());
    object.Number("state_seconds",
                  std::max(0.0, absl::ToDoubleSeconds(now - since)));
  }
  if (job.state() == QUEUED)
    object.Count("queue_position", job.queue_position());
  // Steps are those of the job that made the checkpoint.
  if (progress.clocks_total() > 0 && !OnlyEvaluates(job.spec())) {
    object.Count("clock", progress.clock())
        .Count("clocks_total", progress.clocks_total())
        .Count("epoch", progress.epoch())
        .Count("epochs_total", progress.epochs_total())
        .Number("samples_per_second", progress.samples_per_second());
  }
  if (progress.has_loss()) object.Number("loss", progress.loss());
  if (job.state() == RUNNING && progress.seconds_left() >= 0) {
    object.Number("seconds_left", progress.seconds_left());
  }
  if (const auto blame = BlameLines(job, kBlameLinesMax); !blame.empty()) {
    object.Text("blame", absl::StrJoin(blame, "; "));
  }
  if (const std::string skipped = SkippedText(job); !skipped.empty()) {
    object.Text("skipped", skipped);
  }
  return object;
}

// No new job is given to the member.
bool IsLeftOut(const ClusterStatus::Entry& entry) {
  return entry.use() == SetMemberUseRequest::CORDON ||
         entry.use() == SetMemberUseRequest::DRAIN;
}

std::string MemberJson(const ClusterStatus::Entry& entry) {
  const Member& member = entry.member();
  JsonObject object;
  object.Text("task", LogTaskName(member.task()))
      .Text("address", member.address())
      .Text("host", member.hostname())
      .Count("pid", member.pid())
      .Text("job", entry.job_id())
      .Number("silent_seconds", std::max(0.0, entry.silent_seconds()));
  if (member.has_gpu()) {
    object.Text("gpu", GpuText(member.gpu()));
  }
  if (IsLeftOut(entry)) {
    object
        .Text("use",
              absl::AsciiStrToLower(SetMemberUseRequest::Use_Name(entry.use())))
        .Text("use_reason", entry.use_reason());
  }
  return object.ToString();
}

// A worker with what it has reported; null: it has not. `is_lost`: the job goes
// on without it.
std::string WorkerJson(const Participant& participant,
                       const WorkerProgress* progress, bool is_lost) {
  JsonObject object;
  object.Count("rank", participant.rank())
      .Text("task", LogTaskName(participant.member().task()))
      .Text("address", participant.member().address());
  if (is_lost) object.Flag("lost", true);
  if (progress == nullptr) return object.ToString();
  object.Count("clock", progress->clock())
      .Number("samples_per_second", progress->samples_per_second())
      .Number("compute", progress->compute_seconds())
      .Number("push", progress->push_seconds())
      .Number("wait", progress->wait_seconds())
      .Number("pull", progress->pull_seconds())
      .Number("data", progress->data_seconds());
  if (progress->has_loss()) object.Number("loss", progress->loss());
  return object.ToString();
}

std::string WorkersJson(const JobStatus& job) {
  std::vector<std::string> workers;
  for (const Participant& participant : job.workers()) {
    const WorkerProgress* progress = nullptr;
    for (const WorkerProgress& worker : job.progress().workers()) {
      if (worker.rank() == participant.rank()) progress = &worker;
    }
    workers.push_back(
        WorkerJson(participant, progress, IsLost(job, participant.rank())));
  }
  return JsonArray(workers);
}

std::string EvaluationsJson(const JobStatus& job) {
  std::vector<std::string> evaluations;
  for (const Evaluation& evaluation : job.evaluations()) {
    std::vector<std::string> metrics;
    for (const EvaluationValue& value : EvaluationValues(evaluation)) {
      metrics.push_back(JsonObject()
                            .Text("name", value.title)
                            .Number("value", value.value)
                            .ToString());
    }
    JsonObject object;
    if (!OnlyEvaluates(job.spec())) object.Count("epoch", evaluation.epoch());
    object.Count("clock", evaluation.clock())
        .Raw("metrics", JsonArray(metrics))
        .Flag("best", evaluation.best());
    if (evaluation.has_loss()) object.Number("loss", evaluation.loss());
    evaluations.push_back(object.ToString());
  }
  return JsonArray(evaluations);
}

std::string EvaluationText(const Evaluation& evaluation, const JobSpec& spec) {
  std::string text = OnlyEvaluates(spec)
                         ? absl::StrCat("at clock ", evaluation.clock())
                         : absl::StrCat("after epoch ", evaluation.epoch());
  if (evaluation.has_loss()) {
    absl::StrAppend(&text, absl::StrFormat(": loss %.4g", evaluation.loss()));
  }
  for (const EvaluationValue& value : EvaluationValues(evaluation)) {
    absl::StrAppend(&text, ", ", value.title,
                    absl::StrFormat(" %.4g", value.value));
  }
  return absl::StrCat(text, evaluation.best() ? ", the best so far" : "");
}

// "ASYNC from clock 800 on: synctl regime"; "stays ASYNC: auto: ...", of a job
// that has tried others; or why it was not made.
std::string ChangeText(const JobStatus& job, int entry) {
  const RegimeTransition& change = job.regimes(entry);
  if (!change.error().empty()) {
    return absl::StrCat(change.reason(), " was not made: ", change.error());
  }
  std::string text =
      IsStay(job.regimes(), entry)
          ? absl::StrCat("stays ", RegimeText(change.regime()))
          : absl::StrCat(RegimeText(change.regime()), " from clock ",
                         change.regime().first_clock(), " on");
  if (!change.reason().empty()) {
    absl::StrAppend(&text, ": ", change.reason());
  }
  return text;
}

// The events of the job, by time, as its record tells them.
std::string EventsJson(const JobStatus& job) {
  struct Event {
    absl::Time time;
    absl::string_view kind;
    std::string text;
  };
  std::vector<Event> events;
  for (const JobTransition& transition : job.transitions()) {
    std::string text = absl::AsciiStrToLower(JobState_Name(transition.state()));
    if (!transition.reason().empty()) {
      absl::StrAppend(&text, ": ", transition.reason());
    }
    events.push_back(
        {FromTimestamp(transition.time()), "state", std::move(text)});
  }
  for (const CheckpointInfo& checkpoint : job.checkpoints()) {
    events.push_back({FromTimestamp(checkpoint.time()), "checkpoint",
                      absl::StrCat("at clock ", checkpoint.clock(), ", ",
                                   checkpoint.bytes(), " bytes")});
  }
  for (const Evaluation& evaluation : job.evaluations()) {
    events.push_back({FromTimestamp(evaluation.time()), "evaluation",
                      EvaluationText(evaluation, job.spec())});
  }
  for (int i = 0; i < job.regimes_size(); ++i) {
    events.push_back(
        {FromTimestamp(job.regimes(i).time()), "regime", ChangeText(job, i)});
  }
  std::stable_sort(
      events.begin(), events.end(),
      [](const Event& a, const Event& b) { return a.time < b.time; });
  std::vector<std::string> json;
  for (const Event& event : events) {
    json.push_back(JsonObject()
                       .Text("time", TimeText(event.time))
                       .Text("kind", event.kind)
                       .Text("text", event.text)
                       .ToString());
  }
  return JsonArray(json);
}

}  // namespace

std::string StatusJson(const StatusData& data) {
  std::vector<std::string> jobs;
  for (const JobStatus& job : data.jobs) {
    jobs.push_back(JobObject(job, data.now).ToString());
  }
  std::vector<std::string> members;
  int64_t free = 0;
  for (const ClusterStatus::Entry& entry : data.cluster.members()) {
    if (members.size() < kStatusMembersMax) {
      members.push_back(MemberJson(entry));
    }
    free += entry.job_id().empty() && !IsLeftOut(entry);
  }
  return JsonObject()
      .Text("version", data.cluster.version())
      .Text("scheduler", data.cluster.scheduler_address())
      .Text("now", TimeText(data.now))
      .Raw("jobs", JsonArray(jobs))
      .Count("older_jobs", data.older_jobs)
      .Raw("members", JsonArray(members))
      .Count("more_members",
             data.cluster.members_size() - static_cast<int64_t>(members.size()))
      .Count("free_members", free)
      .ToString();
}

std::string JobJson(const JobData& data) {
  const JobStatus& job = data.status;
  std::vector<std::string> curve;
  for (const auto& point : data.curve) {
    if (!std::isfinite(point.loss)) continue;
    curve.push_back(
        absl::StrCat("[", point.clock, ",", JsonNumber(point.loss), "]"));
  }
  std::vector<std::string> ps;
  for (const Participant& participant : job.ps()) {
    ps.push_back(WorkerJson(participant, nullptr, false));
  }
  std::vector<std::string> artifacts;
  for (const Artifact& artifact : job.artifacts()) {
    artifacts.push_back(
        JsonObject()
            .Text("name", artifact.name())
            .Count("bytes", static_cast<int64_t>(artifact.size_bytes()))
            .ToString());
  }
  JsonObject object = JobObject(job, data.now);
  object.Text("trace", job.trace_id())
      .Raw("workers", WorkersJson(job))
      .Raw("ps", JsonArray(ps))
      .Raw("curve", JsonArray(curve))
      .Raw("evaluations", EvaluationsJson(job))
      .Raw("events", EventsJson(job))
      .Raw("artifacts", JsonArray(artifacts))
      .Flag("logs", data.may_read_logs);
  if (job.has_evaluator()) {
    object.Text("evaluator", LogTaskName(job.evaluator().member().task()));
  }
  if (job.attempt() > 0) {
    object.Text("regime", RegimeText(RegimesInForce(job).back()));
  }
  return object.ToString();
}

}  // namespace syncline::scheduler
