#ifndef SYNCLINE_KERNELS_CUDA_LAUNCH_H_
#define SYNCLINE_KERNELS_CUDA_LAUNCH_H_

// Kernels are function objects that are copied to the device byte by byte, with
// their arguments as fields or captures.

#include <algorithm>
#include <type_traits>
#include <typeinfo>

#include "kernels/cuda/float_array.h"
#include "kernels/cuda/language.h"

#if defined(__CUDACC__)
#include "kernels/cuda/cuda_stream.h"
#endif

namespace syncline {

class Stream;

namespace cuda {

// CUDA takes no more bytes of arguments everywhere.
inline constexpr size_t kKernelBytesMax = 4096;

// Memory of the stream for what blocks hand to the next launch of the same
// family has so many elements: PartialSums(stream).
inline constexpr int64_t kPartialSumsMax = 4096;

#if defined(__CUDACC__)

template <typename Kernel>
__global__ void RunKernel(const Kernel kernel) {
  kernel();
}

template <typename Kernel>
void Launch(Stream& stream, const LaunchShape& shape, const Kernel& kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  static_assert(sizeof(Kernel) <= kKernelBytesMax);
  if (shape.blocks == 0) return;
  void* arguments[] = {const_cast<Kernel*>(&kernel)};
  // Its own status: the thread's last error may be of another device.
  const cudaError_t error = cudaLaunchKernel(
      RunKernel<Kernel>, dim3(static_cast<unsigned>(shape.blocks)),
      dim3(static_cast<unsigned>(shape.threads)), arguments, shape.shared_bytes,
      CudaStreamOf(stream));
  NoteLaunch(stream, error, typeid(Kernel).name());
}

inline Global<double> PartialSums(Stream& stream) {
  static_assert(kPartialSumsMax * sizeof(double) == kPartialSumsBytes);
  return PartialSumsOf(stream);
}

// The same memory, for a T of at most 8 bytes.
template <typename T>
Global<T> Partials(Stream& stream) {
  static_assert(sizeof(T) <= sizeof(double));
  return reinterpret_cast<T*>(PartialSums(stream));
}

#else

template <typename Kernel>
void Launch(Stream& stream, const LaunchShape& shape, const Kernel& kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  static_assert(sizeof(Kernel) <= kKernelBytesMax);
  if (shape.blocks == 0) return;
  RunEmulated(stream, shape.blocks, shape.threads, shape.shared_bytes,
              typeid(Kernel), [kernel] { kernel(); });
}

template <typename T>
Global<T> Partials(Stream& stream) {
  static_assert(sizeof(T) <= sizeof(double));
  return OnDevice(reinterpret_cast<T*>(PartialSums(stream).at()));
}

#endif

// Threads of a block of kernels that have no reason for another number.
inline constexpr int kBlockThreads = 256;
// Blocks of a launch over elements at most: enough to fill every GPU that
// there is; a thread then takes several elements.
inline constexpr int64_t kElementBlocksMax = 4096;

template <typename F>
struct ElementsKernel {
  int64_t n;
  F f;

  SYNCLINE_DEVICE void operator()() const {
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i =
             static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         i < n; i += step) {
      f(i);
    }
  }
};

// Calls f(i) for each i of [0, n), by one thread each.
template <typename F>
void LaunchElements(Stream& stream, int64_t n, const F& f) {
  const int64_t blocks =
      std::min((n + kBlockThreads - 1) / kBlockThreads, kElementBlocksMax);
  Launch(stream, {.blocks = blocks, .threads = kBlockThreads},
         ElementsKernel<F>{n, f});
}

}  // namespace cuda
}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_LAUNCH_H_
