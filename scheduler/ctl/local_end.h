#ifndef SYNCLINE_SCHEDULER_CTL_LOCAL_END_H_
#define SYNCLINE_SCHEDULER_CTL_LOCAL_END_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"

namespace syncline::ctl {

// Decides when `synctl local` no longer waits for its job: kTimeout after
// Ctrl-C or after the death of a daemon that the job needs. `now` is monotonic.
// Thread-compatible.
class LocalEnd {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(15);

  void Interrupt(absl::Time now);
  bool interrupted() const { return interrupted_; }

  // `alive`: not OK while a daemon that the job needs has ended, as
  // LocalCluster::CheckAlive returns it. A daemon ends before the scheduler
  // says whether the job goes on without it, so this may become OK again.
  void SetAlive(const absl::Status& alive, absl::Time now);

  // OK: waits on. `alive` of SetAlive: a daemon has ended, and the job in
  // `state` either does not notice that or has not ended in time. Cancelled: it
  // has not ended in time after Ctrl-C.
  absl::Status Check(JobState state, absl::Time now) const;

 private:
  bool interrupted_ = false;
  absl::Status alive_;
  absl::Time death_deadline_ = absl::InfiniteFuture();
  absl::Time interrupt_deadline_ = absl::InfiniteFuture();
};

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_LOCAL_END_H_
