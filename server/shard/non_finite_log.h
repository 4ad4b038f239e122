#ifndef SYNCLINE_SERVER_SHARD_NON_FINITE_LOG_H_
#define SYNCLINE_SERVER_SHARD_NON_FINITE_LOG_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "kernels/optimizer/finite.h"

namespace syncline::ps {

// One shard's record of gradients that are not finite. It counts them by worker
// and logs them from time to time. Where the job's policy is to fail, it keeps
// the first as the job's failure. Thread-safe.
class NonFiniteLog {
 public:
  // `workers`: names by rank. `label`: "job j-0001 on ps:0 at 10.0.0.5:4000".
  NonFiniteLog(OnNonFinite policy, std::vector<std::string> workers,
               std::string label);

  // `what` of a worker's gradient of `clock`: "element 12 of 'w1'". Rank
  // kSum: every worker's is finite, but not their sum.
  static constexpr uint32_t kSum = ~uint32_t{0};
  void Found(uint32_t rank, int64_t clock, const std::string& what);

  // FailedPrecondition with worker, clock and place, once the job has failed.
  absl::Status failure() const;
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  // How often a gradient of this worker was not finite, since the job was
  // opened; 0 for the evaluator, which has a rank and no gradients.
  uint64_t CountOf(uint32_t rank) const {
    return rank < counts_.size() ? counts_[rank].load() : 0;
  }
  // How often something was found, in a sum over all workers too.
  uint64_t total() const { return total_.load(); }
  // The counts of an earlier process, before anything is found.
  // REQUIRES: one count for each worker.
  void Import(absl::Span<const uint64_t> counts, uint64_t total);
  uint32_t worker_count() const {
    return static_cast<uint32_t>(workers_.size());
  }

 private:
  const OnNonFinite policy_;
  const std::vector<std::string> workers_;
  const std::string label_;
  std::vector<std::atomic<uint64_t>> counts_;  // by rank
  std::atomic<uint64_t> total_{0};
  std::atomic<bool> failed_{false};

  mutable Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  absl::Time next_warning_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_NON_FINITE_LOG_H_
