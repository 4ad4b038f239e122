#ifndef SYNCLINE_COMMON_UPDATE_PENDING_STATISTICS_H_
#define SYNCLINE_COMMON_UPDATE_PENDING_STATISTICS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/update/statistics_reducer.h"
#include "proto/parameter_server.pb.h"

namespace syncline {

// A job's folds of statistics (FoldStatistics in proto/parameter_server.proto)
// with the calls that wait for them, at its ReductionRoot. Thread-safe.
// Callbacks run exactly once, on any thread, not under a lock.
class PendingStatistics {
 public:
  using Sums = absl::StatusOr<std::vector<double>>;
  using Done = absl::AnyInvocable<void(Sums)>;

  // As StatisticsReducer has them.
  PendingStatistics(std::vector<StatisticsReducer::Worker> workers,
                    std::string label);

  // The token is for Cancel; the call may have ended already. Errors:
  // InvalidArgument: a clock below 0; else StatisticsReducer's.
  uint64_t Reduce(const FoldStatisticsRequest& request, absl::Time deadline,
                  Done done);
  // Its caller gave up.
  void Cancel(uint64_t token);
  // `frozen`: for how long this process did not run since the last tick.
  void Tick(absl::Time now, absl::Duration frozen);
  // Ends what waits, and every later call, with `status`.
  void Close(const absl::Status& status);

  size_t parked_count() const;
  // As StatisticsReducer has it.
  absl::Time moved_at() const;

 private:
  // Outside the lock.
  void Answer(StatisticsReducer::Answers answers) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string label_;
  mutable Mutex mu_;
  StatisticsReducer reducer_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Done> waiting_ ABSL_GUARDED_BY(mu_);
  uint64_t next_token_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_PENDING_STATISTICS_H_
