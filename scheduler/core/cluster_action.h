#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_ACTION_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_ACTION_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/membership.h"

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

using ClusterAction =
    std::variant<SendCommand, EndSession, PersistJob, JobChanged, DeleteJob,
                 ConfirmAddress, AddressDoubted>;
using ClusterActions = std::vector<ClusterAction>;

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_ACTION_H_
