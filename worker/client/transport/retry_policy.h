#ifndef SYNCLINE_WORKER_CLIENT_TRANSPORT_RETRY_POLICY_H_
#define SYNCLINE_WORKER_CLIENT_TRANSPORT_RETRY_POLICY_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/random.h"

namespace syncline::worker {

// Decides what follows an attempt of one call to a ps. Pure: results and `now`
// go in, a decision comes out. Thread-compatible.
//
//   OK, and errors that no repetition mends    finish
//   Unavailable, ResourceExhausted             resend after a backoff
//   DeadlineExceeded (others have not come)    resend
//
// The policy gives up when the shard has made no progress for `patience`.
// Before that it asks the shard (a probe). If the shard made progress later
// than the policy knew, the wait goes on from then. So a worker whose step
// takes a little less than the patience is waited for, and a dead one no longer
// than that. A ps that does not answer at all is given up when it has been out
// of reach for `patience`.
//
// An attempt that ends much later than it could have waited ended in a process
// that was frozen (SIGSTOP, a virtual machine's pause). This process could not
// see any progress meanwhile, so that time does not count.
class RetryPolicy {
 public:
  enum class Next { kFinish, kResend, kProbe };
  struct Decision {
    Next next = Next::kFinish;
    absl::Duration delay = absl::ZeroDuration();  // before a resend
  };

  RetryPolicy(absl::Time now, absl::Duration patience, uint64_t jitter_seed);

  // The longest that one attempt may wait at the server.
  static absl::Duration LongestAttempt(absl::Duration patience) {
    return patience / 2;
  }
  // How much later than that an attempt ends where nothing is frozen.
  static constexpr absl::Duration kLateMax = absl::Seconds(4);
  // How long the attempt that begins now may wait: not much longer than the
  // policy does.
  absl::Duration NextAttempt(absl::Time now);

  Decision OnResult(absl::StatusCode code, absl::Time now);
  // The attempt ended because the ps had said nothing when it should have, not
  // even that it waits: it is asked whether it can be reached.
  Decision OnUnanswered(absl::Time now);
  // `quiet`: the time since the last progress on the shard; none if it could
  // not be asked. Returns kResend or kFinish.
  Decision OnProbe(std::optional<absl::Duration> quiet, absl::Time now);

  // A repetition waited for so long until it could be sent, behind other calls
  // to the ps. That is no silence of the ps, so it does not count.
  void OnHeldBack(absl::Duration time) { LeaveOut(time); }

  int attempts() const { return attempts_; }

 private:
  // Leaves out the time in which this process was frozen.
  void SkipFrozen(absl::Time now);
  void LeaveOut(absl::Duration time);

  const absl::Duration patience_;
  absl::Time deadline_;  // unless there is progress before
  absl::Time reached_;   // the ps is known to have answered then
  absl::Time attempt_end_ = absl::InfiniteFuture();
  Random jitter_;
  int attempts_ = 0;
  int retries_ = 0;  // after which the backoff grows
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_TRANSPORT_RETRY_POLICY_H_
