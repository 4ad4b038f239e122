#ifndef SYNCLINE_SERVER_CONSISTENCY_STRAGGLER_LOG_H_
#define SYNCLINE_SERVER_CONSISTENCY_STRAGGLER_LOG_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace syncline::ps {

// Which worker of a job the others wait for, and for how long: the blame. A
// worker is to blame while it alone holds others up, so what it would have to
// do sooner is what the job would save. Pure, thread-compatible.
class StragglerLog {
 public:
  struct Blame {
    absl::Duration time;
    uint64_t clocks = 0;  // that ended with this worker, whom others waited for
  };
  // The clock that a worker has open while others wait for it.
  struct Holder {
    uint32_t rank = 0;
    int64_t clock = 0;

    friend bool operator==(const Holder&, const Holder&) = default;
  };

  explicit StragglerLog(size_t workers) : blames_(workers) {}

  // From `now` on this worker alone holds others up; nothing: none does. Called
  // after each event. REQUIRES: the rank is a worker's.
  void Update(const std::optional<Holder>& holder, absl::Time now);
  // This process did not run for so long: nobody is to blame for that.
  void OnFrozen(absl::Duration frozen) { since_ += frozen; }
  // The wait that goes on is in it.
  Blame Of(uint32_t rank, absl::Time now) const;

 private:
  std::vector<Blame> blames_;  // by rank; of waits that are over
  std::optional<Holder> holder_;
  absl::Time since_;  // of holder_
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_STRAGGLER_LOG_H_
