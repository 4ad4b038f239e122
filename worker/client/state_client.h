#ifndef SYNCLINE_WORKER_CLIENT_STATE_CLIENT_H_
#define SYNCLINE_WORKER_CLIENT_STATE_CLIENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/cancellation.h"
#include "common/regime/regime_schedule.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/shard_state.pb.h"
#include "proto/state_transfer.grpc.pb.h"
#include "worker/client/current_routing.h"

namespace syncline::worker {

// A rank's calls to the shards of its job where the state goes to the workers,
// and comes back (proto/state_transfer.proto). Each function blocks, and calls
// all shards at the same time. One thread at a time, but for Cancel.
//
// Errors name ps, address, job, clock and call: what the shard answered;
// Unavailable, DeadlineExceeded: it is out of reach, or an answer took longer
// than the timeout; DataLoss: what came is not what was sent; Cancelled. A call
// that finds a shard without room is repeated until its timeout
// (ResourceExhausted then), any other is made once: the caller gives the change
// up, and may try it again.
class StateClient {
 public:
  struct Options {
    std::string job_id;
    std::shared_ptr<CurrentRouting> routing;
    // Of each call. Less than the step timeout: the other ranks wait meanwhile,
    // and a call that fails must not end their wait.
    absl::Duration timeout = absl::Seconds(30);
  };
  explicit StateClient(Options options) : options_(std::move(options)) {}

  // The change that all shards with a block of the job have announced.
  struct Proposal {
    uint64_t cut_id = 0;
    TrainingRegime regime;
  };
  // None: no shard has one. Unavailable: they differ, as they do while it is
  // announced or withdrawn.
  absl::StatusOr<std::optional<Proposal>> GetProposal(int64_t clock);

  // The part of the state that is read: these blocks, and of each the arrays
  // [first_array, arrays): values are array 0, the optimizer's slots follow.
  struct Wanted {
    absl::Span<const uint32_t> blocks;  // ids
    uint32_t first_array = 0;
    uint32_t arrays = 1;  // of a block, all that the optimizer has
  };
  // Elements of one array of a block. Several threads, for different arrays.
  using Visit = std::function<void(uint32_t block, uint32_t array,
                                   absl::string_view floats, int64_t updates)>;
  // Is told about once a second, on the calling thread, how many arrays of
  // blocks have come or gone so far, until all have. May be null.
  using Progress = std::function<void(uint64_t arrays)>;
  // Gives `visit` each wanted array as of a cut that all shards hold. Returns
  // what the shards say together of the whole job: counts are added up, by rank
  // as well.
  absl::StatusOr<ShardStateHeader> Read(uint64_t cut_id, int64_t clock,
                                        const Wanted& wanted,
                                        const Visit& visit,
                                        const Progress& progress = nullptr);

  // The blocks that this rank writes, and their content.
  struct Source {
    absl::Span<const uint32_t> blocks;  // ids
    uint32_t arrays = 1;
    // Called from several threads.
    std::function<absl::Span<const float>(uint32_t block, uint32_t array)>
        array_of;
    std::function<int64_t(uint32_t block)> updates_of;
    // Has the arrays' memory, from which they are sent. A call that has ended
    // early may still read it.
    std::shared_ptr<const void> owner;
  };
  absl::Status Write(uint64_t transfer, int64_t clock, const Source& source,
                     const Progress& progress = nullptr);
  // The chief's, when all ranks have written. The first of the shards goes on
  // with the counts of `header`.
  absl::Status TakeBack(uint64_t transfer, int64_t clock,
                        const ShardStateHeader& header,
                        const RegimeSchedule& regimes);

  // Ends all calls, of now and later. Thread-safe.
  void Cancel() { cancellation_.Cancel(); }

 private:
  // A shard with a block of the job.
  struct Shard {
    uint32_t number = 0;
    bool is_first = false;
    Caller caller;
    std::string name;  // "ps:1 at 10.0.0.6:4000"
    std::shared_ptr<StateTransfer::Stub> stub;
    std::shared_ptr<grpc::GenericStub> bulk;  // for messages that we encode
    size_t calls = 1;                         // under way at a time
  };
  // `visit` on a thread for each shard, `tick` about once a second on this one;
  // the error of the first shard that has one.
  absl::Status ForEachShard(
      absl::FunctionRef<absl::Status(const Shard& shard)> visit,
      absl::FunctionRef<void()> tick);
  absl::Status Call(const Shard& shard, absl::string_view method, int64_t clock,
                    absl::FunctionRef<grpc::Status(grpc::ClientContext*)> call);
  // Both count arrays in *moved.
  absl::Status ReadShard(const Shard& shard, uint64_t cut_id, int64_t clock,
                         const Wanted& wanted, const Visit& visit,
                         std::atomic<uint64_t>* moved);
  absl::Status WriteShard(const Shard& shard, uint64_t transfer, int64_t clock,
                          const Source& source, std::atomic<uint64_t>* moved);

  const Options options_;
  Cancellation cancellation_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_STATE_CLIENT_H_
