#ifndef SYNCLINE_SERVER_SERVICE_CHECKPOINT_CALLS_H_
#define SYNCLINE_SERVER_SERVICE_CHECKPOINT_CALLS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "proto/parameter_server.pb.h"
#include "server/checkpoint/shard_checkpoints.h"
#include "server/service/shard_reactor.h"
#include "server/shard/job_registry.h"

namespace syncline::ps {

// An AwaitCheckpoint call, which waits for the disk.
class CheckpointReactor final : public ShardReactor {
 public:
  explicit CheckpointReactor(PsMetrics* metrics)
      : ShardReactor(PsRpc::kAwaitCheckpoint, metrics) {}
  // As ShardReactor::CancelWith.
  void CancelWith(std::weak_ptr<ShardCheckpoints> checkpoints, uint64_t token);

 private:
  void OnCancel() override;

  std::weak_ptr<ShardCheckpoints> checkpoints_;
  uint64_t token_ = 0;
};

// AwaitCheckpoint and CommitCheckpoint of proto/parameter_server.proto. If a
// method returns an error, the caller answers `reactor` with it. Otherwise the
// shard's checkpoints do, later. `response` is gRPC's. Thread-safe; nothing
// blocks.
class CheckpointCalls {
 public:
  explicit CheckpointCalls(JobRegistry* jobs) : jobs_(jobs) {}

  absl::Status Await(const grpc::CallbackServerContext& context,
                     const AwaitCheckpointRequest& request,
                     AwaitCheckpointResponse* response,
                     CheckpointReactor* reactor) const;
  absl::Status Commit(const CommitCheckpointRequest& request,
                      CommitCheckpointResponse* response,
                      ShardReactor* reactor) const;

 private:
  absl::StatusOr<std::shared_ptr<ShardCheckpoints>> CheckpointsOf(
      const Caller& caller) const;

  JobRegistry* const jobs_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_CHECKPOINT_CALLS_H_
