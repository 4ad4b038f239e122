#ifndef SYNCLINE_SCHEDULER_SERVICE_MEMBER_CERTIFICATES_H_
#define SYNCLINE_SCHEDULER_SERVICE_MEMBER_CERTIFICATES_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/system/periodic_task.h"
#include "scheduler/core/membership.h"

namespace syncline::scheduler {

// The certificates of the daemons whose sessions are open. A session outlives
// the look at its certificate when it began; this object looks again every
// kLookPeriod and tells which sessions have a certificate that was revoked, or
// has ended, meanwhile. Thread-safe.
class MemberCertificates {
 public:
  // With RevokedCertificates::kLookPeriod less than ClusterCore's grace, so
  // that a job hears of the loss before it fails for calls that others refuse.
  static constexpr absl::Duration kLookPeriod = absl::Milliseconds(500);

  // Errors: why the certificate `pem` counts no more.
  using Check = std::function<absl::Status(absl::string_view pem)>;
  // Called without a lock, on this object's thread, at each look until it
  // returns true. False: the session could not be ended now.
  using OnRevoked =
      std::function<bool(SessionId session, const absl::Status& why)>;
  // Called in the same way, once for a session. Its member may have been given
  // another certificate since: that one counts for its new connections, while
  // the session lives on with the connection that it began on.
  using OnEnded = std::function<void(SessionId session, absl::Time end)>;
  // A null `check`: nothing is ever revoked. A null `on_ended`: nobody is told.
  // Both: there is no thread.
  MemberCertificates(Check check, OnRevoked on_revoked,
                     OnEnded on_ended = nullptr);

  void Add(SessionId session, std::string pem) ABSL_LOCKS_EXCLUDED(mu_);
  // Idempotent.
  void Remove(SessionId session) ABSL_LOCKS_EXCLUDED(mu_);

  // One look at all sessions; the thread calls it. `now` by the wall clock.
  void Look(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Certificate {
    std::string pem;
    // InfiniteFuture: it is not known, or on_ended_ was told.
    absl::Time end = absl::InfiniteFuture();
    bool is_being_told = false;  // on_revoked_ runs
  };
  void LookForRevoked() ABSL_LOCKS_EXCLUDED(mu_);
  void LookForEnded(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

  const Check check_;
  const OnRevoked on_revoked_;
  const OnEnded on_ended_;
  Mutex mu_;
  std::map<SessionId, Certificate> certificates_ ABSL_GUARDED_BY(mu_);
  std::optional<PeriodicTask> looking_;  // last: its thread uses the rest
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_MEMBER_CERTIFICATES_H_
