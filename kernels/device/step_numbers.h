#ifndef SYNCLINE_KERNELS_DEVICE_STEP_NUMBERS_H_
#define SYNCLINE_KERNELS_DEVICE_STEP_NUMBERS_H_

#include <cstdint>

namespace syncline {

// Numbers that differ from step to step and that a plan's work reads. They lie
// in memory of the device: work that a graph has kept with its arguments then
// still computes with the numbers of the step that it runs in.
struct StepNumbers {
  uint64_t seed = 0;  // of what is random; differs by clock
  // The place of the first sample among those of the step, over all workers and
  // parts of batches.
  int64_t first_sample = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_STEP_NUMBERS_H_
