#ifndef SYNCLINE_KERNELS_CUDA_LANGUAGE_H_
#define SYNCLINE_KERNELS_CUDA_LANGUAGE_H_

// The language of the .cu files. nvcc compiles them for GPUs; any other
// compiler takes them as C++ against an emulator of CUDA's execution model,
// which tests name by SYNCLINE_CUDA_EMULATOR
// (tests/testing/cuda_emulator/README.md). So a kernel keeps to what both have:
//
//   - threadIdx.x, blockIdx.x, blockDim.x, gridDim.x: all of one dimension.
//   - Global<T>, an array in memory of the device: OnDevice(pointer) makes one
//     on the host, when the kernel is launched; a kernel indexes it.
//     ViewAs<U>(array) is the same memory as elements of another type.
//   - SharedMemory, from which all threads of a block Take the same arrays.
//   - __syncthreads, and __shfl_xor_sync, __shfl_down_sync, __shfl_sync,
//     __ballot_sync within a warp.
//   - Threads communicate through memory with __syncthreads between, and
//     through nothing else. There are no atomics on floating-point numbers.
//   - AsOnlyThread(element, lock, f), for what is seldom done: f changes an
//     element that threads of all blocks may change.
//   - Launch (launch.h) instead of <<<>>>.
//
// One expression, one rounding: nvcc gets -fmad=false, so that sums, products,
// quotients and roots have the bits of the emulator and of the CPU. A kernel
// that wants a fused multiply-add says fmaf.

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#define SYNCLINE_DEVICE __device__

namespace syncline::cuda {

template <typename T>
using Global = T*;
template <typename T>
using Shared = T*;

// `array` may be null.
template <typename T>
Global<T> OnDevice(T* array) {
  return array;
}

template <typename To, typename From>
__device__ Global<To> ViewAs(Global<From> array) {
  return reinterpret_cast<Global<To>>(array);
}

// The shared memory of a block, as much as its launch said. Every thread takes
// the same arrays in the same order.
class SharedMemory {
 public:
  template <typename T>
  __device__ Shared<T> Take(int count) {
    extern __shared__ __align__(16) unsigned char memory[];
    const size_t begin = (taken_ + alignof(T) - 1) / alignof(T) * alignof(T);
    taken_ = begin + count * sizeof(T);
    return reinterpret_cast<T*>(memory + begin);
  }

 private:
  size_t taken_ = 0;
};

// Calls f(value) with a copy of an element, which is then written back, while
// no other thread does. `lock` is 0 when nobody does. T has a multiple of 4
// bytes.
template <typename T, typename F>
__device__ void AsOnlyThread(Global<T> element, Global<int32_t> lock, F f) {
  static_assert(sizeof(T) % sizeof(int32_t) == 0);
  constexpr size_t kWords = sizeof(T) / sizeof(int32_t);
  // Threads of a warp come one by one, so that none waits for another that
  // waits for it.
  bool is_done = false;
  while (!is_done) {
    if (atomicCAS(lock, 0, 1) != 0) continue;
    __threadfence();
    volatile int32_t* const words =
        reinterpret_cast<volatile int32_t*>(element);
    int32_t copy[kWords];
    for (size_t i = 0; i < kWords; ++i) copy[i] = words[i];
    T value;
    memcpy(&value, copy, sizeof(T));
    f(value);
    memcpy(copy, &value, sizeof(T));
    for (size_t i = 0; i < kWords; ++i) words[i] = copy[i];
    __threadfence();
    atomicExch(lock, 0);
    is_done = true;
  }
}

}  // namespace syncline::cuda

#else

#include SYNCLINE_CUDA_EMULATOR

#endif

namespace syncline::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Of a launch, both of one dimension.
struct LaunchShape {
  int64_t blocks = 0;       // at most 2^31 - 1; none: nothing is launched
  int threads = 0;          // of a block, a multiple of a warp's, at most 1024
  size_t shared_bytes = 0;  // of a block, at most kSharedBytesMax
};
// The memory that a block may share without asking for more.
inline constexpr size_t kSharedBytesMax = 48 * 1024;

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_LANGUAGE_H_
