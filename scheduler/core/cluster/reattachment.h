#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_REATTACHMENT_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_REATTACHMENT_H_

#include <string>

#include "absl/time/time.h"
#include "scheduler/core/membership.h"

namespace syncline::scheduler {

// The time after a scheduler's start in which the members of jobs that an
// earlier scheduler ran may come back. Until then they are absent: members as
// those whose streams have closed, with a session of no stream. Pure,
// thread-compatible.
class Reattachment {
 public:
  explicit Reattachment(absl::Duration window) : window_(window) {}

  // The scheduler has started.
  void Begin(absl::Time now) { started_ = now; }
  // Of one more absent member; never the same twice.
  SessionId NextSession() { return next_++; }
  // Members that are still absent then are lost.
  absl::Time until() const { return started_ + window_; }

  // Why an absent member is lost, for people. It has not come back in time; its
  // address has told that its process is dead.
  std::string NotBackText() const;
  std::string DeadText() const;
  // It came back, but is not with that attempt of the job: `why`.
  std::string OtherText(absl::string_view why) const;

 private:
  const absl::Duration window_;
  absl::Time started_ = absl::InfinitePast();
  SessionId next_ = kAbsentSessions;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_REATTACHMENT_H_
