#ifndef SYNCLINE_WORKER_PS_CLIENT_H_
#define SYNCLINE_WORKER_PS_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/wire/block_map.h"
#include "common/wire/frame.h"
#include "proto/parameter_server.pb.h"
#include "worker/chunk_builder.h"
#include "worker/fanout_call.h"

namespace syncline {

// One worker's view of the parameter servers of a job: moves gradients there
// and values back while the caller computes. Shards without a block are never
// contacted.
//
// Values are written straight into the parameter memory, gradients are sent
// straight out of the gradient memory: both belong to the caller, who leaves
// them alone from the moment a tensor is handed over until Wait returns.
//
// Calls come from one thread; Cancel from any. Errors end the job: the first is
// kept and every later call returns it. It names ps, address, job, clock and
// call. FailedPrecondition, InvalidArgument, Aborted: refused by the ps;
// DeadlineExceeded: nobody moved for step_timeout, with the names of the
// missing; Unavailable: a ps was out of reach that long; Cancelled: by Cancel.
class PsClient {
 public:
  struct Options {
    std::string job_id;
    uint32_t rank = 0;
    uint64_t incarnation = 0;
    uint64_t routing_version = 1;
    std::vector<FanoutCall::Peer> ps;  // by shard
    absl::Duration step_timeout = absl::Seconds(60);
    // The servers clip by the norm of each push: pushes leave when the whole
    // gradient is known, not before.
    bool send_norm = false;
    // Payload of one message. Smaller leaves earlier, larger costs less.
    size_t chunk_bytes = 1 << 20;
    // Bytes that are leaving for a shard at a time. Enough to keep a connection
    // busy: what is beyond it would arrive interleaved, and lie in the memory
    // of the ps until it is whole.
    size_t push_window_bytes = 2 << 20;
    // Bytes of values that are asked for at a time, by calls that only pull.
    size_t pull_window_bytes = 8 << 20;
    // May be null.
    Counter* retries = nullptr;
    Counter* pushed_bytes = nullptr;
    Counter* pulled_bytes = nullptr;
  };
  // The tensors of `map`, by tensor index.
  struct Tensors {
    std::vector<absl::Span<float>> values;
    std::vector<absl::Span<const float>> gradients;
    // Keeps the memory above alive. Slices handed to gRPC share it, so that a
    // cancelled call may let go of them late.
    std::shared_ptr<const void> owner;
  };

  // REQUIRES: one peer per shard of `map`, spans as long as their tensors.
  PsClient(const Options& options, BlockMap map, Tensors tensors);

  // Sends the parameters' current values as the initial ones, and how many
  // steps the job will have. Blocks.
  absl::Status Init(int64_t total_clocks);
  // Overwrites all parameters with the values for step `clock`. Blocks until
  // the consistency mode allows it.
  absl::Status Pull(int64_t clock);
  // The same with the state at an announced cut. Blocks until all shards have
  // passed it.
  absl::Status PullCut(uint64_t cut_id, int64_t clock);
  // Announces, on all shards, a cut at which every one of `workers` has closed
  // the steps before `clock`. Blocks for a round trip.
  absl::Status BeginCut(uint64_t cut_id, int64_t clock, uint32_t workers);
  absl::Status EndCut(uint64_t cut_id, int64_t clock);

  struct Step {
    int64_t clock = 0;
    // 0: nothing to push; every shard gets an empty close.
    uint64_t sample_count = 0;
    // The worker's last step.
    bool finished = false;
    // Whether the values for the next step are wanted.
    bool pull = true;
  };
  // BeginStep, OnGradientReady for each tensor (unless sample_count is 0),
  // EndBackward, Wait. None but Wait blocks.
  void BeginStep(const Step& step);
  void OnGradientReady(uint32_t tensor);
  void EndBackward();
  absl::Status Wait();

  // Ends all calls, of now and later. Thread-safe.
  void Cancel(const absl::Status& reason);

 private:
  void SendGradients(const Chunk& chunk);
  void SendEmptyClose(uint32_t shard);
  void StartPull(Chunk chunk, int64_t clock, uint64_t cut_id);
  absl::Status PullAll(int64_t clock, uint64_t cut_id);
  // One call without payload to every shard that has blocks.
  absl::Status CallAll(const char* method, int64_t clock,
                       const grpc::ByteBuffer& request);

  Caller MakeCaller() const;
  PushHeader MakePushHeader(uint32_t shard,
                            absl::Span<const uint32_t> blocks) const;
  PullHeader MakePullHeader(absl::Span<const uint32_t> blocks, int64_t clock,
                            uint64_t cut_id) const;
  std::vector<Chunk> ShardChunks(uint32_t shard) const;
  // Slices over the memory of `chunk` in `tensors`.
  template <typename Spans>
  std::vector<grpc::Slice> Slices(const Chunk& chunk,
                                  const Spans& tensors) const;
  double SquaredNorm() const;
  // Copies a PullResponse for `chunk` into the parameters.
  absl::Status StoreValues(const Chunk& chunk,
                           const grpc::ByteBuffer& response);

  const Options options_;
  const BlockMap map_;
  const Tensors tensors_;
  ChunkBuilder builder_;
  Step step_;
  std::vector<uint32_t> held_;  // send_norm: tensors ready, in order
  double squared_norm_ = 0;
  FanoutCall calls_;  // last: its callbacks use the rest
};

}  // namespace syncline

#endif  // SYNCLINE_WORKER_PS_CLIENT_H_
