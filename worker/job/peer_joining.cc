#include "worker/job/peer_joining.h"

#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/job/evaluate_validator.h"
#include "common/job/job_pass.h"
#include "common/rpc/transport_security.h"
#include "worker/collectives/peer_rendezvous.h"

namespace syncline::worker {

JoinPeers MakeJoinPeers(PeersService* service, const std::string& listen,
                        bool shared_memory) {
  return [=](const JobAssignment& assignment, PeerGroup group,
             absl::Duration patience, const GoOnCheck& go_on)
             -> absl::StatusOr<std::unique_ptr<PeerTransport>> {
    SYNCLINE_ASSIGN_OR_RETURN(const HostPort own,
                              ParseHostPort(listen, PortZero::kAllowed));
    PeerGroupPlan plan;
    plan.meeting.group = std::move(group);
    plan.meeting.listen_host = own.host;
    plan.meeting.shared_memory = shared_memory;
    plan.meeting.plain_tcp = ProcessSecurity() == nullptr;
    plan.pass = PassOf(assignment);
    for (const Participant& worker : assignment.workers()) {
      plan.incarnations.push_back(worker.member().incarnation());
    }
    if (assignment.has_evaluator() &&
        !EvaluatesCheckpoints(assignment.spec())) {
      plan.incarnations.push_back(
          assignment.evaluator().member().incarnation());
    }
    return FormGroup(plan, service, MonotonicNow() + patience, go_on);
  };
}

}  // namespace syncline::worker
