#ifndef SYNCLINE_SERVER_SHARD_QUORUM_AGREEMENT_H_
#define SYNCLINE_SERVER_SHARD_QUORUM_AGREEMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/peer_reach.h"
#include "common/wire/routing_table.h"
#include "proto/job.pb.h"
#include "proto/quorum.grpc.pb.h"
#include "proto/scheduler.pb.h"
#include "server/consistency/quorum_arbiter.h"
#include "server/shard/job_config.h"

namespace syncline::ps {

// One shard's part in fixing with which workers each clock of a job is applied.
// Shard 0 has the QuorumArbiter; the other shards ask it (FixClock in
// proto/quorum.proto).
// Thread-safe. Callbacks run exactly once, on any thread, not under a lock.
class QuorumAgreement : public std::enable_shared_from_this<QuorumAgreement> {
 public:
  struct ClockSet {
    std::vector<uint32_t> ranks;    // ascending
    std::vector<uint32_t> removed;  // QuorumArbiter::Answer's
  };
  using Set = absl::StatusOr<ClockSet>;
  using Done = std::function<void(Set)>;
  // Shard 0 has been out of reach for some seconds and still is; again every
  // other second. On a thread of gRPC; must not block.
  using OnUnreachable = std::function<void(PeerUnreachable)>;

  // `config`: the shard's, whose jobs leave workers behind; calls wait at
  // most its wait_max. `on_unreachable` may be null.
  QuorumAgreement(const JobAssignment& assignment, const RoutingTable& routing,
                  const JobConfig& config, OnUnreachable on_unreachable);

  // These workers have closed `clock` on this shard. `done` gets the clock's
  // set. A shard other than 0 on which fewer have than any set needs says
  // nothing yet: then `done` is never called. But `overdue` has it say so, in
  // case a worker that it waits for was removed.
  void OnCloses(int64_t clock, std::vector<uint32_t> ranks, bool overdue,
                Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // A shard may have to be told of a worker that was removed.
  bool loses_workers() const { return loses_workers_; }

  // RemoveWorker. Errors: FailedPrecondition: this is not shard 0, or another
  // attempt; QuorumArbiter::OnRemoved's.
  absl::Status Remove(uint32_t attempt, uint32_t rank) ABSL_LOCKS_EXCLUDED(mu_);

  // Another shard's FixClock. Errors: FailedPrecondition: this is not shard 0;
  // else QuorumArbiter's.
  void Fix(const FixClockRequest& request, absl::Time deadline, Done done);

  // `frozen`: for how long this process did not run since the last tick.
  void Tick(absl::Time now, absl::Duration frozen);
  // Ends everything that waits, and every later call, with `status`. Returns
  // when no callback runs any more and none is kept; or after 5 s, with a
  // warning. Not from a callback.
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Asking;
  void Ask(int64_t clock, const std::vector<uint32_t>& ranks, Done done);
  void OnAnswer(Asking* asking, const grpc::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Takes note of whether a call got through, and tells.
  void NoteReach(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void Arbitrate(uint32_t shard, uint64_t incarnation, int64_t clock,
                 absl::Span<const uint32_t> ranks, absl::Time deadline,
                 Done done) ABSL_LOCKS_EXCLUDED(mu_);
  void Answer(const QuorumArbiter::Answers& answers) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string job_id_;
  const JobPass pass_;
  const uint64_t routing_version_;
  const uint32_t shard_;
  const uint64_t incarnation_;
  const bool loses_workers_;
  const size_t workers_;
  const std::string root_name_;  // "ps:0 at 10.0.0.5:4000"
  const Member root_member_;
  const absl::Duration wait_max_;
  const OnUnreachable on_unreachable_;

  Mutex mu_;
  size_t needed_ ABSL_GUARDED_BY(mu_);  // workers in any set
  // Shard 0's; null: another one.
  const std::unique_ptr<QuorumArbiter> arbiter_ ABSL_PT_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Done> waiting_ ABSL_GUARDED_BY(mu_);
  uint64_t next_token_ ABSL_GUARDED_BY(mu_) = 1;
  int answering_ ABSL_GUARDED_BY(mu_) = 0;  // callbacks that run
  // The others'. The stub is used outside the lock.
  std::shared_ptr<Quorum::Stub> stub_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<Asking*> asking_ ABSL_GUARDED_BY(mu_);
  CondVar changed_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  PeerReach reach_ ABSL_GUARDED_BY(mu_);  // of shard 0
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_QUORUM_AGREEMENT_H_
