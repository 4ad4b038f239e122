#ifndef SYNCLINE_COMMON_UPDATE_STEP_RULE_H_
#define SYNCLINE_COMMON_UPDATE_STEP_RULE_H_

#include <cstdint>

#include "common/regime/live_regimes.h"
#include "common/regime/regime_schedule.h"
#include "kernels/optimizer/learning_rate.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline {

// The part that all updates of a job at one clock have in common: of blocks and
// of table rows on their owners, and of rows that a worker has cached. An owner
// and a worker that use the same rule compute the same bits.
struct StepRule {
  LearningRate learning_rate;
  RegimeSchedule regimes = {};  // learning_rate_factor
  double clip_norm = 0;         // 0: off
  // In place of `regimes` where some come while the job runs; outlives this.
  const LiveRegimes* live = nullptr;

  // Factor that turns the gradient of the loss summed over `sample_count` > 0
  // samples into that of the mean, scaled down to clip_norm where
  // `squared_norm` (of the mean gradient of the whole job; negative: unknown)
  // exceeds it. Computed in double.
  float GradientScale(uint64_t sample_count, double squared_norm) const;
  // The rate of step `clock` >= 0: the schedule's, times the factor of the
  // clock's regime. Computed in double; a factor of 1 changes no bit.
  float RateAt(int64_t clock) const {
    return static_cast<float>(learning_rate.At(clock) *
                              RegimeAt(clock).learning_rate_factor);
  }
  const TrainingRegime& RegimeAt(int64_t clock) const {
    return live != nullptr ? live->At(clock) : regimes.At(clock);
  }
  // Both. `t` counts the updates of what is updated, so it is left to the
  // caller.
  OptimizerStep StepAt(int64_t clock, uint64_t sample_count,
                       double squared_norm = -1) const {
    const GradientCompression& compression = RegimeAt(clock).compression;
    return {.learning_rate = RateAt(clock),
            .gradient_scale = GradientScale(sample_count, squared_norm),
            .t = 1,
            .frozen_t = compression.SendsMoments(clock)
                            ? static_cast<int64_t>(compression.warmup_clocks)
                            : 0};
  }
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_STEP_RULE_H_
