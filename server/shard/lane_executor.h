#ifndef SYNCLINE_SERVER_SHARD_LANE_EXECUTOR_H_
#define SYNCLINE_SERVER_SHARD_LANE_EXECUTOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "common/base/mutex.h"
#include "common/regime/live_regimes.h"
#include "common/system/memory_claim.h"
#include "common/update/dense_updater.h"
#include "common/update/reduction_round.h"
#include "server/consistency/consistency_controller.h"
#include "server/memory/buffer_pool.h"
#include "server/memory/in_flight_budget.h"
#include "server/memory/shared_regions.h"
#include "server/shard/call_rows.h"
#include "server/shard/embedding_tables.h"
#include "server/shard/job_config.h"
#include "server/shard/non_finite_log.h"
#include "server/shard/sent_values.h"
#include "server/shard/shard_layout.h"
#include "server/shard/snapshot_taker.h"

namespace syncline::ps {

// Which values of dense blocks a pull reads.
enum class ValueForm {
  kOwn,     // the shard's
  kSent,    // those that workers train with (SentValues)
  kChange,  // what changes to these from those of the clock before
};

// Values that were read for a pull.
struct PullValues {
  std::vector<BlockIndex> blocks;  // dense ones, then slots
  std::shared_ptr<CallRows> rows;  // as asked for; null: none
  int64_t min_clock = 0;
  int64_t max_clock = 0;
  int64_t skipped_through = 0;              // ShardAction's
  int64_t open_clock = 0;                   // likewise
  bool dropped = false;                     // likewise: of a push alone
  uint32_t regimes = 0;                     // PullResponseHeader's
  ConsistencyController::LostWorkers lost;  // likewise; null: none
  std::vector<ReturnedLease> returned;      // likewise
  uint64_t checkpoint_cut = 0;              // likewise
  absl::Duration waited;  // until the consistency mode allowed the read
  // Of the dense blocks, then of the rows: in a buffer, or where the caller
  // wants them.
  BufferPool::Buffer buffer;
  AnswerArea area;
  size_t bytes = 0;
  ElementType type = ElementType::kFloat32;
  ValueForm form = ValueForm::kOwn;
  std::vector<uint32_t> block_bytes;  // kChange
  // Kept until the values are sent: their part of the budget, and the owner
  // that is destroyed then.
  InFlightBudget::Hold hold;
  std::shared_ptr<void> sent;

  float* floats() const {
    return area.data != nullptr ? area.data : buffer.floats();
  }
};

// A pull that the lanes are answering, each for its own blocks and rows.
// Thread-safe.
class PullReading {
 public:
  using Done = absl::AnyInvocable<void(absl::Status, PullValues)>;

  // `done` runs when so many steps are done, with the last error of theirs.
  PullReading(Done done, PullValues result, size_t steps)
      : done_(std::move(done)), result_(std::move(result)), left_(steps) {}

  ElementType type() const { return result_.type; }
  ValueForm form() const { return result_.form; }
  // Where element `first` of the answer belongs.
  void* At(size_t first) {
    return reinterpret_cast<char*>(result_.floats()) +
           first * ElementBytes(result_.type);
  }
  // A step that writes these values.
  void Copy(absl::Span<const float> values, size_t first);
  // A step of a pull of kChange that writes a block at byte `first`.
  void CopyChange(absl::string_view change, size_t first);
  void StepDone(absl::Status status);

 private:
  absl::Status Status() ABSL_LOCKS_EXCLUDED(mu_);

