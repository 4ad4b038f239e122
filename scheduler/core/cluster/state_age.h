#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_STATE_AGE_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_STATE_AGE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// The epoch of a scheduler that starts at `wall`, on a state whose last
// scheduler had `previous`. Where clocks are right it is larger than that of
// every earlier scheduler, also if the state is from a backup.
uint64_t NextEpoch(uint64_t previous, absl::Time wall);

// Tells from what daemons have seen whether this scheduler's state is older
// than its cluster, as after a restore from a backup. Epochs, attempts and
// numbers of jobs then go on above what the daemons report. Pure,
// thread-compatible.
//
// A number that no scheduler can have reached is a stranger's, and is ignored.
class StateAge {
 public:
  // `previous_epoch`: the last one in the state that this scheduler began with.
  // `epoch`: its own, larger one.
  StateAge(uint64_t previous_epoch, uint64_t epoch)
      : previous_epoch_(previous_epoch), epoch_(epoch) {}

  struct Finding {
    // The daemon knows a scheduler, or an attempt of its job, that this state
    // does not: the state is old.
    bool state_is_old = false;
    // The daemon has seen a scheduler that began after this one, which has been
    // replaced, and must not take the daemon back.
    bool is_replaced = false;
  };
  // What the state knows of attempts.
  struct Known {
    // Of the job that the process works for; 0: of none, or the state has not
    // got the job.
    uint32_t attempt_of_job = 0;
    uint32_t largest = 0;  // of all jobs
  };
  Finding OnRegister(const Register& request, const Known& known);

  uint64_t epoch() const { return epoch_; }
  // The largest that daemons have reported which know a later state, or larger
  // than all that the state knows; 0: none has. Jobs of the state go on with a
  // larger attempt. A backup may be of the scheduler that all daemons have seen
  // last, so its epoch alone does not tell.
  uint32_t attempt_floor() const { return attempt_floor_; }

  // The number of a job that a daemon has seen, for JobRecords; 0: none.
  static uint64_t JobNumberOf(const Register& request);

 private:
  const uint64_t previous_epoch_;
  const uint64_t epoch_;
  uint32_t attempt_floor_ = 0;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_STATE_AGE_H_
