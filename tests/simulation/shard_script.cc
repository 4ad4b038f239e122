#include "tests/simulation/shard_script.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace syncline {

ShardScript::ShardScript(const SimulationOptions& options) : options_(options) {
  Random random(SeedFor(options.seed, 1));
  workers_ = 1 + random.Below(4);
  blocks_ = 1 + random.Below(4);
  slots_ = random.Below(blocks_ + 1);
  staleness_ = random.Below(4);
  clip_norm_ = options.clip_norm ? 0.5 + random.Uniform() : 0;
  const bool sync = FoldsInSync();
  const int64_t common_clocks = 2 + random.Below(6);
  steps_.resize(workers_);
  for (uint32_t rank = 0; rank < workers_; ++rank) {
    // In sync all take the same number of steps, some of them empty.
    const bool together = sync || (options.mixed && options.cuts);
    clocks_.push_back(together ? common_clocks : 1 + random.Below(7));
    const bool runs_dry = random.Below(3) == 0;
    const int64_t dry_from =
        runs_dry ? random.Below(clocks_[rank] + 1) : clocks_[rank];
    for (int64_t clock = 0; clock < clocks_[rank]; ++clock) {
      Step& step = steps_[rank].emplace_back();
      if (clock >= dry_from) continue;
      // Powers of two where means must be exact.
      step.samples =
          sync ? 1 + random.Below(8) : uint64_t{1} << random.Below(4);
      if (options.changes > 0) step.samples = 1;
      for (ps::BlockIndex block = 0; block < blocks_; ++block) {
        if (random.Below(8) > 0) step.blocks.push_back(block);
      }
    }
  }
  if (sync) FoldSerially();
  TrainingRegime first = {.mode = options.mode};
  if (options.mode == ConsistencyMode::kBoundedStaleness) {
    first.staleness_bound = staleness_;
  }
  regimes_ = RegimeSchedule(first);
  const int known = random.Below(3) == 0 ? options.changes / 2 : 0;
  for (int i = 0; i < known; ++i) {
    const TrainingRegime& last = regimes_.regimes().back();
    const int64_t clock = last.first_clock + 1 + random.Below(4);
    SYNCLINE_CHECK(regimes_.Add(Next(last, clock, &random), 0).ok());
  }
}

TrainingRegime ShardScript::Next(const TrainingRegime& last, int64_t clock,
                                 Random* random) const {
  TrainingRegime next = {.first_clock = clock, .mode = last.mode};
  if (options_.mixed && random->Below(2) == 0) {
    next.mode = last.sync() ? ConsistencyMode::kAsync : ConsistencyMode::kSync;
  }
  if (!next.sync()) {
    next.mode = random->Below(3) == 0 ? ConsistencyMode::kAsync
                                      : ConsistencyMode::kBoundedStaleness;
  }
  if (next.mode == ConsistencyMode::kBoundedStaleness) {
    next.staleness_bound = random->Below(4);
  }
  next.learning_rate_factor = 0.5 * (1 + random->Below(4));
  return next;
}

std::vector<float> ShardScript::step(int64_t clock, ps::BlockIndex block,
                                     bool sync) const {
  std::vector<float> total(kElements, 0.0f);
  uint64_t samples = 0;
  for (uint32_t rank = 0; rank < workers_; ++rank) {
    samples += this->samples(rank, clock);
    if (!sends(rank, clock, block)) continue;
    const std::vector<float> g = gradient(rank, clock, block);
    for (size_t i = 0; i < kElements; ++i) total[i] += g[i];
  }
  // Each worker has one sample, and gradients are multiples of 12.
  for (float& value : total) {
    if (sync && samples > 0) value /= static_cast<float>(samples);
  }
  return total;
}

bool ShardScript::sends(uint32_t rank, int64_t clock,
                        ps::BlockIndex block) const {
  if (clock >= clocks_[rank]) return false;
  const std::vector<ps::BlockIndex>& sent = blocks(rank, clock);
  return std::find(sent.begin(), sent.end(), block) != sent.end();
}

std::vector<float> ShardScript::gradient(uint32_t rank, int64_t clock,
                                         ps::BlockIndex block) const {
  Random random(
      SeedFor(SeedFor(SeedFor(options_.seed, 100 + rank), clock), block));
  std::vector<float> values(kElements);
  for (float& value : values) {
    // Sync: over many magnitudes, so that any other order of addition differs.
    // Else: multiples of the sample count, so that means are integers; where
    // regimes change, of each number of workers.
    value =
        FoldsInSync()
            ? static_cast<float>(random.Normal() * std::exp2(random.Below(12)))
            : static_cast<float>(random.Below(64) * samples(rank, clock));
    if (options_.changes > 0) value *= 12;
  }
  return values;
}

std::vector<float> ShardScript::initial(ps::BlockIndex block) const {
  const bool is_slot = block >= blocks_ - slots_;
  return std::vector<float>(kElements,
                            is_slot ? 0 : static_cast<float>(block + 1));
}

double ShardScript::squared_norm(uint32_t rank, int64_t clock) const {
  double sum = 0;
  for (const ps::BlockIndex block : blocks(rank, clock)) {
    for (const float g : gradient(rank, clock, block)) sum += double{g} * g;
  }
  return sum;
}

std::vector<float> ShardScript::SyncMean(int64_t clock, ps::BlockIndex block,
                                         uint64_t* total, bool* any) const {
  *total = 0;
  *any = false;
  std::vector<float> sum(kElements, 0.0f);
  for (uint32_t rank = 0; rank < workers_; ++rank) {
    *total += samples(rank, clock);
    if (!sends(rank, clock, block)) continue;
    const std::vector<float> g = gradient(rank, clock, block);
    for (size_t i = 0; i < kElements; ++i) {
      sum[i] = *any ? sum[i] + g[i] : g[i];
    }
    *any = true;
  }
  return sum;
}

double ShardScript::sync_squared_norm(int64_t clock) const {
  double squares = 0;
  for (ps::BlockIndex block = 0; block < blocks_; ++block) {
    uint64_t total = 0;
    bool any = false;
    for (const float g : SyncMean(clock, block, &total, &any)) {
      const double mean = g * static_cast<float>(1.0 / total);
      squares += mean * mean;
    }
  }
  return squares;
}

void ShardScript::FoldSerially() {
  folded_.resize(blocks_);
  for (ps::BlockIndex block = 0; block < blocks_; ++block) {
    std::vector<float> value = initial(block);
    folded_[block].push_back(value);
    for (int64_t clock = 0; clock < clocks_[0]; ++clock) {
      uint64_t total = 0;
      bool any = false;
      const std::vector<float> sum = SyncMean(clock, block, &total, &any);
      if (any) {
        double scale = 1.0 / static_cast<double>(total);
        const double norm =
            clip_norm_ > 0 ? std::sqrt(sync_squared_norm(clock)) : 0;
        if (norm > clip_norm_) scale *= clip_norm_ / norm;
        for (size_t i = 0; i < kElements; ++i) {
          const float mean = sum[i] * static_cast<float>(scale);
          value[i] = value[i] - kRate * mean;
        }
      }
      folded_[block].push_back(value);
    }
  }
}

}  // namespace syncline
