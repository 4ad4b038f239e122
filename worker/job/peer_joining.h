#ifndef SYNCLINE_WORKER_JOB_PEER_JOINING_H_
#define SYNCLINE_WORKER_JOB_PEER_JOINING_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/system/memory_claim.h"
#include "proto/job.pb.h"
#include "worker/collectives/peer_transport.h"

namespace syncline::worker {

class PeersService;

// Makes one rank's transport to all workers of a job without ps, and to its
// evaluator. Blocks until all are connected, or for `patience` at most. `go_on`
// is asked every few seconds, an error ends it. Errors: FormGroup's
// (worker/collectives/peer_rendezvous.h), which name the ranks that are
// missing.
using JoinPeers = std::function<absl::StatusOr<std::unique_ptr<PeerTransport>>(
    const JobAssignment& assignment, PeerGroup group, absl::Duration patience,
    const GoOnCheck& go_on)>;

// Over TCP or shared memory. `service`, which outlives it, answers on the gRPC
// port of this process. `listen`: that port's address; the host is taken for
// connections of the group.
JoinPeers MakeJoinPeers(PeersService* service, const std::string& listen,
                        bool shared_memory);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_PEER_JOINING_H_
