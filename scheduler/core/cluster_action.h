#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_ACTION_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_ACTION_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/membership.h"
#include "scheduler/core/stored_event.h"

namespace syncline::scheduler {

// An instruction of the scheduler's pure core to its shell. The shell carries
// them out in order.

struct SendCommand {
  SessionId session = 0;
  SchedulerMessage message;
};
// The stream ends with `status`; its later messages are ignored.
struct EndSession {
  SessionId session = 0;
  absl::Status status;
};
// The job's record has changed. `durable`: written through before anything that
// follows.
struct PersistJob {
  std::string job_id;
  bool durable = true;
};
// For watchers. `transition`: its state is another one.
struct JobChanged {
  std::string job_id;
  bool transition = false;
};
// The job is past its keeping time: its files are deleted, and with `record`
// its record, too.
struct DeleteJob {
  std::string job_id;
  bool record = false;
};

// Asks the process at `address` whether it is `incarnation`; the answer goes to
// OnAddressAnswer.
struct ConfirmAddress {
  SessionId session = 0;
  std::string address;
  uint64_t incarnation = 0;
};
// A member whose address was not confirmed, for the first time.
struct AddressDoubted {
  std::string member;
  std::string why;
};
// The checkpoint that TakeCheckpoint of this number has asked for: it is whole,
// or why there is none.
struct CheckpointAnswered {
  uint64_t request = 0;
  absl::StatusOr<CheckpointInfo> outcome;
};
// Something has happened to a job: to be kept with its record. `left_out`: the
// number of an event that is to be forgotten for it; 0: none.
struct AppendEvent {
  std::string job_id;
  StoredEvent event = {};
  uint64_t left_out = 0;
};

// The epoch of a newer scheduler, which a daemon has seen: the next start on
// this state begins above it.
struct PersistEpoch {
  uint64_t epoch = 0;
};
// A member that an earlier scheduler gave a job has come back to it.
struct MemberReattached {
  std::string member;
  std::string job_id;
};
// A member is none any more, and has not left by itself. `member`: with its
// host and process.
struct MemberLost {
  std::string member;
  std::string why;
};
// The state is older than what `member` has seen, as after a restore from a
// backup.
struct StateIsOld {
  std::string member;
};

using ClusterAction =
    std::variant<SendCommand, EndSession, PersistJob, JobChanged, DeleteJob,
                 ConfirmAddress, AddressDoubted, CheckpointAnswered,
                 AppendEvent, PersistEpoch, MemberReattached, MemberLost,
                 StateIsOld>;
using ClusterActions = std::vector<ClusterAction>;

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_ACTION_H_
