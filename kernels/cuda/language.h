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
//   - AsOnlyThread(element, lock, wants, f), for what is seldom done: f changes
//     an element that threads of all blocks may change, if wants says so.
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
#include <type_traits>

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

// An element that AsOnlyThread changes, as words that no thread sees half of.
// A thread that reads it without the lock gets the first word as some thread
// wrote it, and the others as that thread did or a later one.
template <typename T>
class LockedWords {
 public:
  explicit __device__ LockedWords(Global<T> element)
      : words_(reinterpret_cast<volatile Word*>(element)) {}

  __device__ T Read() const {
    Word copy[kWords];
    copy[0] = words_[0];
    __threadfence();
    for (int i = 1; i < kWords; ++i) copy[i] = words_[i];
    T value;
    memcpy(&value, copy, sizeof(T));
    return value;
  }
  // The first word comes last, so that who sees it sees the others.
  __device__ void Write(const T& value) const {
    Word copy[kWords];
    memcpy(copy, &value, sizeof(T));
    for (int i = kWords - 1; i > 0; --i) words_[i] = copy[i];
    __threadfence();
    words_[0] = copy[0];
  }

 private:
  using Word = std::conditional_t<alignof(T) % 8 == 0, int64_t, int32_t>;
  static_assert(sizeof(T) % sizeof(Word) == 0 &&
                alignof(T) % sizeof(Word) == 0);
  static constexpr int kWords = sizeof(T) / sizeof(Word);

  volatile Word* const words_;
};

// Changes an element that threads of all blocks may change: if wants(value),
// calls f(value) with a copy, which is then written back, while no other thread
// does. `lock` is 0 when nobody does. wants is asked without the lock first, so
// that threads that come too late do not wait for it; what it denies once it
// must deny for ever.
//
// Only a GPU shows what the order of memory and the turns of lanes are for: the
// emulator has one thread at a time.
template <typename T, typename Wants, typename F>
__device__ void AsOnlyThread(Global<T> element, Global<int32_t> lock,
                             Wants wants, F f) {
  const LockedWords<T> words(element);
  if (!wants(words.Read())) return;
  // The lanes that are here take turns. So no lane waits for the lock while
  // another of them has it, and the later ones see what the first has changed.
  const unsigned lanes = __activemask();
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const bool is_next =
        threadIdx.x % 32 == static_cast<unsigned>(__ffs(left) - 1);
    if (is_next && wants(words.Read())) {
      while (atomicCAS(lock, 0, 1) != 0) {
      }
      __threadfence();
      T value = words.Read();
      if (wants(value)) {
        f(value);
        words.Write(value);
      }
      __threadfence();
      atomicExch(lock, 0);
    }
    __syncwarp(lanes);
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
