#ifndef SYNCLINE_SCHEDULER_CORE_JOB_JOB_HEALTH_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_JOB_HEALTH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/job_spec.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/job/job_members.h"
#include "scheduler/core/job/progress_watchdog.h"
#include "scheduler/core/unreachable_pairs.h"

namespace syncline::scheduler {

// Says why a job cannot go on although all its members heartbeat: two of them
// do not reach each other, one stands still, or one has failed for a reason
// that may be the consequence of another fault. Pure, thread-compatible.
class JobHealth {
 public:
  // `root_cause_grace`: how long a failure that may be a consequence waits for
  // its cause to be noticed.
  JobHealth(const JobSpec& spec, absl::Duration root_cause_grace);

  // The members begin to train, over `clocks_total` clocks.
  void BeginRun(const JobMembers& members, int64_t clocks_total,
                absl::Time now);
  // `reporter` says that it cannot reach `peer`.
  void OnUnreachable(const Member& reporter, const Member& peer,
                     const PeerUnreachable& report, absl::Time now);
  // A report of a member of a running job. An evaluation that is not new is a
  // repeat, and no progress.
  void OnReport(const Member& member, const WorkerReport& report,
                bool has_new_evaluation, absl::Time now);
  // The member is done with its part. REQUIRES: BeginRun.
  void OnDone(const Member& member);
  // The others go on without the member, and whatever it has said of itself or
  // of others. REQUIRES: BeginRun.
  void OnLost(const Member& member);
  // All members are done: a suspicion is void.
  void OnAllDone() { suspicion_.reset(); }
  // The member has failed with `code`. True if that may be a consequence: of an
  // outage, or, where the failure is `retryable`, of members that do not reach
  // each other. Check then returns the first such reason once the grace is
  // over, unless the cause ended the job before.
  bool OnFailure(const Member& member, int code, bool retryable,
                 absl::string_view reason, absl::Time now);

  // ProgressWatchdog's; InfinitePast before BeginRun.
  absl::Time moved_within_clock() const {
    return watchdog_.has_value() ? watchdog_->moved_within_clock()
                                 : absl::InfinitePast();
  }

  // Why the job cannot go on; nothing if it can.
  std::optional<std::string> Check(absl::Time now) const;

 private:
  struct Suspicion {
    std::string reason;
    absl::Time until;
    uint64_t incarnation = 0;  // of the member that has failed
  };

  const absl::Duration unreachable_max_;
  const absl::Duration standstill_max_;
  const absl::Duration root_cause_grace_;
  const bool evaluations_hold_;  // the workers
  UnreachablePairs unreachable_;
  std::optional<ProgressWatchdog> watchdog_;  // from BeginRun on
  std::optional<Suspicion> suspicion_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_JOB_HEALTH_H_
