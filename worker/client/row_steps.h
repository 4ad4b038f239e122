#ifndef SYNCLINE_WORKER_CLIENT_ROW_STEPS_H_
#define SYNCLINE_WORKER_CLIENT_ROW_STEPS_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/client/client_context.h"
#include "worker/client/row_chunks.h"

namespace syncline::worker {

// The calls of PsClient that move rows of embedding tables: gradients of a
// step's rows to their shards, and the rows that are wanted back. Rows share
// messages as row_chunks.h says. Lists of row batches are by table, and outlive
// the calls about them.
//
// No function blocks: each starts calls, whose end FanoutCall::Wait tells. One
// thread at a time.
class RowSteps {
 public:
  // `context` outlives this, and is complete before the first call.
  explicit RowSteps(const ClientContext* context) : context_(*context) {}

  // Asks `shard` for what is wanted of `rows`, but for what is wanted early, as
  // of `clock`, or of a cut if `cut_id` is not 0.
  void StartPulls(uint32_t shard, absl::Span<RowBatch* const> rows,
                  int64_t clock, uint64_t cut_id);
  // Asks all shards for what is wanted early of `next_rows`, before the open
  // step is applied. A row in whose answer steps before `min_clock` are missing
  // is stale.
  void PullEarly(absl::Span<RowBatch* const> next_rows, int64_t min_clock);
  // Pushes to `shard` the gradients of the open step's rows, and asks for what
  // is wanted of `next_rows`. The step is closed there, too, if it has neither
  // rows nor blocks on the shard.
  // Errors: InvalidArgument: the rows of a slot do not fit into one message;
  // nothing was sent then.
  absl::Status Send(uint32_t shard, absl::Span<RowBatch* const> next_rows);
  // Asks again, as of the step after the open one, for the rows of PullEarly
  // that came stale. False: none did. REQUIRES: FanoutCall::Wait has returned.
  bool PullStaleAgain() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static constexpr int64_t kAnyClock = std::numeric_limits<int64_t>::min();

  // Either may be null.
  void SendChunk(const RowChunk* pushed, const RowChunk* wanted,
                 absl::Span<RowBatch* const> next_rows);
  void StartPull(const RowChunk& chunk, absl::Span<RowBatch* const> rows,
                 int64_t clock, uint64_t cut_id, int64_t min_clock);
  // Copies a PullResponse for `chunk` into `rows`.
  absl::Status StoreValues(const RowChunk& chunk,
                           absl::Span<RowBatch* const> rows,
                           const grpc::ByteBuffer& response, absl::Time left,
                           int64_t min_clock) ABSL_LOCKS_EXCLUDED(mu_);

  const ClientContext& context_;
  absl::Span<RowBatch* const> early_rows_;  // of PullEarly
  Mutex mu_;
  std::vector<RowChunk> stale_ ABSL_GUARDED_BY(mu_);  // of early_rows_
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_ROW_STEPS_H_
