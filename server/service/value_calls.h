#ifndef SYNCLINE_SERVER_SERVICE_VALUE_CALLS_H_
#define SYNCLINE_SERVER_SERVICE_VALUE_CALLS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/service/metrics.h"
#include "server/service/request_reader.h"
#include "server/service/shard_reactor.h"
#include "server/shard/job_registry.h"

namespace syncline::ps {

// When a parked call is answered: after `wait`, and somewhat before the
// caller's deadline, so that the answer with the missing workers still reaches
// it.
absl::Time ParkDeadline(const grpc::CallbackServerContext& context,
                        absl::Duration wait);

// The calls that carry values: Init, PushPull, Push, Pull and ScanTable of
// proto/parameter_server.proto. Each method reads the request, checks its
// header, and hands the call to the job's shard. If the method returns an
// error, the caller answers `reactor` with it. Otherwise the shard answers,
// possibly before the method returns: `response` and `reactor` may be gone
// then. Thread-safe; nothing blocks.
//
// Errors: ResourceExhausted: no room in the budget; those of
// JobRegistry::Find; those of ShardLayout's checks.
class ValueCalls {
 public:
  // All outlive it, and every call.
  ValueCalls(JobRegistry* jobs, const RequestReader* reader, PsMetrics* metrics)
      : jobs_(jobs), reader_(reader), metrics_(metrics) {}

  absl::Status Init(const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                    ShardReactor* reactor) const;
  absl::Status PushPull(const grpc::CallbackServerContext& context,
                        const grpc::ByteBuffer* request,
                        grpc::ByteBuffer* response,
                        ShardReactor* reactor) const;
  absl::Status Push(const grpc::CallbackServerContext& context,
                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                    ShardReactor* reactor) const;
  absl::Status Pull(const grpc::CallbackServerContext& context,
                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                    ShardReactor* reactor) const;
  absl::Status Scan(const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                    ShardReactor* reactor) const;

 private:
  // Hands a checked call with a pull to its shard.
  void StartPull(const std::shared_ptr<const JobEntry>& job, ShardCall call,
                 CallPayload payload, grpc::ByteBuffer* response,
                 ShardReactor* reactor) const;

  JobRegistry* const jobs_;
  const RequestReader* const reader_;
  PsMetrics* const metrics_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_VALUE_CALLS_H_
