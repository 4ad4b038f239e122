#include "scheduler/ctl/local_end.h"

#include <algorithm>

#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {

void LocalEnd::Interrupt(absl::Time now) {
  interrupted_ = true;
  interrupt_deadline_ = std::min(interrupt_deadline_, now + kTimeout);
}

void LocalEnd::SetAlive(const absl::Status& alive, absl::Time now) {
  if (alive.ok()) {
    death_deadline_ = absl::InfiniteFuture();
  } else if (alive_.ok()) {
    death_deadline_ = now + kTimeout;
  }
  alive_ = alive;
}

absl::Status LocalEnd::Check(JobState state, absl::Time now) const {
  // The scheduler notices the loss of a daemon that has joined a job. Only
  // `synctl local` notices the loss of one that has not.
  const bool noticed = state == PREPARING || state == RUNNING;
  if (!alive_.ok() && !noticed && !HasEnded(state)) return alive_;
  if (now <= std::min(death_deadline_, interrupt_deadline_)) {
    return absl::OkStatus();
  }
  return alive_.ok() ? absl::CancelledError("interrupted") : alive_;
}

}  // namespace syncline::ctl
