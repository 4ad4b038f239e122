#ifndef SYNCLINE_COMMON_UPDATE_ROW_EXPIRY_H_
#define SYNCLINE_COMMON_UPDATE_ROW_EXPIRY_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/time/time.h"

namespace syncline {

// When a row goes. See ExpirySpec in proto/job_spec.proto.
struct ExpiryOptions {
  int64_t unseen_clocks = 0;                          // 0: never
  absl::Duration unseen_time = absl::ZeroDuration();  // zero: never
  float min_score = 0;                                // 0: never
  float decay = 0.98f;
  int64_t decay_clocks = 1;  // > 0
};

// Says whether a row has expired: a function of its past, the clock, and
// `too_old`, the clock before which rows are older than unseen_time. Immutable,
// hence thread-safe.
class RowExpiry {
 public:
  enum class Verdict { kLives, kTooOld, kTooLowScore };

  explicit RowExpiry(const ExpiryOptions& options);

  bool enabled() const { return by_age_ || by_score_; }

  // The past of a row: its score up to `row_clock`, when it was last pushed.
  Verdict Judge(float score, uint32_t row_clock, uint32_t clock,
                uint32_t too_old) const;

  // How many clocks may pass between two full looks for expired rows, so that
  // few that could have gone are still there and the looks cost little.
  int64_t SweepClocks() const;

  // The score at `clock`, decayed from `row_clock`.
  float ScoreAt(float score, uint32_t row_clock, uint32_t clock) const;

 private:
  const ExpiryOptions options_;
  const bool by_age_;
  const bool by_score_;
  std::vector<float> powers_;  // of decay
};

// Turns "unseen for a time" into "last pushed before a clock": remembers when
// clocks began, about 64 points over the time that matters. While no clock
// passes, nothing grows too old. Thread-compatible.
class ClockHistory {
 public:
  explicit ClockHistory(absl::Duration unseen_time)
      : unseen_time_(unseen_time) {}

  // `clock` is the current one at `now`; neither ever goes back.
  void Observe(uint32_t clock, absl::Time now);
  // Rows pushed before this clock are too old, at the time last observed.
  uint32_t too_old() const { return too_old_; }

  // The state. Times are ages, so that it means the same to a process with
  // another clock; the time between Export and Import makes no row older.
  struct Past {
    struct Point {
      absl::Duration age;
      uint32_t clock = 0;
    };
    uint32_t too_old = 0;
    std::vector<Point> points;  // ages descend, clocks ascend
  };
  Past Export(absl::Time now) const;
  // REQUIRES: Observe was not called yet.
  void Import(const Past& past, absl::Time now);

 private:
  struct Point {
    absl::Time time;
    uint32_t clock;
  };
  const absl::Duration unseen_time_;
  std::deque<Point> points_;
  uint32_t too_old_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_ROW_EXPIRY_H_
