#ifndef SYNCLINE_WORKER_RETRY_POLICY_H_
#define SYNCLINE_WORKER_RETRY_POLICY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/random.h"

namespace syncline {

// Decides what follows an attempt of one call to a ps. Pure: results and `now`
// go in, a decision comes out. Thread-compatible.
//
//   OK, and errors that no repetition mends    finish
//   Unavailable, ResourceExhausted             resend after a backoff
//   DeadlineExceeded (others have not come)    probe: ask the shard how far its
//                                              workers are, then resend
//
// All of this ends once `patience` has passed without a sign of progress, and
// progress is only what a probe shows: another worker moved since the probe
// before. So a slow worker is waited for and a dead one is not.
class RetryPolicy {
 public:
  enum class Next { kFinish, kResend, kProbe };
  struct Decision {
    Next next = Next::kFinish;
    absl::Duration delay;  // before a resend
  };

  RetryPolicy(absl::Time now, absl::Duration patience, uint64_t jitter_seed);

  // How long one attempt may wait at the server: two of them, and the probes
  // after each, show whether anything moved within `patience`.
  static absl::Duration AttemptWait(absl::Duration patience) {
    return patience / 2;
  }

  Decision OnResult(absl::StatusCode code, absl::Time now);
  // `standing` is any text that changes exactly when a worker moves; empty if
  // the shard could not be asked. Returns kResend or kFinish.
  Decision OnProbe(absl::string_view standing, absl::Time now);

  int attempts() const { return attempts_; }

 private:
  const absl::Duration patience_;
  absl::Time deadline_;
  Random jitter_;
  std::string standing_;
  int attempts_ = 0;
  int retries_ = 0;  // after which the backoff grows
};

}  // namespace syncline

#endif  // SYNCLINE_WORKER_RETRY_POLICY_H_
