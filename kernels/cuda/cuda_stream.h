#ifndef SYNCLINE_KERNELS_CUDA_CUDA_STREAM_H_
#define SYNCLINE_KERNELS_CUDA_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

namespace syncline {

class Stream;

namespace cuda {

// REQUIRES: a stream of OpenCudaDevice's.
cudaStream_t CudaStreamOf(Stream& stream);
// Takes note of how a launch went. An error is that of the stream's next
// Synchronize. `kernel` stays for ever: a type's name.
void NoteLaunch(Stream& stream, cudaError_t error, const char* kernel);

}  // namespace cuda
}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_CUDA_STREAM_H_
