#include "server/service/job_metrics.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/service/table_metrics.h"

namespace syncline::ps {
namespace {

// One job over its shards here.
struct JobView {
  int64_t clock = 0;
  int64_t spread = 0;
  std::optional<int64_t> bound;
  std::vector<StragglerLog::Blame> blames;            // by rank
  std::vector<ConsistencyController::Behind> behind;  // likewise
  std::vector<uint64_t> non_finite;                   // by rank
  std::vector<ShardStatus::Table> tables;
};

void AddShard(const JobShard& shard, bool is_first, absl::Time now,
              JobView* job) {
  const JobShard::Standing standing = shard.StandingAt(now);
  job->clock =
      is_first ? standing.min_clock : std::min(job->clock, standing.min_clock);
  job->spread = std::max(job->spread, standing.max_clock - standing.min_clock);
  job->bound = standing.staleness_bound;
  job->blames.resize(standing.blames.size());
  for (size_t rank = 0; rank < standing.blames.size(); ++rank) {
    StragglerLog::Blame& blame = job->blames[rank];
    blame.time = std::max(blame.time, standing.blames[rank].time);
    blame.clocks = std::max(blame.clocks, standing.blames[rank].clocks);
  }
  // All shards leave the same workers behind; each hears of what they send.
  job->behind.resize(standing.behind.size());
  for (size_t rank = 0; rank < standing.behind.size(); ++rank) {
    ConsistencyController::Behind& behind = job->behind[rank];
    behind.clocks = std::max(behind.clocks, standing.behind[rank].clocks);
    behind.samples = std::max(behind.samples, standing.behind[rank].samples);
  }
  ShardStatus::Job status = shard.Status();
  job->non_finite.resize(standing.blames.size());
  for (const ShardStatus::Worker& worker : status.workers()) {
    // The evaluator, which comes last, has no gradients.
    if (worker.rank() >= job->non_finite.size()) continue;
    job->non_finite[worker.rank()] += worker.non_finite();
  }
  job->tables.insert(job->tables.end(), status.tables().begin(),
                     status.tables().end());
}

void CollectJob(const std::string& job_id, const JobView& job,
                MetricSamples* samples) {
  const MetricSamples::Labels labels = {{"job", job_id}};
  samples->Add("syncline_ps_job_clock", labels, static_cast<double>(job.clock));
  samples->Add("syncline_ps_job_clock_spread_clocks", labels,
               static_cast<double>(job.spread));
  if (job.bound.has_value()) {
    samples->Add("syncline_ps_job_staleness_bound_clocks", labels,
                 static_cast<double>(*job.bound));
  }
  for (size_t rank = 0; rank < job.blames.size(); ++rank) {
    const MetricSamples::Labels of_rank = {{"job", job_id},
                                           {"rank", absl::StrCat(rank)}};
    samples->Add("syncline_ps_blame_seconds_total", of_rank,
                 absl::ToDoubleSeconds(job.blames[rank].time));
    samples->Add("syncline_ps_blame_clocks_total", of_rank,
                 static_cast<double>(job.blames[rank].clocks));
    samples->Add("syncline_ps_left_behind_clocks_total", of_rank,
                 static_cast<double>(job.behind[rank].clocks));
    samples->Add("syncline_ps_dropped_samples_total", of_rank,
                 static_cast<double>(job.behind[rank].samples));
    samples->Add("syncline_ps_non_finite_total", of_rank,
                 static_cast<double>(job.non_finite[rank]));
  }
  CollectTableMetrics(job_id, job.tables, samples);
}

}  // namespace

void CollectJobMetrics(const JobRegistry::Shards& shards, absl::Time now,
                       MetricSamples* samples) {
  for (auto shard = shards.begin(); shard != shards.end();) {
    const std::string& job_id = (*shard)->config.job_id;
    JobView job;
    bool is_first = true;
    for (; shard != shards.end() && (*shard)->config.job_id == job_id;
         ++shard) {
      if ((*shard)->shard == nullptr) continue;
      AddShard(*(*shard)->shard, is_first, now, &job);
      is_first = false;
    }
    if (!is_first) CollectJob(job_id, job, samples);
  }
}

}  // namespace syncline::ps
