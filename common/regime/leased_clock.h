#ifndef SYNCLINE_COMMON_REGIME_LEASED_CLOCK_H_
#define SYNCLINE_COMMON_REGIME_LEASED_CLOCK_H_

#include <algorithm>
#include <cstdint>

namespace syncline {

// Leased data (common/job/lease_rules.h): the first clock of each rank in an
// attempt that begins at `start`, which shard 0 and the worker know without a
// message. `total`, the job's number of clocks: there is none for it.
inline int64_t FirstLeasedClock(int64_t start, uint32_t rank, int64_t total) {
  return std::min(start + rank, total);
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_REGIME_LEASED_CLOCK_H_
