#include "scheduler/core/job/worker_range.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "common/job/lease_rules.h"
#include "common/job/lost_workers.h"
#include "scheduler/core/job/job_checkpoints.h"
#include "scheduler/core/job/regime_history.h"

namespace syncline::scheduler {
namespace {

uint32_t HadOf(const JobStatus& job) { return WorkersLeft(job); }

// The range that the spec and users ask for, where workers may change.
WorkerRange SaidOf(const JobStatus& job) {
  const ResourcesSpec& resources = job.spec().resources();
  WorkerRange range;
  const uint32_t scaled = job.wanted_workers();
  range.wanted = scaled > 0 ? scaled : resources.workers();
  range.most =
      scaled > 0 ? scaled : std::max(range.wanted, resources.max_workers());
  range.least = range.wanted;
  const uint32_t had = HadOf(job);
  if (scaled > 0 && had > 0) range.least = std::min(range.least, had);
  if (resources.min_workers() > 0) {
    range.least = std::min(range.least, resources.min_workers());
  }
  return range;
}

// Other workers can take the place of those that the next attempt's start was
// made with: its first clock and the one before it keep.
bool MayBeginWithOthers(const JobStatus& job) {
  const int64_t clock = NextStart(job).clock;
  const std::vector<Regime> regimes = RegimesInForce(job);
  for (size_t i = 0; i < regimes.size(); ++i) {
    const int64_t end = i + 1 < regimes.size()
                            ? regimes[i + 1].first_clock()
                            : std::numeric_limits<int64_t>::max();
    const bool is_near = regimes[i].first_clock() <= clock && clock <= end;
    if (is_near && !KeepsClocks(job.spec(), regimes[i])) return false;
  }
  return true;
}

// The job has had workers, and `range` allows another number.
bool MayChange(const WorkerRange& range, uint32_t had) {
  return had > 0 && (range.least != had || range.most != had);
}

}  // namespace

bool KeepsClocks(const JobSpec& spec, const Regime& regime) {
  const ConsistencySpec::Mode mode = regime.consistency().mode();
  return LeasesData(spec) || mode == ConsistencySpec::SYNC ||
         mode == ConsistencySpec::MODE_UNSPECIFIED;
}

WorkerRange RangeOf(const JobStatus& job) {
  const WorkerRange range = SaidOf(job);
  const uint32_t had = HadOf(job);
  if (!MayChange(range, had) || MayBeginWithOthers(job)) return range;
  return {.least = had, .wanted = had, .most = had};
}

WorkerRange RangeAfterSave(const JobStatus& job) {
  const WorkerRange range = SaidOf(job);
  const uint32_t had = HadOf(job);
  if (!MayChange(range, had) ||
      KeepsClocks(job.spec(), RegimesInForce(job).back())) {
    return range;
  }
  return {.least = had, .wanted = had, .most = had};
}

}  // namespace syncline::scheduler
