#ifndef SYNCLINE_WORKER_OPS_STATISTICS_EXCHANGE_H_
#define SYNCLINE_WORKER_OPS_STATISTICS_EXCHANGE_H_

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace syncline::worker {

// True if a worker's part of a reduction, or the sums of all workers', are
// finite.
inline bool AreFinite(absl::Span<const double> values) {
  return std::all_of(values.begin(), values.end(),
                     [](double value) { return std::isfinite(value); });
}

// Where an operator adds up over all workers what it has measured of its own
// batch, in the middle of a step. The n-th call of a step is the same point of
// the same graph on every worker.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  // Replaces `values` by their sums over the workers that take part, in order
  // of rank: the same bits on all. Blocks until they are there. Errors end the
  // step; `values` is then unspecified.
  virtual absl::Status Fold(absl::Span<double> values) = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_STATISTICS_EXCHANGE_H_
