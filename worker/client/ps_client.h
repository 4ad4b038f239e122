#ifndef SYNCLINE_WORKER_CLIENT_PS_CLIENT_H_
#define SYNCLINE_WORKER_CLIENT_PS_CLIENT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "common/base/mutex.h"
#include "common/wire/block_map.h"
#include "common/wire/frame.h"
#include "kernels/optimizer/finite.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/chunk_builder.h"
#include "worker/client/client_telemetry.h"
#include "worker/client/cut_calls.h"
#include "worker/client/fanout_call.h"
#include "worker/client/gradient_norm.h"
#include "worker/client/header_encoder.h"
#include "worker/client/row_chunks.h"

namespace syncline::worker {

// One worker's view of the parameter servers of a job: moves gradients there
// and values back while the caller computes. Shards without a block are never
// contacted, unless the job has embedding tables.
//
// Values are written straight into the parameter memory, gradients are sent
// straight out of the gradient memory. Both belong to the caller, who must not
// touch a tensor's memory from OnGradientReady until Wait has returned.
//
// One thread at a time makes calls; only Cancel may come from any thread at any
// time. The calls may move to another thread if that thread starts after the
// last call and is joined before the next one: FileGrowth's thread calls
// ReportActivity while the training thread writes files and makes no call.
//
// Errors end the job: the first is kept and every later call returns it. It
// names ps, address, job, clock and call.
//   FailedPrecondition, InvalidArgument, Aborted   the ps refused the call
//   DeadlineExceeded   nobody moved for step_timeout; names who is missing
//   Unavailable        a ps was out of reach for that long
//   Cancelled          by Cancel
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
    // Payload of one message at most; ChunkBuilder says when less is sent.
    size_t chunk_bytes = 1 << 20;
    // Bytes of gradients that are on their way to a shard, or in its queues, at
    // a time. Enough to keep a connection and its optimizer busy: what is
    // beyond it would lie in the memory of the ps.
    size_t push_window_bytes = 4 << 20;
    // Bytes of values that are asked for at a time, by calls that only pull.
    size_t pull_window_bytes = 8 << 20;
    // The job has embedding tables: every shard takes part.
    bool has_tables = false;
    // With a ps on this host: payloads go through shared memory, so many bytes
    // of pushes and of pulls at a time.
    bool shared_memory = true;
    size_t shared_window_bytes = 8 << 20;
    // Payload of one such message: nothing of it travels.
    size_t shared_chunk_bytes = 2 << 20;
    std::string boot_id = {};  // empty: the system's
    // How gradients travel, and values but those at cuts.
    ElementType wire_type = ElementType::kFloat32;
    // SYNC with clip_norm or SKIP_STEP, or LAMB: no shard answers before it has
    // the whole gradient.
    bool norm_is_folded = false;
    OnNonFinite on_non_finite = OnNonFinite::kFailJob;
    // kSkipStep where shards do not find out together (all but SYNC): pushes
    // leave when the whole gradient is known to be finite.
    bool checks_gradient = false;
    // FanoutCall's; may be null.
    std::function<void(uint32_t shard, absl::Duration out_of_reach,
                       const absl::Status& error)>
        on_unreachable = nullptr;
    ClientTelemetry telemetry = {};
  };
  // The tensors of `map`, by tensor index.
  struct Tensors {
    std::vector<absl::Span<float>> values;
    std::vector<absl::Span<const float>> gradients;
    std::vector<std::string> names;  // for messages; empty: by index
    // By tensor: true for a running mean. The servers average a running mean
    // without clipping, so it is no part of a push's norm, unless it is not
    // finite. Empty: no tensor is one.
    std::vector<bool> running_means;
    // When a step first reads each tensor, as a position in that order: where
    // bytes have to wait, those that are needed first go first. Empty: in the
    // order of the tensors.
    std::vector<uint32_t> first_use;
    // The gradients lie in it, or it is null: a ps on this host then reads them
    // where they are.
    std::shared_ptr<SharedRegion> gradient_region;
    // Keeps the memory above alive. Slices handed to gRPC share it, so that a
    // cancelled call may let go of them late.
    std::shared_ptr<const void> owner;
  };

  // REQUIRES: one peer per shard of `map`, spans as long as their tensors.
  PsClient(const Options& options, BlockMap map, Tensors tensors);

  // Sends the parameters' current values as the initial ones, and how many
  // steps the job will have. Blocks. Rows of tables need no values.
  absl::Status Init(int64_t total_clocks);
  // Overwrites all parameters with the values for step `clock`. Blocks until
  // the consistency mode allows it, on shards that have rows alone too.
  absl::Status Pull(int64_t clock);
  // The same with the state at an announced cut. Blocks until all shards have
  // passed it.
  absl::Status PullCut(uint64_t cut_id, int64_t clock);
  // Fills in what is wanted of `rows` (by table), as of step `clock`, or of an
  // announced cut if `cut_id` is not 0. Blocks likewise. Creates no row.
  absl::Status PullRows(int64_t clock, uint64_t cut_id,
                        absl::Span<RowBatch* const> rows);
  // Announces, on all shards, a cut at which every one of `workers` has closed
  // the steps before `clock`, and that is held for `hold` at most, or four
  // times step_timeout. Blocks for a round trip.
  absl::Status BeginCut(uint64_t cut_id, int64_t clock, uint32_t workers,
                        std::optional<absl::Duration> hold = std::nullopt);
  absl::Status EndCut(uint64_t cut_id, int64_t clock);
  // Tells all shards that this worker is busy with something that takes longer
  // than a step: `done` of `total` of `what`, before it pushes `clock`. Workers
  // that wait for this one go on waiting for step_timeout after each call that
  // says more than the one before. Blocks for a round trip.
  absl::Status ReportActivity(int64_t clock, absl::string_view what,
                              uint64_t done, uint64_t total);

  using RowSink = CutCalls::RowSink;
  // Gives `sink` every row of a table as of a cut, a message at a time, in an
  // order of the shards' own. Blocks. Errors: the sink's too.
  absl::Status ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                         int64_t clock, RowSink sink);

  struct Step {
    int64_t clock = 0;
    // 0: nothing to push; every shard gets an empty close.
    uint64_t sample_count = 0;
    // The worker's last step.
    bool finished = false;
    // True if the values for the next step are wanted.
    bool pull = true;
    // By table: the rows of the step's batch, whose gradients are pushed.
    // Theirs is the memory's rule above.
    absl::Span<RowBatch* const> rows = {};
  };
  // Between BeginStep and EndBackward: pulls what is wanted early of
  // `next_rows`, before the step's own gradients are applied; none of these may
  // be among them. A row is good for the next step if all workers' steps before
  // `min_clock` are in it; what comes older is pulled again by the end of Wait.
  void PullEarly(absl::Span<RowBatch* const> next_rows, int64_t min_clock);
  // BeginStep, OnGradientReady for each tensor (unless sample_count is 0),
  // EndBackward, Wait. None but Wait blocks.
  // kSkipStep and kDropBlock: AbandonStep instead of OnGradientReady where the
  // step has no gradient, because its loss is not finite; it is one of
  // Options::non_finite if this worker's values are why.
  void BeginStep(const Step& step);
  void AbandonStep(bool own_values = true);
  // Since BeginStep, by this or because it was found not to be finite.
  bool step_abandoned() const { return abandoned_; }
  void OnGradientReady(uint32_t tensor);
  // `next_rows`, by table, is what is wanted for the next step, but for what is
  // wanted early; it is filled in by the end of Wait. Empty where there are no
  // tables, or `pull` is false.
  void EndBackward(absl::Span<RowBatch* const> next_rows = {});
  absl::Status Wait();

  // The latest Wait's time by cause, one after the other.
  struct WaitTimes {
    absl::Duration push;  // until the last gradient had left
    absl::Duration wait;  // until the servers let the last value be read
    absl::Duration pull;  // until it was here
  };
  const WaitTimes& wait_times() const { return wait_times_; }

  // Ends all calls, of now and later. Thread-safe.
  void Cancel(const absl::Status& reason);

 private:
  // When a step's gradients had left, and when its values could be read; each
  // is the latest of all calls.
  struct Marks {
    absl::Time left = absl::InfinitePast();
    absl::Time readable = absl::InfinitePast();
  };

  void SendGradients(const Chunk& chunk);
  void SendEmptyClose(uint32_t shard);
  // Closes the step on `shard` where nothing is pushed to it.
  void SendClose(uint32_t shard);
  // Pushes rows of the step and pulls those for the next one.
  absl::Status SendRows(uint32_t shard, absl::Span<RowBatch* const> next_rows);
  // Either may be null.
  void SendRowChunk(const RowChunk* pushed, const RowChunk* wanted,
                    absl::Span<RowBatch* const> next_rows);
  // Answers that are not as of `min_clock` count as stale.
  void StartRowPull(const RowChunk& chunk, absl::Span<RowBatch* const> rows,
                    int64_t clock, uint64_t cut_id,
                    int64_t min_clock = std::numeric_limits<int64_t>::min());
  // All values of a shard, those that are needed first at the front.
  void StartPulls(uint32_t shard, int64_t clock, uint64_t cut_id);
  void StartPull(Chunk chunk, int64_t clock, uint64_t cut_id);
  absl::Status PullAll(int64_t clock, uint64_t cut_id);
  bool TakesPart(uint32_t shard) const;
  size_t chunk_bytes() const {
    return std::min(options_.chunk_bytes, kChunkBytesMax);
  }
  // With the fields of the step.
  PushHeader MakePushHeader(uint32_t shard,
                            absl::Span<const uint32_t> blocks) const;
  std::vector<Chunk> ShardChunks(uint32_t shard, ElementType type) const;
  size_t ChunkBytes(uint32_t shard) const;
  int64_t RankOf(const Chunk& chunk) const;
  // For SquaredNorm.
  StepGradient GradientOfStep() const;
  // Records how many of this worker's gradients a shard found not finite; only
  // a larger number than before is news.
  void TakeNonFinite(uint32_t shard, uint64_t count) ABSL_LOCKS_EXCLUDED(mu_);
  FanoutCall::Call MakeCall(uint32_t shard, const char* method, int64_t clock,
                            size_t bytes) const;
  // Copies a PullResponse for `chunk` into `rows`.
  absl::Status StorePulledRows(const RowChunk& chunk,
                               absl::Span<RowBatch* const> rows,
                               const grpc::ByteBuffer& response,
                               absl::Time left, int64_t min_clock);
  // Copies a PullResponse for `chunk` into the parameters.
  absl::Status StoreValues(const Chunk& chunk, ElementType type,
                           const grpc::ByteBuffer& response, absl::Time left);
  // Everything that is under way, and then what came back too old.
  absl::Status WaitForAll();
  void Mark(absl::Time left, absl::Time readable) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const BlockMap map_;
  const Tensors tensors_;
  const HeaderEncoder headers_;
  CutCalls cuts_;
  ChunkBuilder builder_;
  Step step_;
  bool abandoned_ = false;      // the step has no gradient
  std::vector<uint32_t> held_;  // send_norm: tensors ready, in order
  double squared_norm_ = 0;
  absl::Span<RowBatch* const> early_rows_;  // of PullEarly
  WaitTimes wait_times_;
  Mutex mu_;
  Marks marks_ ABSL_GUARDED_BY(mu_);
  std::vector<RowChunk> stale_ ABSL_GUARDED_BY(mu_);  // of early_rows_
  std::vector<uint64_t> told_non_finite_ ABSL_GUARDED_BY(mu_);  // by shard
  FanoutCall calls_;  // last: its callbacks use the rest
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_PS_CLIENT_H_
