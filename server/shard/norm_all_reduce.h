#ifndef SYNCLINE_SERVER_SHARD_NORM_ALL_REDUCE_H_
#define SYNCLINE_SERVER_SHARD_NORM_ALL_REDUCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/base/peer_reach.h"
#include "common/job/job_pass.h"
#include "common/update/pending_norms.h"
#include "common/update/reduction_root.h"
#include "common/wire/routing_table.h"
#include "grpcpp/client_context.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.grpc.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::ps {

// One shard's part in finding a job's global norms. The shard that is the job's
// ReductionRoot sums the norms of all; the other shards ask the root (FoldNorm
// in proto/parameter_server.proto).
// Thread-safe. Callbacks run exactly once, on any thread, not under a lock.
class NormAllReduce : public std::enable_shared_from_this<NormAllReduce> {
 public:
  using Sums = PendingNorms::Sums;
  using Done = PendingNorms::Done;

  // The root has been out of reach for some seconds and still is;
  // again every other second. On a thread of gRPC; must not block.
  using OnUnreachable = std::function<void(PeerUnreachable)>;

  // `routing`: the assignment's. `label` names job and ps in messages. Calls
  // wait at most `wait_max`. `on_unreachable` may be null.
  NormAllReduce(const JobAssignment& assignment, const RoutingTable& routing,
                uint32_t shard, std::string label, absl::Duration wait_max,
                OnUnreachable on_unreachable = nullptr);

  // The norms that this shard is part of: those of its blocks, and for
  // kGradient then of its slots.
  void AllReduce(const ReductionRound& round, std::vector<double> squared_norms,
                 Done done);

  // Another shard's FoldNorm. Errors: FailedPrecondition: not the root;
  // InvalidArgument: an unknown stage; else NormReducer's.
  void Reduce(const FoldNormRequest& request, absl::Time deadline, Done done);

  // `frozen`: for how long this process did not run since the last tick.
  void Tick(absl::Time now, absl::Duration frozen);
  // Ends everything that waits, and every later call, with `status`. Returns
  // when no callback runs any more and none is kept, and the connection to the
  // root is gone; or after 5 s, with a warning. Not from a
  // callback.
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Span<const uint32_t> PartIn(ReductionStage stage) const;
  struct Asking;
  void Ask(const ReductionRound& round,
           const std::vector<double>& squared_norms, Done done);
  // The sums in the answer. Errors: Internal: other sums than were asked for.
  Sums SumsOf(const Asking& asking) const;
  // Takes note of whether a call got through, and tells.
  void NoteReach(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void OnAnswer(Asking* asking, const grpc::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);

  const std::string job_id_;
  const JobPass pass_;
  const uint64_t routing_version_;
  const uint32_t shard_;
  const uint64_t incarnation_;
  const std::vector<uint32_t> blocks_;  // and slots, as NormReducer has them
  const size_t dense_blocks_;
  const size_t tensors_;
  const std::string root_name_;  // "ps:0 at 10.0.0.5:4000"
  const Member root_member_;
  const absl::Duration wait_max_;
  const OnUnreachable on_unreachable_;
  const std::unique_ptr<PendingNorms> hosted_;  // null: another is the root

  Mutex mu_;
  // The others'. The stub is used outside the lock.
  std::shared_ptr<ParameterServer::Stub> stub_ ABSL_GUARDED_BY(mu_);
  // Calls that are out: one, and the next before the first is forgotten.
  absl::flat_hash_set<Asking*> asking_ ABSL_GUARDED_BY(mu_);
  CondVar answered_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  PeerReach reach_ ABSL_GUARDED_BY(mu_);  // of the root
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_NORM_ALL_REDUCE_H_
