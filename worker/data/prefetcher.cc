#include "worker/data/prefetcher.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/system/thread_name.h"

namespace syncline::worker {
namespace {

// The reader has nothing to report while it waits for a slot; it only looks
// again, so that no wait is without an end.
constexpr absl::Duration kLookAgain = absl::Seconds(10);

}  // namespace

Prefetcher::Prefetcher(const Dataset* dataset, const Options& options)
    : dataset_(dataset),
      clocks_(options.clocks),
      first_clock_(options.first_clock),
      plan_(options.plan),
      slots_(options.depth + 1),
      read_(options.first_clock),
      consumed_(options.first_clock),
      next_(options.first_clock) {
  SYNCLINE_CHECK(first_clock_ >= 0 && first_clock_ <= clocks_);
  SYNCLINE_CHECK(options.depth > 0);
  SYNCLINE_CHECK(clocks_ == 0 || plan_.steps_per_epoch() > 0);
  thread_ = std::thread([this] { ReadAhead(); });
}

Prefetcher::~Prefetcher() {
  {
    MutexLock lock(&mu_);
    closed_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

absl::StatusOr<const Batch*> Prefetcher::Next(absl::Time deadline) {
  if (next_ == clocks_) {
    return absl::OutOfRangeError(
        absl::StrCat("no data after clock ", clocks_ - 1));
  }
  const absl::Time begin = MonotonicNow();
  {
    MutexLock lock(&mu_);
    while (read_ <= next_) {
      if (!changed_.WaitUntil(&mu_, deadline) && read_ <= next_) {
        waited_ns_ += absl::ToInt64Nanoseconds(MonotonicNow() - begin);
        return absl::DeadlineExceededError(
            absl::StrCat("the data of clock ", next_, " is still being read"));
      }
    }
    consumed_ = next_;  // the batch before this one is no longer borrowed
    changed_.SignalAll();
  }
  waited_ns_ += absl::ToInt64Nanoseconds(MonotonicNow() - begin);
  return &slots_[next_++ % slots_.size()];
}

void Prefetcher::SkipTo(int64_t clock) {
  SYNCLINE_CHECK(clock >= next_ && clock <= clocks_);
  MutexLock lock(&mu_);
  next_ = clock;
  consumed_ = clock;
  skipped_to_ = clock;
  changed_.SignalAll();
}

bool Prefetcher::IsSkipped(int64_t clock) {
  MutexLock lock(&mu_);
  return clock < skipped_to_;
}

const Batch* Prefetcher::Peek() {
  MutexLock lock(&mu_);
  return next_ < read_ ? &slots_[next_ % slots_.size()] : nullptr;
}

bool Prefetcher::AwaitSlot(int64_t clock) {
  MutexLock lock(&mu_);
  while (!closed_ && clock >= consumed_ + static_cast<int64_t>(slots_.size())) {
    changed_.WaitUntil(&mu_, MonotonicNow() + kLookAgain);
  }
  return !closed_;
}

void Prefetcher::ReadAhead() {
  SetThreadName("prefetch");
  const int64_t steps = plan_.steps_per_epoch();
  for (int64_t clock = first_clock_; clock < clocks_; ++clock) {
    if (!AwaitSlot(clock)) return;
    const auto samples = plan_.Indices(clock / steps, clock % steps);
    const BatchPlan::Moves moves = plan_.TakeMoves();
    for (const SampleRange& range : moves.soon) dataset_->WillRead(range);
    Batch& batch = slots_[clock % slots_.size()];
    if (!IsSkipped(clock)) dataset_->Read(samples, &batch);
    batch.first_in_step = plan_.FirstInStep(clock % steps);
    for (const SampleRange& range : moves.past) dataset_->HasRead(range);
    MutexLock lock(&mu_);
    read_ = clock + 1;
    changed_.SignalAll();
  }
}

}  // namespace syncline::worker
