#ifndef SYNCLINE_COMMON_BASE_CLOCK_H_
#define SYNCLINE_COMMON_BASE_CLOCK_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace syncline {

// Where shells read the time; pure cores get `now` as an argument instead.
// Thread-safe. (A training step is also called a clock; that one is an int64_t
// named `clock`.)
class TimeSource {
 public:
  virtual ~TimeSource() = default;
  virtual absl::Time Now() const { return absl::Now(); }
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_CLOCK_H_