  Done done_;
  PullValues result_;
  std::atomic<size_t> left_;
  Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

// One action for rows of one table in one lane.
struct RowsStep {
  ShardAction::Kind kind =
      ShardAction::Kind::kApply;   // or kReduceGradients, or kRead
  BlockIndex block = 0;            // their first slot's, but in a read
  std::vector<CallRowSpan> ranks;  // one in a read
  int64_t clock = 0;
  uint64_t sample_count = 0;
  double squared_norm = -1;
  std::shared_ptr<PullReading> reading;
};

// A function that runs when each of some lanes has reached it in its queue.
struct Countdown {
  std::atomic<size_t> left = 0;
  absl::AnyInvocable<void()> then;
};

// A function that each lane runs when it reaches it in its queue.
using LaneVisit = std::function<void(int lane)>;

// One action for one block.
struct LaneStep {
  ShardAction::Kind kind = ShardAction::Kind::kAccept;
  BlockIndex block = 0;
  uint32_t rank = 0;
  int64_t clock = 0;
  uint64_t sample_count = 0;
  double squared_norm = -1;
  double trust_ratio = 1;
  // Element in `source` or in the result of `reading`; byte of one of kChange.
  size_t first = 0;
  std::shared_ptr<const FloatSource> source = nullptr;
  std::shared_ptr<PullReading> reading = nullptr;
  std::unique_ptr<RowsStep> rows = nullptr;  // set: only this counts
  std::shared_ptr<Countdown> countdown = nullptr;
  std::shared_ptr<const LaneVisit> visit = nullptr;
};

// The work of the lanes for one job. A lane carries out, block by block and
// slot by slot, the steps that JobShard has put into its queue. A block, and a
// slot of a table, is touched by its own lane only, so there is no lock.
class LaneExecutor {
 public:
  // `config` and `layout` outlive it.
  LaneExecutor(const JobConfig* config, const ShardLayout* layout,
               std::unique_ptr<EmbeddingTables> tables);

  // Runs steps in their order, and releases what each holds after it.
  void Run(int lane, std::vector<LaneStep>& steps,
           DenseUpdater::Scratch* scratch);

  // Is told before a dense block's state changes; null: nobody is. Before the
  // first step; outlives it.
  void UseSnapshotTaker(SnapshotTaker* taker) { snapshots_ = taker; }

  // Takes the memory of all blocks. REQUIRES: no other call runs. Errors:
  // DenseUpdater::MakeResident's.
  absl::Status MakeResident(const GoOnCheck& go_on);

  // Of blocks and slots that the caller may touch; sizes and options always.
  DenseUpdater& dense() { return dense_; }
  const DenseUpdater& dense() const { return dense_; }
  EmbeddingTables& tables() { return *tables_; }
  const EmbeddingTables& tables() const { return *tables_; }
  NonFiniteLog& non_finite() { return non_finite_; }
  const NonFiniteLog& non_finite() const { return non_finite_; }

  // The norms that kReduceGradients or kComputeLambUpdate has found,
  // NormsPerBlock for each block. kGradient: of blocks and slots; kTrust: of
  // blocks. 0 for a block without a gradient since Clear. Call it while all
  // lanes are done with the clock's steps.
  std::vector<double> Norms(ReductionStage stage) const;
  void ClearNorms(ReductionStage stage);

 private:
  void RunBlock(const LaneStep& step, std::shared_ptr<const FloatSource> source,
                DenseUpdater::Scratch* scratch);
  void Read(const LaneStep& step);
  void RunRows(int lane, const RowsStep& step);
  void ComputeRowNorms(int lane, const RowsStep& step, const RowStep& rows);
  // Reports the blocks in which a step has found NaN or infinity.
  void TellNonFinite(const LaneStep& step,
                     absl::Span<const DenseUpdater::NonFinite> found);

  const JobConfig* const config_;
  const ShardLayout* const layout_;
  DenseUpdater dense_;
  std::optional<SentValues> sent_;      // where values come back compressed
  std::vector<double> norms_;           // by block, written by its lane
  std::vector<LambNorms> trust_norms_;  // likewise, of dense ones
  const std::unique_ptr<EmbeddingTables> tables_;
  NonFiniteLog non_finite_;
  SnapshotTaker* snapshots_ = nullptr;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_LANE_EXECUTOR_H_
