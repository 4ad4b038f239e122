#ifndef SYNCLINE_WORKER_CLIENT_CHECKPOINT_CALLS_H_
#define SYNCLINE_WORKER_CLIENT_CHECKPOINT_CALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/cancellation.h"
#include "grpcpp/client_context.h"
#include "proto/parameter_server.grpc.pb.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/exchange/checkpoint_writing.h"

namespace syncline::worker {

// The chief's calls to the ps about one checkpoint. They are apart from those
// of its steps, which a disk must not hold up. A call that fails is not
// repeated, but for one that has waited for a disk: the next checkpoint is a
// new try.
class CheckpointCalls final : public CheckpointWriting {
 public:
  struct Options {
    uint64_t cut_id = 0;
    std::string job_id;
    struct Shard {
      FanoutCall::Peer peer;
      Caller caller;
      bool takes_part = true;  // it has something to write
    };
    std::vector<Shard> shards;
    // Each ps has a folder of its own, and so a manifest; else shard 0's ps
    // writes the one that there is.
    bool own_folders = false;
    // Of one call, at the ps.
    absl::Duration wait = absl::Seconds(10);
  };
  explicit CheckpointCalls(Options options);

  uint64_t cut_id() const override { return options_.cut_id; }
  absl::StatusOr<std::vector<Part>> AwaitParts() override;
  absl::StatusOr<Whole> Commit(const std::string& manifest) override;
  void Cancel() override { cancellation_.Cancel(); }

 private:
  // Makes one call to the shard's ps; its error names the ps.
  absl::Status Call(
      const Options::Shard& shard, absl::string_view method,
      absl::FunctionRef<grpc::Status(ParameterServer::Stub* stub,
                                     grpc::ClientContext* context)>
          call);
  // One round of Commit: a call to each ps that has a manifest. Adds what was
  // deleted to *whole, also before an error.
  absl::Status CommitAtAll(const std::string& manifest, Whole* whole);
  absl::StatusOr<Part> AwaitPart(const Options::Shard& shard,
                                 absl::Time deadline);

  const Options options_;
  Cancellation cancellation_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_CHECKPOINT_CALLS_H_
