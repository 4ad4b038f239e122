#include "scheduler/core/cluster/state_age.h"

#include <algorithm>

namespace syncline::scheduler {
namespace {

// Epochs are milliseconds of the wall clock or a little more (NextEpoch); half
// of this is the year 2500.
constexpr uint64_t kEpochMax = 2 * 16'725'225'600'000;
constexpr uint32_t kAttemptMax = 1'000'000;
constexpr uint64_t kJobNumberMax = 1'000'000'000;

}  // namespace

uint64_t NextEpoch(uint64_t previous, absl::Time wall) {
  const int64_t milliseconds = std::max<int64_t>(absl::ToUnixMillis(wall), 0);
  // A clock that is far off must not leave the range that daemons may report.
  return std::max(
      previous + 1,
      std::min<uint64_t>(static_cast<uint64_t>(milliseconds), kEpochMax / 2));
}

StateAge::Finding StateAge::OnRegister(const Register& request,
                                       const Known& known) {
  const uint64_t seen = request.scheduler_epoch();
  if (seen > epoch_ && seen < kEpochMax) {
    return {.state_is_old = true, .is_replaced = true};
  }
  const bool saw_another =
      seen > previous_epoch_ && seen < kEpochMax && seen != epoch_;
  if (request.attempt() > kAttemptMax) return {.state_is_old = saw_another};
  const bool saw_a_later_attempt =
      known.attempt_of_job > 0 &&
      request.held().attempt() > known.attempt_of_job;
  if (saw_another || saw_a_later_attempt || request.attempt() > known.largest) {
    attempt_floor_ = std::max(attempt_floor_, request.attempt());
  }
  return {.state_is_old = saw_another || saw_a_later_attempt};
}

uint64_t StateAge::JobNumberOf(const Register& request) {
  return request.job_number() <= kJobNumberMax ? request.job_number() : 0;
}

}  // namespace syncline::scheduler
