#include "worker/data/prefetcher.h"

#include <algorithm>

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
      plan_(options.plan),
      rounds_{plan_.steps_per_epoch(), options.steps_of_clock},
      clocks_(options.clocks),
      steps_(rounds_.FirstStep(options.clocks)),
      first_step_(rounds_.FirstStep(options.first_clock)),
      leases_(options.leases),
      slots_(options.depth + 1) {
  SYNCLINE_CHECK(options.first_clock >= 0 && options.first_clock <= clocks_);
  SYNCLINE_CHECK(options.depth > 0);
  SYNCLINE_CHECK(!leases_ || options.steps_of_clock == 1);
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
  if (!leases_ && first_step_ + next_ == steps_) {
    return absl::OutOfRangeError(
        absl::StrCat("no data after clock ", clocks_ - 1));
  }
  const absl::Time begin = MonotonicNow();
  {
    MutexLock lock(&mu_);
    SYNCLINE_CHECK(!leases_ || next_ < given_count_);
    while (read_ <= next_) {
      if (!changed_.WaitUntil(&mu_, deadline) && read_ <= next_) {
        waited_ns_ += absl::ToInt64Nanoseconds(MonotonicNow() - begin);
        const int64_t step = leases_ ? given_.front() : first_step_ + next_;
        return absl::DeadlineExceededError(
            absl::StrCat("the data of clock ", rounds_.ClockOf(step),
                         " is still being read"));
      }
    }
    consumed_ = next_;  // the batch before this one is no longer borrowed
    changed_.SignalAll();
  }
  waited_ns_ += absl::ToInt64Nanoseconds(MonotonicNow() - begin);
  return &slots_[next_++ % slots_.size()];
}

void Prefetcher::AddStep(int64_t step) {
  MutexLock lock(&mu_);
  SYNCLINE_CHECK(leases_ && step < steps_ &&
                 (given_.empty() || given_.back() < step));
  given_.push_back(step);
  ++given_count_;
  changed_.SignalAll();
}

void Prefetcher::SkipTo(int64_t clock) {
  const int64_t number = rounds_.FirstStep(clock) - first_step_;
  SYNCLINE_CHECK(!leases_ && number >= next_ && first_step_ + number <= steps_);
  MutexLock lock(&mu_);
  next_ = number;
  consumed_ = number;
  skipped_to_ = first_step_ + number;
  changed_.SignalAll();
}

void Prefetcher::ShareAmong(int64_t clock, uint32_t workers, uint32_t rank) {
  const int64_t number = rounds_.FirstStep(clock) - first_step_;
  SYNCLINE_CHECK(!leases_ && number == next_ && rank < workers);
  MutexLock lock(&mu_);
  share_ = Share{.from = number, .workers = workers, .rank = rank};
  read_ = std::min(read_, number);
  consumed_ = number;
  changed_.SignalAll();
}

bool Prefetcher::IsSkipped(int64_t step) {
  MutexLock lock(&mu_);
  return step < skipped_to_;
}

const Batch* Prefetcher::Peek() {
  MutexLock lock(&mu_);
  return next_ < read_ ? &slots_[next_ % slots_.size()] : nullptr;
}

std::optional<int64_t> Prefetcher::AwaitStep(int64_t* number) {
  const auto slots = static_cast<int64_t>(slots_.size());
  MutexLock lock(&mu_);
  while (!closed_) {
    if (share_.has_value()) {
      plan_.ShareAmong(share_->workers, share_->rank);
      *number = share_->from;
      share_.reset();
    }
    const bool is_known =
        leases_ ? *number < given_count_ : first_step_ + *number < steps_;
    if (is_known && *number < consumed_ + slots) {
      return leases_ ? given_.front() : first_step_ + *number;
    }
    changed_.WaitUntil(&mu_, MonotonicNow() + kLookAgain);
  }
  return std::nullopt;
}

void Prefetcher::ReadAhead() {
  SetThreadName("prefetch");
  const int64_t in_epoch = plan_.steps_per_epoch();
  int64_t number = 0;
  while (const std::optional<int64_t> known = AwaitStep(&number)) {
    const int64_t step = *known;
    const auto samples = plan_.Indices(step / in_epoch, step % in_epoch);
    const BatchPlan::Moves moves = plan_.TakeMoves();
    for (const SampleRange& range : moves.soon) dataset_->WillRead(range);
    Batch& batch = slots_[number % slots_.size()];
    if (!IsSkipped(step)) dataset_->Read(samples, &batch);
    batch.first_in_step = rounds_.PlaceOf(step) * plan_.samples_per_step() +
                          plan_.FirstInStep(step % in_epoch);
    for (const SampleRange& range : moves.past) dataset_->HasRead(range);
    MutexLock lock(&mu_);
    if (share_.has_value()) continue;  // it is read again
    if (leases_) given_.pop_front();
    read_ = ++number;
    changed_.SignalAll();
  }
}

}  // namespace syncline::worker
