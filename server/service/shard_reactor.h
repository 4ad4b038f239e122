#ifndef SYNCLINE_SERVER_SERVICE_SHARD_REACTOR_H_
#define SYNCLINE_SERVER_SERVICE_SHARD_REACTOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/update/pending_statistics.h"
#include "grpcpp/support/server_callback.h"
#include "server/service/metrics.h"
#include "server/shard/job_shard.h"

namespace syncline::ps {

// One gRPC call that its job answers, possibly much later. It deletes itself
// when gRPC is done with it. It owns nothing of the job: a job's memory does
// not wait for gRPC to be done with the job's calls.
class ShardReactor : public grpc::ServerUnaryReactor {
 public:
  // `metrics` outlives it.
  ShardReactor(PsRpc rpc, PsMetrics* metrics);

  // If the caller gives up, the call `token` of the shard is cancelled. Before
  // the reactor is handed to gRPC.
  void CancelWith(std::weak_ptr<JobShard> shard, CallToken token);
  // Returns a function that sends the initial metadata, or does nothing after
  // Answer. The function may be called once, at any time, also after the
  // reactor is gone.
  JobShard::Taken SayTaken();
  // Ends the call and counts it. Once; the reactor may be gone afterwards.
  void Answer(const absl::Status& status);

 private:
  class Early;

  void OnCancel() override;
  void OnDone() override { delete this; }

  const PsRpc rpc_;
  PsMetrics* const metrics_;
  const absl::Time start_;
  const std::shared_ptr<Early> early_;
  std::weak_ptr<JobShard> shard_;
  CallToken token_ = 0;
};

// A FoldStatistics call, which waits for the other workers' parts.
class StatisticsReactor final : public ShardReactor {
 public:
  explicit StatisticsReactor(PsMetrics* metrics)
      : ShardReactor(PsRpc::kFoldStatistics, metrics) {}
  // As ShardReactor::CancelWith.
  void CancelWith(std::weak_ptr<PendingStatistics> statistics, uint64_t token);

 private:
  void OnCancel() override;

  std::weak_ptr<PendingStatistics> statistics_;
  uint64_t token_ = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_SHARD_REACTOR_H_
