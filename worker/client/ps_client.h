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
#include "worker/client/cut_calls.h"
#include "worker/client/gradient_norm.h"
#include "worker/client/header_encoder.h"
#include "worker/client/row_chunks.h"
#include "worker/client/transport/client_telemetry.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/parameter_exchange.h"

namespace syncline::worker {

// The exchange of a rank through the parameter servers of a job: gradients go
// to the shards that have their blocks or rows, in chunks that leave while
// backward runs, and values come back from there. Shards without a block are
// never contacted, unless the job has embedding tables.
//
// Gradients are sent straight out of their memory, values are copied once.
// Errors name ps, address, job, clock and call. ParameterExchange has the
// contract of each function; a call that blocks waits for all shards.
class PsClient : public ParameterExchange {
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
  // `tensors` are those of `map`; a ps on this host reads gradients where they
  // are, if they lie in a gradient region. REQUIRES: one peer per shard of
  // `map`, spans as long as their tensors.
  PsClient(const Options& options, BlockMap map, DenseTensors tensors);

  void Cancel(const absl::Status& reason) override;
  absl::Status Init(int64_t total_clocks) override;
  absl::Status Pull(int64_t clock) override;
  absl::Status PullRows(int64_t clock, uint64_t cut_id,
                        absl::Span<RowBatch* const> rows) override;
  absl::Status ReportActivity(int64_t clock, absl::string_view what,
                              uint64_t done, uint64_t total) override;
  absl::Status BeginCut(uint64_t cut_id, int64_t clock, uint32_t workers,
                        std::optional<absl::Duration> hold) override;
  absl::Status PullCut(uint64_t cut_id, int64_t clock) override;
  absl::Status ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                         int64_t clock, RowSink sink) override;
  absl::Status EndCut(uint64_t cut_id, int64_t clock) override;
  void BeginStep(const Step& step) override;
  void PullEarly(absl::Span<RowBatch* const> next_rows,
                 int64_t min_clock) override;
  void AbandonStep(bool own_values) override;
  bool step_abandoned() const override { return abandoned_; }
  void OnGradientReady(uint32_t tensor) override;
  void EndBackward(absl::Span<RowBatch* const> next_rows) override;
  absl::Status Wait() override;
  WaitTimes wait_times() const override { return wait_times_; }

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
  const DenseTensors tensors_;
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
