#ifndef SYNCLINE_KERNELS_CUDA_CUDA_STREAM_H_
#define SYNCLINE_KERNELS_CUDA_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

#include <cstddef>

namespace syncline {

class Stream;

namespace cuda {

// For a stream of OpenCudaDevice's. CUDA's calls of this thread are for its
// device from now on.
cudaStream_t CudaStreamOf(Stream& stream);
// Memory of the device that is the stream's, for launch.h.
inline constexpr size_t kPartialSumsBytes = 4096 * sizeof(double);
double* PartialSumsOf(Stream& stream);
// Takes note of how a launch went. An error is that of the stream's next
// Synchronize. `kernel` stays for ever: a type's name.
void NoteLaunch(Stream& stream, cudaError_t error, const char* kernel);

}  // namespace cuda
}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_CUDA_STREAM_H_
