#include "scheduler/ctl/text/top_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/evaluate_validator.h"
#include "common/job/lost_workers.h"
#include "common/job/quorum_validator.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {
namespace {

constexpr double kNoticedShare = 0.2;
constexpr size_t kNameCharsMax = 20;

double TotalSeconds(const WorkerProgress& worker) {
  return worker.compute_seconds() + worker.push_seconds() +
         worker.wait_seconds() + worker.pull_seconds() + worker.data_seconds();
}

const WorkerProgress* FindRank(const JobProgress& progress, uint32_t rank) {
  for (const WorkerProgress& worker : progress.workers()) {
    if (worker.rank() == rank) return &worker;
  }
  return nullptr;
}

// The only one at the smallest clock.
std::optional<uint32_t> LastRank(const JobProgress& progress) {
  std::optional<uint32_t> last;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const WorkerProgress& worker : progress.workers()) {
    if (worker.clock() == least) last.reset();
    if (worker.clock() >= least) continue;
    least = worker.clock();
    last = worker.rank();
  }
  return last;
}

std::string LossText(bool is_set, double loss) {
  return is_set && !std::isnan(loss) ? absl::StrFormat("%.4g", loss) : "-";
}

std::string JobLine(const JobStatus& job) {
  std::string line =
      absl::StrFormat("%-10s %-20s %-9s", job.job_id(),
                      job.spec().name().substr(0, kNameCharsMax),
                      absl::AsciiStrToLower(JobState_Name(job.state())));
  const JobProgress& progress = job.progress();
  if (job.state() == RUNNING) {
    absl::StrAppendFormat(
        &line, " %12s %10s %10.0f",
        absl::StrCat(progress.clock(), "/", progress.clocks_total()),
        LossText(progress.has_loss(), progress.loss()),
        progress.samples_per_second());
    if (job.lost_workers_size() > 0) {
      absl::StrAppendFormat(&line, "  %d of %d workers", WorkersLeft(job),
                            job.workers_size());
    }
  }
  const std::string waits = job.waiting_for().substr(
      0, std::min(job.waiting_for().find('\n'), size_t{60}));
  if (!waits.empty()) absl::StrAppend(&line, "  ", waits);
  return absl::StrCat(absl::StripTrailingAsciiWhitespace(line), "\n");
}

std::string WorkerLines(const JobStatus& job, const JobProgress& before) {
  const JobProgress& progress = job.progress();
  const auto shares = WaitShares(progress, before);
  const auto straggler = StragglerOf(job, progress, before);
  std::string text;
  for (int i = 0; i < progress.workers_size(); ++i) {
    const WorkerProgress& worker = progress.workers(i);
    const std::string share = shares[i].has_value()
                                  ? absl::StrFormat("%.0f%%", 100 * *shares[i])
                                  : "-";
    absl::StrAppendFormat(
        &text, "  rank %-4d %35d %10s %10.0f  waits %s%s\n", worker.rank(),
        worker.clock(), LossText(worker.has_loss(), worker.loss()),
        worker.samples_per_second(), share,
        straggler == worker.rank() ? "  <- the others wait for it" : "");
  }
  return text;
}

}  // namespace

std::vector<std::optional<double>> WaitShares(const JobProgress& now,
                                              const JobProgress& before) {
  std::vector<std::optional<double>> shares;
  for (const WorkerProgress& worker : now.workers()) {
    const WorkerProgress* const earlier = FindRank(before, worker.rank());
    const WorkerProgress from =
        earlier == nullptr ? WorkerProgress() : *earlier;
    const double seconds = TotalSeconds(worker) - TotalSeconds(from);
    // A later attempt of the job counts from 0.
    const double waited = worker.wait_seconds() - from.wait_seconds();
    shares.push_back(
        seconds > 0 && waited >= 0
            ? std::optional<double>(std::min(waited / seconds, 1.0))
            : std::nullopt);
  }
  return shares;
}

std::optional<uint32_t> StragglerOf(const JobProgress& now,
                                    const JobProgress& before) {
  if (now.workers_size() < 2) return std::nullopt;
  if (!before.workers().empty() && now.clock() == before.clock()) {
    return LastRank(now);
  }
  const auto shares = WaitShares(now, before);
  int least = 0;
  double others = std::numeric_limits<double>::infinity();
  for (int i = 0; i < now.workers_size(); ++i) {
    if (!shares[i].has_value()) return std::nullopt;
    if (*shares[i] < *shares[least]) least = i;
  }
  for (int i = 0; i < now.workers_size(); ++i) {
    if (i != least) others = std::min(others, *shares[i]);
  }
  if (others < kNoticedShare || *shares[least] > others / 2) {
    return std::nullopt;
  }
  return now.workers(least).rank();
}

bool ChiefHoldsUp(const JobStatus& job) {
  const bool chief_evaluates = job.spec().data().has_test() &&
                               !job.has_evaluator() &&
                               !EvaluatesCheckpoints(job.spec());
  if (job.state() != RUNNING || !chief_evaluates ||
      !LeavesBehind(job.spec().consistency().mode())) {
    return false;
  }
  const WorkerProgress* const chief = FindRank(job.progress(), 0);
  if (chief == nullptr) return false;
  int64_t foremost = 0;
  int64_t per_epoch = 0;
  for (const WorkerProgress& worker : job.progress().workers()) {
    foremost = std::max(foremost, worker.clock());
    per_epoch = std::max(per_epoch, worker.clocks_per_epoch());
  }
  return per_epoch > 0 && foremost % per_epoch == 0 &&
         chief->clock() < foremost;
}

bool HasBackups(const JobStatus& job) {
  const ConsistencySpec& consistency = job.spec().consistency();
  return LeavesBehind(consistency.mode()) &&
         consistency.needed() < WorkersLeft(job);
}

std::optional<uint32_t> StragglerOf(const JobStatus& job,
                                    const JobProgress& now,
                                    const JobProgress& before) {
  if (ChiefHoldsUp(job)) return 0;
  return HasBackups(job) ? std::nullopt : StragglerOf(now, before);
}

std::string TopText(const TopSnapshot& now, const TopSnapshot& before) {
  std::map<std::string, JobProgress> earlier;
  for (const JobStatus& job : before.jobs) {
    if (job.state() == RUNNING) earlier[job.job_id()] = job.progress();
  }
  std::map<JobState, int> count;
  for (const JobStatus& job : now.jobs) ++count[job.state()];
  const auto free =
      std::count_if(now.cluster.members().begin(), now.cluster.members().end(),
                    [](const auto& entry) { return entry.job_id().empty(); });
  std::string text = absl::StrFormat(
      "scheduler %s  members %d (%d free)  running %d  preparing %d  queued "
      "%d\n\n",
      now.cluster.scheduler_address(), now.cluster.members_size(), free,
      count[RUNNING], count[PREPARING], count[QUEUED]);
  absl::StrAppendFormat(&text, "%-10s %-20s %-9s %12s %10s %10s\n", "JOB",
                        "NAME", "STATE", "CLOCK", "LOSS", "SAMPLES/S");
  for (const JobStatus& job : now.jobs) {
    absl::StrAppend(&text, JobLine(job));
    if (job.state() == RUNNING) {
      absl::StrAppend(&text, WorkerLines(job, earlier[job.job_id()]));
    }
  }
  absl::StrAppend(&text, "\n", ClusterTable(now.cluster));
  return text;
}

}  // namespace syncline::ctl
