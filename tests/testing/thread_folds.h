#ifndef SYNCLINE_TESTS_TESTING_THREAD_FOLDS_H_
#define SYNCLINE_TESTS_TESTING_THREAD_FOLDS_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "worker/ops/statistics_exchange.h"

namespace syncline::testing {

// Folds statistics between threads of this process, each of them a worker that
// takes part in every fold. Thread-safe.
class ThreadFolds {
 public:
  explicit ThreadFolds(size_t workers) : parts_(workers) {
    for (size_t rank = 0; rank < workers; ++rank) {
      ends_.push_back(std::make_unique<End>(this, rank));
    }
  }

  worker::StatisticsExchange* of(size_t rank) { return ends_[rank].get(); }
  // Folds that were completed.
  int count() {
    MutexLock lock(&mu_);
    return count_;
  }

 private:
  class End : public worker::StatisticsExchange {
   public:
    End(ThreadFolds* folds, size_t rank) : folds_(folds), rank_(rank) {}
    absl::Status Fold(absl::Span<double> values) override {
      return folds_->Fold(rank_, values);
    }

   private:
    ThreadFolds* const folds_;
    const size_t rank_;
  };

  absl::Status Fold(size_t rank, absl::Span<double> values) {
    MutexLock lock(&mu_);
    parts_[rank] = values;
    const int number = count_;
    if (++arrived_ == parts_.size()) {
      std::vector<double> sums(values.size());
      for (const absl::Span<double> part : parts_) {
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
      }
      // Under the lock, so that no other thread has gone on.
      for (const absl::Span<double> part : parts_) {
        std::copy(sums.begin(), sums.end(), part.begin());
      }
      arrived_ = 0;
      ++count_;
      changed_.SignalAll();
      return absl::OkStatus();
    }
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (count_ == number && absl::Now() < until) {
      changed_.WaitUntil(&mu_, until);
    }
    return count_ > number ? absl::OkStatus()
                           : absl::DeadlineExceededError("others are missing");
  }

  Mutex mu_;
  CondVar changed_;
  std::vector<absl::Span<double>> parts_ ABSL_GUARDED_BY(mu_);
  size_t arrived_ ABSL_GUARDED_BY(mu_) = 0;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<End>> ends_;  // const after construction
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_THREAD_FOLDS_H_
