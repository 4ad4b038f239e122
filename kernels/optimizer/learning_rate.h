#ifndef SYNCLINE_KERNELS_OPTIMIZER_LEARNING_RATE_H_
#define SYNCLINE_KERNELS_OPTIMIZER_LEARNING_RATE_H_

#include <cstdint>

namespace syncline {

// The learning rate as a function of the clock. The schedules and the meaning
// of each field are those of LearningRateSpec in proto/job_spec.proto, with
// every default filled in.
struct LearningRate {
  enum class Schedule {
    kConstant,
    kStep,
    kCosine,
    kLinearWarmup,
    kWarmupLinearDecay,
    kOneCycle,
    kRangeTest,
  };

  Schedule schedule = Schedule::kConstant;
  double base = 0;
  int64_t step_clocks = 1;    // > 0
  double gamma = 0.1;         // (0, 1]
  int64_t warmup_clocks = 0;  // >= 0, below total_clocks where both apply
  int64_t total_clocks = 1;   // > 0
  double start = 0;           // > 0 for kRangeTest
  double final = 0;

  // Rate of step t >= 0. From total_clocks on, schedules that end there keep
  // their last value. Computed in double: the same on every shard.
  double At(int64_t t) const;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_OPTIMIZER_LEARNING_RATE_H_
