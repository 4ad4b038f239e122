#ifndef SYNCLINE_WORKER_COMPUTE_PLANNED_GPU_H_
#define SYNCLINE_WORKER_COMPUTE_PLANNED_GPU_H_

#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/device/kernel_table.h"

namespace syncline::worker {

// Stands for a worker's GPU in plans that are made where there is none: it
// aligns arrays, lays out channels and computes in 16 bits as CUDA's devices
// do. Its kernels are this machine's, which are the same families, and products
// and convolutions that compute nothing. Scratch memory of convolutions is a
// GPU's, that of attention and recurrent layers this machine's. Nothing is to
// be computed on it. Thread-safe.
class PlannedGpu : public CpuDevice {
 public:
  PlannedGpu();

  absl::string_view name() const override { return "cuda"; }
  const KernelTable& kernels() const override { return kernels_; }
  bool computes_in(absl::string_view op_type, DType type) const override {
    return CudaComputesIn(op_type, type);
  }
  size_t alignment() const override { return 256; }
  int64_t channel_block() const override { return 1; }
  bool is_host() const override { return false; }

 private:
  KernelTable kernels_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_PLANNED_GPU_H_
