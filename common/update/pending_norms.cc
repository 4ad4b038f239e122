#include "common/update/pending_norms.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace syncline {

PendingNorms::PendingNorms(NormReducer reducer)
    : reducer_(std::move(reducer)) {}

void PendingNorms::Reduce(uint32_t rank, uint64_t incarnation,
                          const ReductionRound& round,
                          absl::Span<const uint32_t> blocks,
                          absl::Span<const double> squared_norms,
                          absl::Time deadline, Done done) {
  NormReducer::Answers answers;
  {
    MutexLock lock(&mu_);
    const uint64_t token = next_token_++;
    waiting_[token] = std::move(done);
    reducer_.OnNorms(token, rank, incarnation, round, blocks, squared_norms,
                     deadline, &answers);
  }
  Answer(answers);
}

void PendingNorms::Answer(const NormReducer::Answers& answers) {
  for (const NormReducer::Answer& answer : answers) {
    Done done;
    {
      MutexLock lock(&mu_);
      const auto found = waiting_.find(answer.token);
      SYNCLINE_CHECK(found != waiting_.end());
      done = std::move(found->second);
      waiting_.erase(found);
      ++answering_;
    }
    if (answer.status.ok()) {
      done(answer.sums);
    } else {
      done(answer.status);
    }
    // All that it holds goes before AwaitCallbacks may return: what ends with a
    // job must not end on one of gRPC's threads.
    done = nullptr;
    MutexLock lock(&mu_);
    if (--answering_ == 0) answered_.SignalAll();
  }
}

void PendingNorms::Tick(absl::Time now, absl::Duration frozen) {
  NormReducer::Answers answers;
  {
    MutexLock lock(&mu_);
    reducer_.OnFrozen(frozen);
    reducer_.OnTick(now, &answers);
  }
  Answer(answers);
}

void PendingNorms::Close(const absl::Status& status) {
  NormReducer::Answers answers;
  {
    MutexLock lock(&mu_);
    reducer_.Close(status, &answers);
  }
  Answer(answers);
}

bool PendingNorms::AwaitCallbacks(absl::Time until) {
  MutexLock lock(&mu_);
  while (answering_ > 0 && MonotonicNow() < until) {
    answered_.WaitUntil(&mu_, until);
  }
  return answering_ == 0;
}

}  // namespace syncline
