#ifndef SYNCLINE_TESTS_TESTING_FAKES_COUNTING_DATASET_H_
#define SYNCLINE_TESTS_TESTING_FAKES_COUNTING_DATASET_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "worker/data/dataset.h"

namespace syncline {

// Samples that are not stored: sample i has the feed value i and the label i,
// or i modulo `classes` if that is above 0. Its reads are recorded, and can be
// held. Thread-safe.
class CountingDataset final : public worker::Dataset {
 public:
  explicit CountingDataset(int64_t size, int64_t classes = 0,
                           std::vector<uint8_t> buckets = {})
      : size_(size), classes_(classes), buckets_(std::move(buckets)) {}

  int64_t size() const override { return size_; }
  absl::Span<const uint8_t> buckets() const override { return buckets_; }
  void Read(absl::Span<const int64_t> indices,
            worker::Batch* batch) const override {
    {
      MutexLock lock(&mu_);
      ++begun_;
      read_.insert(read_.end(), indices.begin(), indices.end());
      changed_.SignalAll();
      while (held_) changed_.WaitUntil(&mu_, absl::Now() + absl::Seconds(1));
    }
    batch->size = static_cast<int64_t>(indices.size());
    batch->feeds.assign(1, {indices.begin(), indices.end()});
    batch->labels.clear();
    for (const int64_t i : indices) {
      batch->labels.push_back(
          static_cast<float>(classes_ > 0 ? i % classes_ : i));
    }
  }

  // While held, a read that has begun does not end.
  void Hold(bool held) {
    MutexLock lock(&mu_);
    held_ = held;
    changed_.SignalAll();
  }
  // False: fewer within ten seconds.
  bool AwaitReads(int count) const {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    MutexLock lock(&mu_);
    while (begun_ < count) {
      if (!changed_.WaitUntil(&mu_, deadline)) return begun_ >= count;
    }
    return true;
  }
  int reads() const {
    MutexLock lock(&mu_);
    return begun_;
  }
  // The samples of all reads, in order.
  std::vector<int64_t> read() const {
    MutexLock lock(&mu_);
    return read_;
  }

 private:
  const int64_t size_;
  const int64_t classes_;
  const std::vector<uint8_t> buckets_;
  mutable Mutex mu_;
  mutable CondVar changed_;
  mutable int begun_ ABSL_GUARDED_BY(mu_) = 0;
  mutable std::vector<int64_t> read_ ABSL_GUARDED_BY(mu_);
  bool held_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_FAKES_COUNTING_DATASET_H_
