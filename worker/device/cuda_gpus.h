#ifndef SYNCLINE_WORKER_DEVICE_CUDA_GPUS_H_
#define SYNCLINE_WORKER_DEVICE_CUDA_GPUS_H_

#include "worker/device/worker_device.h"

namespace syncline::worker {

// The GPUs that CUDA shows to this process.
GpuSource CudaGpus();

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DEVICE_CUDA_GPUS_H_
