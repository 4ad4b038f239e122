#ifndef SYNCLINE_WORKER_CLIENT_CURRENT_ROUTING_H_
#define SYNCLINE_WORKER_CLIENT_CURRENT_ROUTING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/wire/routing_table.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/transport/fanout_call.h"

namespace syncline::worker {

// One version of a job's routing, as a rank that calls the shards needs it.
// Immutable, hence thread-safe.
struct RoutedJob {
  RoutingTable table;
  // The process that has each shard.
  std::vector<Participant> shards;

  // As errors name them, by shard.
  std::vector<FanoutCall::Peer> Peers() const;
};

// The routing by which a rank chooses the shards that it calls. A ps that is at
// a later one refuses a call with that version
// (common/wire/routing_version.h), and then this asks for the routing itself.
// Thread-safe.
class CurrentRouting {
 public:
  // `caller`: this rank. A later routing that cannot be had within `patience`
  // is an error. Errors: RoutingTable's.
  static absl::StatusOr<std::unique_ptr<CurrentRouting>> Create(
      const JobAssignment& assignment, const Caller& caller,
      absl::Duration patience);

  std::shared_ptr<const RoutedJob> job() const ABSL_LOCKS_EXCLUDED(mu_);
  // With the current version; the shard is the caller's to set.
  Caller caller() const ABSL_LOCKS_EXCLUDED(mu_);

  // Goes to the routing whose version `refusal` has, or a later one; blocks
  // until all its ps are there. OK: job() has it. A ps of the former routing
  // may have left the job, and refuse: another one has the later routing.
  // Errors: `refusal`, if it has no version; with the name and address of a ps:
  // after `patience` what one that is not there answered; if there is none of
  // these, InvalidArgument, what it brought is no routing of this job, or its
  // refusal. Cancel's reason.
  absl::Status Follow(const absl::Status& refusal) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends Follow, now and later.
  void Cancel(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  CurrentRouting(JobAssignment assignment, const Caller& caller,
                 absl::Duration patience);

  // OK if all ps are at one version, job()'s, which is `wanted` or later.
  // Errors: Unavailable, DeadlineExceeded: to be asked again.
  absl::Status AskAll(uint64_t wanted) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Ask(const Participant& ps, uint64_t wanted)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Use(const GetRoutingResponse& response, uint64_t wanted)
      ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t version() const ABSL_LOCKS_EXCLUDED(mu_);
  // Until `time`, or Cancel. Errors: its reason.
  absl::Status SleepUntil(absl::Time time) ABSL_LOCKS_EXCLUDED(mu_);

  const Caller caller_;
  const absl::Duration patience_;
  Mutex following_;  // one call of Follow at a time asks
  mutable Mutex mu_;
  CondVar cancelled_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  // The part of the job's assignment that the routing is about, and no other.
  JobAssignment assignment_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const RoutedJob> job_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_CURRENT_ROUTING_H_
