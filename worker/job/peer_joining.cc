#include "worker/job/peer_joining.h"

#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/job/job_pass.h"
#include "common/rpc/transport_security.h"
#include "worker/collectives/peer_rendezvous.h"

namespace syncline::worker {

namespace {

// Of the worker, or the evaluator, with this address. 0: there is none, and
// whoever answers there is refused.
uint64_t IncarnationAt(const JobAssignment& assignment,
                       const std::string& address) {
  for (const Participant& worker : assignment.workers()) {
    if (worker.member().address() == address) {
      return worker.member().incarnation();
    }
  }
  const Member& evaluator = assignment.evaluator().member();
  return evaluator.address() == address ? evaluator.incarnation() : 0;
}

}  // namespace

JoinPeers MakeJoinPeers(PeersService* service, const std::string& listen,
                        bool shared_memory) {
  return [=](const JobAssignment& assignment, PeerGroup group,
             absl::Duration patience, const GoOnCheck& go_on)
             -> absl::StatusOr<std::unique_ptr<PeerTransport>> {
    SYNCLINE_ASSIGN_OR_RETURN(const HostPort own,
                              ParseHostPort(listen, PortZero::kAllowed));
    PeerGroupPlan plan;
    for (const PeerGroup::Peer& peer : group.peers) {
      plan.incarnations.push_back(IncarnationAt(assignment, peer.address));
    }
    plan.meeting.group = std::move(group);
    plan.meeting.listen_host = own.host;
    plan.meeting.shared_memory = shared_memory;
    plan.meeting.encrypts = ProcessSecurity() != nullptr;
    plan.pass = PassOf(assignment);
    return FormGroup(plan, service, MonotonicNow() + patience, go_on);
  };
}

}  // namespace syncline::worker
