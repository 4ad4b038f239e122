#ifndef SYNCLINE_WORKER_DEVICE_CUDA_GPUS_H_
#define SYNCLINE_WORKER_DEVICE_CUDA_GPUS_H_

#include "kernels/cuda/cuda_device.h"
#include "worker/device/worker_device.h"

namespace syncline::worker {

// The GPUs that CUDA shows to this process, with these convolutions; with
// graphs, or without (OpenCudaDevice).
GpuSource CudaGpus(CudaConvolutions convolutions, bool has_graphs);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DEVICE_CUDA_GPUS_H_
