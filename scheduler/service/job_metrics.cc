#include "scheduler/service/job_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/regime_history.h"

namespace syncline::scheduler {
namespace {

using Labels = MetricSamples::Labels;

void CollectWorker(const std::string& job_id, const WorkerProgress& worker,
                   MetricSamples* samples) {
  const std::string rank = absl::StrCat(worker.rank());
  const Labels labels = {{"job", job_id}, {"rank", rank}};
  samples->Add("syncline_job_worker_clock", labels,
               static_cast<double>(worker.clock()));
  samples->Add("syncline_job_worker_samples_per_second", labels,
               worker.samples_per_second());
  const std::pair<const char*, double> phases[] = {
      {"compute", worker.compute_seconds()}, {"data", worker.data_seconds()},
      {"pull", worker.pull_seconds()},       {"push", worker.push_seconds()},
      {"wait", worker.wait_seconds()},
  };
  for (const auto& [phase, seconds] : phases) {
    samples->Add("syncline_job_worker_training_seconds_total",
                 {{"job", job_id}, {"phase", phase}, {"rank", rank}}, seconds);
  }
  const std::pair<const char*, double> parts[] = {
      {"backward", worker.backward_seconds()},
      {"forward", worker.forward_seconds()},
      {"update", worker.update_seconds()},
  };
  for (const auto& [part, seconds] : parts) {
    samples->Add("syncline_job_worker_compute_seconds_total",
                 {{"job", job_id}, {"part", part}, {"rank", rank}}, seconds);
  }
}

void CollectEvaluation(const JobStatus& job, MetricSamples* samples) {
  if (!job.spec().data().has_test()) return;
  const Labels labels = {{"job", job.job_id()}};
  int64_t evaluated = 0;
  if (!job.evaluations().empty()) {
    const Evaluation& latest = *job.evaluations().rbegin();
    evaluated = latest.clock();
    samples->Add("syncline_job_evaluation_loss", labels, latest.loss());
  }
  samples->Add("syncline_job_evaluation_lag_clocks", labels,
               static_cast<double>(
                   std::max<int64_t>(job.progress().clock() - evaluated, 0)));
}

// The time after which a result that cannot be stored is given up is part of
// what a job waits for, and no progress.
std::string WithoutCountdown(std::string text) {
  const std::string lead = "given up in ";
  for (size_t at = text.find(lead); at != text.npos;
       at = text.find(lead, at + 1)) {
    const size_t begin = at + lead.size();
    const size_t end = text.find_first_not_of("0123456789.hms", begin);
    text.erase(begin, end == text.npos ? end : end - begin);
  }
  return text;
}

}  // namespace

JobMetrics::Standing JobMetrics::StandingOf(const Job& job) {
  return {.clock = job.min_clock(),
          .evaluations = job.status().evaluations_size(),
          .waiting_for = WithoutCountdown(job.status().waiting_for()),
          .moved_within_clock = job.moved_within_clock()};
}

std::pair<uint32_t, int64_t> JobMetrics::CheckpointOf(const Job& job) {
  if (job.status().checkpoints().empty()) return {0, -1};
  const CheckpointInfo& newest = *job.status().checkpoints().rbegin();
  return {newest.attempt(), newest.clock()};
}

void JobMetrics::CollectCheckpoint(const Job& job, const Seen& seen,
                                   absl::Time now,
                                   MetricSamples* samples) const {
  const JobSpec& spec = job.status().spec();
  if (!spec.has_checkpoint()) return;
  const Labels labels = {{"job", job.id()}};
  const absl::Time since =
      seen.checkpoint == CheckpointOf(job) ? seen.checkpoint_since : now;
  samples->Add("syncline_job_checkpoint_age_seconds", labels,
               std::max(0.0, absl::ToDoubleSeconds(now - since)));
  if (spec.checkpoint().every_seconds() > 0) {
    samples->Add("syncline_job_checkpoint_period_seconds", labels,
                 spec.checkpoint().every_seconds());
  }
}

void JobMetrics::Observe(const ClusterCore& core, absl::Time now) {
  std::map<std::string, Seen> running;
  for (const Job* job : core.Jobs()) {
    if (job->status().state() != RUNNING) continue;
    Seen seen = {StandingOf(*job), now, CheckpointOf(*job), now};
    const auto before = running_.find(job->id());
    if (before != running_.end() && before->second.standing == seen.standing) {
      seen.since = before->second.since;
    }
    if (before != running_.end() &&
        before->second.checkpoint == seen.checkpoint) {
      seen.checkpoint_since = before->second.checkpoint_since;
    }
    running[job->id()] = std::move(seen);
  }
  running_ = std::move(running);
}

void JobMetrics::Collect(const ClusterCore& core, absl::Time now,
                         MetricSamples* samples) const {
  for (const Job* job : core.Jobs()) {
    if (job->IsOver()) continue;
    samples->Add("syncline_job_state_seconds",
                 {{"job", job->id()},
                  {"state", absl::AsciiStrToLower(
                                JobState_Name(job->status().state()))}},
                 std::max(0.0, absl::ToDoubleSeconds(now - job->since())));
    samples->Add("syncline_job_attempts_total", {{"job", job->id()}},
                 job->status().attempt());
    if (job->status().state() == RUNNING) CollectProgress(*job, now, samples);
  }
}

void JobMetrics::CollectProgress(const Job& job, absl::Time now,
                                 MetricSamples* samples) const {
  const JobStatus status = job.Status(now);
  const JobProgress& progress = status.progress();
  const Labels labels = {{"job", job.id()}};
  samples->Add("syncline_job_clock", labels,
               static_cast<double>(progress.clock()));
  samples->Add("syncline_job_planned_clocks", labels,
               static_cast<double>(progress.clocks_total()));
  if (progress.has_loss() && !std::isnan(progress.loss())) {
    samples->Add("syncline_job_loss", labels, progress.loss());
  }
  samples->Add("syncline_job_samples_per_second", labels,
               progress.samples_per_second());
  samples->Add("syncline_job_skipped_clocks_total", labels,
               static_cast<double>(progress.skipped_clocks()));
  const std::vector<Regime> regimes = RegimesInForce(status);
  const ConsistencySpec::Mode mode = regimes.back().consistency().mode();
  samples->Add(
      "syncline_job_regime",
      {{"job", job.id()},
       {"mode", mode == ConsistencySpec::MODE_UNSPECIFIED
                    ? "sync"
                    : absl::AsciiStrToLower(ConsistencySpec::Mode_Name(mode))}},
      1);
  samples->Add("syncline_job_regime_changes_total", labels,
               static_cast<double>(regimes.size() - 1));
  const auto seen = running_.find(job.id());
  if (seen != running_.end()) {
    // Progress since the last Observe ends the idle time, too.
    const absl::Time since =
        seen->second.standing == StandingOf(job) ? seen->second.since : now;
    samples->Add("syncline_job_idle_seconds", labels,
                 std::max(0.0, absl::ToDoubleSeconds(now - since)));
    CollectCheckpoint(job, seen->second, now, samples);
  }
  CollectEvaluation(status, samples);
  for (const WorkerProgress& worker : progress.workers()) {
    CollectWorker(job.id(), worker, samples);
  }
}

}  // namespace syncline::scheduler
