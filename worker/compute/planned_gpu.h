#ifndef SYNCLINE_WORKER_COMPUTE_PLANNED_GPU_H_
#define SYNCLINE_WORKER_COMPUTE_PLANNED_GPU_H_

#include "kernels/cpu/cpu_device.h"

namespace syncline::worker {

// Stands for a worker's GPU in plans that are made where there is none: it
// aligns arrays and lays out channels as CUDA's devices do, and lists this
// machine's kernels, which are the same families. Scratch memory of
// convolutions, attention and recurrent layers is this machine's, too. Nothing
// is to be computed on it. Thread-safe.
class PlannedGpu : public CpuDevice {
 public:
  absl::string_view name() const override { return "cuda"; }
  size_t alignment() const override { return 256; }
  int64_t channel_block() const override { return 1; }
  bool is_host() const override { return false; }
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_PLANNED_GPU_H_
