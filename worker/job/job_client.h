#ifndef SYNCLINE_WORKER_JOB_JOB_CLIENT_H_
#define SYNCLINE_WORKER_JOB_JOB_CLIENT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "kernels/optimizer/finite.h"
#include "worker/client/ps_client.h"
#include "worker/job/prepared_job.h"
#include "worker/job/worker_metrics.h"

namespace syncline::worker {

// How the ranks of a job use their PsClient: what it is made of, and the cuts
// at the ends of epochs.

// The properties of a job's process that are not the job's.
struct JobProcess {
  uint64_t incarnation = 0;
  bool shared_memory = true;         // with a ps on this host
  WorkerMetrics* metrics = nullptr;  // outlives the client
  // FanoutCall's; may be null.
  std::function<void(uint32_t shard, absl::Duration out_of_reach,
                     const absl::Status& error)>
      on_unreachable = nullptr;
  // As Trainer::Options has it; may be null.
  std::function<void(const std::string& what)> on_activity = nullptr;
};
PsClient::Options ClientOptionsOf(const PreparedJob& job,
                                  const JobProcess& process);
// The executor's parameters and gradients. REQUIRES: `job` is complete.
PsClient::Tensors ClientTensorsOf(const PreparedJob& job);

// As errors name it.
FanoutCall::Peer PeerOf(const Participant& ps);

OnNonFinite NonFinitePolicyOf(const JobSpec& spec);

// The cut at `clock`, an epoch's end: non-zero and unique within the job.
inline uint64_t CutIdOf(int64_t clock) { return static_cast<uint64_t>(clock); }

// Announces it. It is held for as long as rows are read under it, or as an
// evaluator that is behind needs to get to it. Errors: PsClient's.
absl::Status AnnounceCut(const PreparedJob& job, int64_t clock,
                         PsClient* client);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_JOB_CLIENT_H_
