#ifndef SYNCLINE_COMMON_UPDATE_PENDING_NORMS_H_
#define SYNCLINE_COMMON_UPDATE_PENDING_NORMS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/update/norm_reducer.h"

namespace syncline {

// A job's NormReducer with the calls that wait for its sums, at the job's
// ReductionRoot. Thread-safe. Callbacks run exactly once, on any thread, not
// under a lock.
class PendingNorms {
 public:
  // With NormReducer's sums.
  using Sums = absl::StatusOr<std::vector<double>>;
  using Done = std::function<void(Sums)>;

  explicit PendingNorms(NormReducer reducer);

  // Norms of the owner of rank `rank`, and when to give up. Errors:
  // NormReducer's.
  void Reduce(uint32_t rank, uint64_t incarnation, const ReductionRound& round,
              absl::Span<const uint32_t> blocks,
              absl::Span<const double> squared_norms, absl::Time deadline,
              Done done);
  // `frozen`: for how long this process did not run since the last tick.
  void Tick(absl::Time now, absl::Duration frozen);
  // Ends what waits, and every later call, with `status`.
  void Close(const absl::Status& status);
  // Waits until no callback runs and none is kept, or until `until`. True: so
  // it is. Not from a callback.
  bool AwaitCallbacks(absl::Time until) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Answer(const NormReducer::Answers& answers) ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  NormReducer reducer_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Done> waiting_ ABSL_GUARDED_BY(mu_);
  uint64_t next_token_ ABSL_GUARDED_BY(mu_) = 1;
  int answering_ ABSL_GUARDED_BY(mu_) = 0;  // callbacks that run
  CondVar answered_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_PENDING_NORMS_H_
