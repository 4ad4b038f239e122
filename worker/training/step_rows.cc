#include "worker/training/step_rows.h"

#include <cstddef>
#include <optional>

#include "common/base/status_macros.h"

namespace syncline::worker {

StepRows::StepRows(const PreparedJob& job, int64_t clocks_total,
                   Prefetcher* prefetcher, ParameterExchange* parameters,
                   WorkerMetrics* metrics)
    : job_(job),
      prefetcher_(*prefetcher),
      parameters_(*parameters),
      metrics_(*metrics) {
  for (size_t t = 0; t < job.rows->current().size(); ++t) {
    const auto options = TrainingRowCache::OptionsOf(
        job.spec(), job.regimes, static_cast<int>(t),
        static_cast<size_t>(job.rows->current()[t]->dim()), clocks_total);
    caches_.push_back(options.has_value()
                          ? std::make_unique<TrainingRowCache>(*options)
                          : nullptr);
  }
}

absl::Status StepRows::Ready(int64_t clock, int64_t following,
                             const Batch& batch) {
  following_ = following;
  job_.rows->Advance();
  job_.executor->UseTables(job_.rows->current());
  if (next_clock_ == clock) return absl::OkStatus();
  Collect(batch, job_.rows->current());
  Select(clock, /*early=*/false, {}, job_.rows->current());
  SYNCLINE_RETURN_IF_ERROR(
      parameters_.PullRows(clock, /*cut_id=*/0, job_.rows->current()));
  Cache(clock, job_.rows->current());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LateGradient::Rows>> StepRows::ReadyLate(
    int64_t clock, int64_t following, bool reads) {
  following_ = following;
  Forget();
  const absl::Span<RowBatch* const> late = job_.rows->current();
  const absl::Span<RowBatch* const> again = job_.rows->next();
  if (reads) {
    for (size_t t = 0; t < late.size(); ++t) again[t]->CollectKeysOf(*late[t]);
    SYNCLINE_RETURN_IF_ERROR(parameters_.PullRows(clock, /*cut_id=*/0, again));
  }
  std::vector<LateGradient::Rows> rows;
  for (size_t t = 0; t < late.size(); ++t) {
    rows.push_back({.gradient = late[t]->gradients()});
    if (!reads) continue;
    rows.back().before = late[t]->values();
    rows.back().value = again[t]->values();
  }
  return rows;
}

// A pull for the next step waits for this step's push, because of the rows that
// both of them use. The others may be read at once, where the mode does not
// want this step of all workers in them.
void StepRows::PullEarly() {
  const std::optional<int64_t> bound = job_.regimes.At(following_).bound();
  if (bound == 0) return;
  const int64_t min_clock = bound.has_value() ? following_ - *bound : 0;
  parameters_.PullEarly(Collected(/*early=*/true), min_clock);
}

absl::Span<RowBatch* const> StepRows::Collected(bool early) {
  if (next_clock_ == following_) return job_.rows->next();
  const Batch* const batch = prefetcher_.Peek();
  if (batch == nullptr) return {};
  Collect(*batch, job_.rows->next());
  next_clock_ = following_;
  Select(following_, early, job_.rows->current(), job_.rows->next());
  return job_.rows->next();
}

void StepRows::Select(int64_t clock, bool early,
                      absl::Span<RowBatch* const> current,
                      absl::Span<RowBatch* const> rows) {
  for (size_t t = 0; t < rows.size(); ++t) {
    const RowBatch* const pushed = current.empty() ? nullptr : current[t];
    if (caches_[t] != nullptr) {
      caches_[t]->Select(clock, pushed, early, rows[t]);
      metrics_.OnCachedRows(rows[t]->keys().size(), rows[t]->wanted().size());
    } else if (early) {
      rows[t]->WantEarly([&](int64_t key) { return !pushed->Reads(key); });
    }
  }
}

void StepRows::OnGradient(int64_t clock, uint64_t samples) {
  for (size_t t = 0; t < caches_.size(); ++t) {
    if (caches_[t] == nullptr) continue;
    caches_[t]->Update(
        clock, samples, *job_.rows->current()[t],
        next_clock_ == following_ ? job_.rows->next()[t] : nullptr);
  }
}

void StepRows::OnPulled() {
  if (next_clock_ == following_) Cache(following_, job_.rows->next());
}

void StepRows::Cache(int64_t clock, absl::Span<RowBatch* const> rows) {
  for (size_t t = 0; t < rows.size(); ++t) {
    if (caches_[t] != nullptr) caches_[t]->Keep(clock, rows[t]);
  }
}

}  // namespace syncline::worker
