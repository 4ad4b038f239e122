#ifndef SYNCLINE_WORKER_COLLECTIVES_PEER_RENDEZVOUS_H_
#define SYNCLINE_WORKER_COLLECTIVES_PEER_RENDEZVOUS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/job/job_pass.h"
#include "common/system/memory_claim.h"
#include "proto/collective.grpc.pb.h"
#include "worker/collectives/peer_meeting.h"
#include "worker/collectives/peer_transport.h"

namespace syncline::worker {

// The ranks that this rank is to meet, and the pass that they show each other.
struct PeerGroupPlan {
  PeerMeeting::Options meeting;
  JobPass pass;
  std::vector<uint64_t> incarnations;  // by rank of the group
};

// A worker's answer to the ranks that look for it. One for a process;
// proto/collective.proto has the contract. Thread-safe.
class PeersService final : public Peers::CallbackService {
 public:
  // Answers for a group from now on, until Remove. A later group epoch of a job
  // takes the place of an earlier one. `plan` and `meeting` outlive it.
  void Add(const PeerGroupPlan* plan, PeerMeeting* meeting)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns when no call uses it any more.
  void Remove(const PeerMeeting* meeting) ABSL_LOCKS_EXCLUDED(mu_);

  grpc::ServerUnaryReactor* Meet(grpc::CallbackServerContext* call,
                                 const MeetRequest* request,
                                 MeetResponse* response) override
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Group {
    const PeerGroupPlan* plan = nullptr;
    PeerMeeting* meeting = nullptr;
  };
  absl::Status Answer(const MeetRequest& request, MeetResponse* response)
      ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  std::map<std::string, Group> groups_ ABSL_GUARDED_BY(mu_);  // by job
};

// Makes a group: every rank of it calls this, at about the same time, with
// plans that agree. Blocks until all are connected, or `deadline` (of
// MonotonicNow()). `go_on` is asked between calls, every few seconds at least.
// Errors:
//   DeadlineExceeded    names the ranks that are missing, and why where known
//   Aborted             a rank forms another epoch of the group
//   FailedPrecondition, PermissionDenied, InvalidArgument: what a rank answered
//   what `go_on` returned
absl::StatusOr<std::unique_ptr<PeerTransport>> FormGroup(
    const PeerGroupPlan& plan, PeersService* service, absl::Time deadline,
    const GoOnCheck& go_on);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_PEER_RENDEZVOUS_H_
