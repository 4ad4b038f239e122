#ifndef SYNCLINE_TESTS_SIMULATION_SHARD_SCRIPT_H_
#define SYNCLINE_TESTS_SIMULATION_SHARD_SCRIPT_H_

#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "common/regime/regime_schedule.h"
#include "common/update/dense_updater.h"
#include "tests/simulation/shard_simulation.h"

namespace syncline {

// The calls of every worker of a simulated job, and the values that must come
// of them.
class ShardScript {
 public:
  explicit ShardScript(const SimulationOptions& options);

  uint32_t worker_count() const { return workers_; }
  uint32_t block_count() const { return blocks_; }
  // The last of them are virtual slots of tables: zero from the start, and
  // never initialised.
  uint32_t slot_count() const { return slots_; }
  int64_t clock_count(uint32_t rank) const { return clocks_[rank]; }
  int64_t staleness() const { return staleness_; }
  double clip_norm() const { return clip_norm_; }

  // Blocks and samples of one step; none once the worker is out of data.
  const std::vector<ps::BlockIndex>& blocks(uint32_t rank,
                                            int64_t clock) const {
    return steps_[rank][clock].blocks;
  }
  // 0 from the worker's end on.
  uint64_t samples(uint32_t rank, int64_t clock) const {
    return clock < clocks_[rank] ? steps_[rank][clock].samples : 0;
  }
  // The regimes that are known from the start; later ones are made up as the
  // history goes.
  const RegimeSchedule& regimes() const { return regimes_; }
  // The regime that follows `last`, from `clock` on.
  TrainingRegime Next(const TrainingRegime& last, int64_t clock,
                      Random* random) const;
  bool sends(uint32_t rank, int64_t clock, ps::BlockIndex block) const;
  std::vector<float> gradient(uint32_t rank, int64_t clock,
                              ps::BlockIndex block) const;
  // Values that a clock's pushes subtract from the block, where regimes change:
  // at a factor of 1, exactly. SYNC: the mean of all; else the sum of means.
  std::vector<float> step(int64_t clock, ps::BlockIndex block, bool sync) const;
  std::vector<float> initial(ps::BlockIndex block) const;
  // Of the whole push, undivided.
  double squared_norm(uint32_t rank, int64_t clock) const;
  // The global norm of one sync clock's mean gradient.
  double sync_squared_norm(int64_t clock) const;

  // Values of a block after `version` sync clocks, by the plainest serial fold.
  const std::vector<float>& folded(ps::BlockIndex block,
                                   int64_t version) const {
    return folded_[block][version];
  }

  static constexpr size_t kElements = 3;  // of a block
  static constexpr float kRate = 0.125f;

  // All of it is SYNC, in one regime: values are those of the serial fold.
  bool FoldsInSync() const {
    return options_.mode == ConsistencyMode::kSync && options_.changes == 0;
  }

 private:
  struct Step {
    std::vector<ps::BlockIndex> blocks;
    uint64_t samples = 0;
  };
  std::vector<float> SyncMean(int64_t clock, ps::BlockIndex block,
                              uint64_t* total, bool* any) const;
  void FoldSerially();

  const SimulationOptions options_;
  uint32_t workers_ = 0;
  uint32_t blocks_ = 0;
  uint32_t slots_ = 0;
  int64_t staleness_ = 0;
  RegimeSchedule regimes_;
  double clip_norm_ = 0;
  std::vector<int64_t> clocks_;
  std::vector<std::vector<Step>> steps_;
  std::vector<std::vector<std::vector<float>>> folded_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_SIMULATION_SHARD_SCRIPT_H_
