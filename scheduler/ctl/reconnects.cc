#include "scheduler/ctl/reconnects.h"

#include <utility>

namespace syncline::ctl {
namespace {

constexpr absl::Duration kReconnectFor = absl::Seconds(20);
constexpr absl::Duration kRetryInterval = absl::Milliseconds(200);

}  // namespace

absl::Status Reconnects::Await(const absl::Status& ended, absl::Time now,
                               InterruptSignals* interrupts) {
  if (std::exchange(heard_now_, false) || failing_since_ > now) {
    failing_since_ = now;
  }
  if (!heard_ || !absl::IsUnavailable(ended) ||
      now - failing_since_ > kReconnectFor) {
    return ended;
  }
  if (interrupts->WaitFor(kRetryInterval)) {
    return absl::CancelledError("interrupted");
  }
  return absl::OkStatus();
}

}  // namespace syncline::ctl
