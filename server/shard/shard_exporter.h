#ifndef SYNCLINE_SERVER_SHARD_SHARD_EXPORTER_H_
#define SYNCLINE_SERVER_SHARD_SHARD_EXPORTER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/checkpoint/checkpoint_chain.h"
#include "common/state/shard_state_writer.h"
#include "proto/shard_state.pb.h"
#include "server/consistency/controller_state.h"
#include "server/lanes/lanes.h"
#include "server/shard/job_config.h"
#include "server/shard/lane_executor.h"
#include "server/shard/shard_layout.h"

namespace syncline::ps {

// The part of a shard to export: all of it, or the blocks and slots that
// another shard is to get.
struct ShardSelection {
  std::optional<std::vector<uint32_t>> blocks = {};  // global ids
  // By table.
  std::optional<std::vector<std::vector<uint32_t>>> slots = {};
  // The counts of the shard and its tables go along. They are to arrive once.
  bool with_counts = true;
};

// Writes the state of one shard at a cut: proto/shard_state.proto. It needs the
// memory of one piece, and of a partition's keys. Thread-compatible.
class ShardExporter {
 public:
  // Runs a task in a lane, behind all that the lane was given before, while the
  // cut is held.
  using Task = absl::FunctionRef<absl::Status()>;
  using RunInLane = std::function<absl::Status(int lane, Task task)>;

  // All outlive it.
  ShardExporter(const JobConfig* config, const ShardLayout* layout,
                LaneExecutor* executor, const Lanes* lanes,
                RunInLane run_in_lane, ShardStateSink* sink);

  // Errors: those of RunInLane, of the sink and of the tables' disk;
  // InvalidArgument: the selection names a block or slot of another shard.
  absl::Status Export(const ControllerState& state, uint64_t cut_id,
                      int64_t total_clocks, const ShardSelection& selection);

  // The state goes into a checkpoint of a chain: AddTables closes the changes
  // of the partitions at this cut, and leaves out rows that `chain.older` have.
  // Before Begin.
  void SetChain(const CheckpointChain::Plan& chain) { chain_ = chain; }

  // Export of a whole shard in parts, for who decides about their order: Begin;
  // then each block and each lane's part of the tables once; then End.

  absl::Status Begin(const ControllerState& state, uint64_t cut_id,
                     int64_t total_clocks);
  // `array_of`: values, then the optimizer's slots; borrowed until it returns.
  absl::Status AddBlock(
      BlockIndex block, int64_t updates,
      absl::FunctionRef<absl::Span<const float>(int array)> array_of);
  absl::Status AddTables(int lane);
  // Errors: also why the shard has no state to go on from: a gradient that is
  // not finite, or rows that were lost.
  absl::Status End();
  // Those written so far, and keys that have none any more.
  uint64_t rows() const { return rows_ + gone_; }

 private:
  absl::Status WriteHeader(const ControllerState& state, uint64_t cut_id,
                           int64_t total_clocks,
                           const ShardSelection& selection,
                           const std::vector<BlockIndex>& blocks);
  absl::StatusOr<std::vector<BlockIndex>> SelectBlocks(
      const ShardSelection& selection) const;
  // By slot; empty: all.
  absl::StatusOr<std::vector<bool>> SelectSlots(const ShardSelection& selection,
                                                uint32_t table) const;
  absl::Status WriteBlock(BlockIndex block);
  absl::Status WriteTable(uint32_t table, const ShardSelection& selection);
  absl::Status WritePart(uint32_t table, uint32_t partition,
                         const std::vector<bool>& wanted);
  // Rows of a part, all of them or those of `keys`.
  absl::Status WriteRows(uint32_t table, uint32_t partition,
                         const std::vector<bool>& wanted);
  absl::Status WriteChanges(uint32_t table, uint32_t partition,
                            absl::Span<const int64_t> keys);
  absl::Status WriteFilter(uint32_t table, uint32_t partition, uint64_t total);
  absl::Status WriteCounts(uint32_t table, int lane, bool with_counts,
                           const std::vector<bool>& wanted);

  const JobConfig* const config_;
  const ShardLayout* const layout_;
  LaneExecutor* const executor_;
  const Lanes* const lanes_;
  const RunInLane run_in_lane_;
  ShardStateWriter writer_;
  std::optional<CheckpointChain::Plan> chain_;
  uint64_t cut_id_ = 0;
  std::string bulk_;  // kept for reuse
  RowBatch batch_;    // likewise
  uint64_t blocks_ = 0;
  uint64_t blocks_begun_ = 0;  // that the header speaks of
  uint64_t rows_ = 0;
  uint64_t gone_ = 0;  // keys without a row
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_SHARD_EXPORTER_H_
