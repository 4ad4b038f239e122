// Steps that the others make without this rank, and shares of ranks that the
// others go on without: Trainer's part of it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/system/log.h"
#include "worker/compute/late_gradient.h"
#include "worker/training/trainer.h"

namespace syncline::worker {

// The last step is made even where its push will be dropped: the cut at the
// job's end is announced before it and read after it.
int64_t Trainer::ClockAfter(int64_t clock) const {
  return std::max(clock + 1,
                  std::min(parameters_.open_clock(), epochs_.clocks_total - 1));
}

absl::Status Trainer::LeaveOut(int64_t clock, int64_t* next) {
  // The others go on while this rank reads, but not past a cut of the chief's.
  constexpr int kTriesMax = 4;
  for (int tries = 1;; ++tries) {
    if (!ReadsCutAt(*next)) {
      SYNCLINE_RETURN_IF_ERROR(parameters_.Pull(*next));
    }
    const int64_t open = ClockAfter(*next - 1);
    // A step is made at a clock whose values were read. Where the others are
    // past it by now, its push is dropped.
    if (open == *next || tries == kTriesMax) break;
    *next = open;
  }
  if (MayWarn()) {
    LogWarning("the others have gone on without this worker")
        .Job(job_.assignment.job_id())
        .Field("clock", clock)
        .Field("goes_on_at_clock", *next);
  }
  prefetcher_.SkipTo(*next);
  if (rows_.has_value()) rows_->Forget();
  if (checkpoints_.has_value()) {
    for (int64_t left = clock + 1; left < *next; ++left) {
      checkpoints_->PutOff(left, left + 1);
    }
  }
  return absl::OkStatus();
}

void Trainer::FollowLosses(int64_t clock) {
  const auto lost = parameters_.lost_workers();
  std::vector<uint32_t> ranks;
  for (const ParameterExchange::LostWorker& worker : lost) {
    if (worker.first_clock <= clock) ranks.push_back(worker.rank);
  }
  if (ranks.size() == lost_workers_) return;
  lost_workers_ = ranks.size();
  const auto workers = static_cast<size_t>(job_.assignment.workers_size());
  const auto before =
      std::count_if(ranks.begin(), ranks.end(),
                    [this](uint32_t rank) { return rank < job_.rank; });
  prefetcher_.ShareAmong(clock, static_cast<uint32_t>(workers - ranks.size()),
                         job_.rank - static_cast<uint32_t>(before));
  // The rows that were read ahead are of a batch by the old share.
  if (rows_.has_value()) rows_->Forget();
  LogWarning("a worker was lost, and the others share its samples")
      .Job(job_.assignment.job_id())
      .Field("rank", ranks.back())
      .Field("from_clock", clock)
      .Field("workers", workers - ranks.size());
}

absl::Status Trainer::PushLate(OpenStep* step) {
  prefetcher_.SkipTo(step->clock + 1);
  std::vector<LateGradient::Rows> rows;
  if (rows_.has_value()) {
    SYNCLINE_ASSIGN_OR_RETURN(
        rows, rows_->ReadyLate(step->clock, step->next_clock,
                               /*reads=*/job_.late->compensates()));
    step->times.wait = step->watch.Lap();
    profiler_.Record({{StepProfile::ROWS, step->times.wait}});
  }
  const LateGradient::Late late = job_.late->Take(step->clock, rows);
  step->is_late = true;
  step->samples = late.samples;
  step->loss_sum = late.loss_sum;
  parameters_.BeginStep({.clock = step->clock,
                         .sample_count = step->samples,
                         .is_late = true,
                         .finished = step->is_last,
                         .pull = step->pulls,
                         .rows = rows_.has_value()
                                     ? rows_->current()
                                     : absl::Span<RowBatch* const>()});
  for (size_t tensor = 0; tensor < job_.training.parameters.size(); ++tensor) {
    parameters_.OnGradientReady(static_cast<uint32_t>(tensor));
  }
  return absl::OkStatus();
}

}  // namespace syncline::worker
