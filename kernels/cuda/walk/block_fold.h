#ifndef SYNCLINE_KERNELS_CUDA_WALK_BLOCK_FOLD_H_
#define SYNCLINE_KERNELS_CUDA_WALK_BLOCK_FOLD_H_

// Sums and maxima over the threads of a block, always in the same order.

#include "kernels/cuda/language.h"

namespace syncline::cuda {

inline constexpr int kWarpsMax = 32;  // of a block

struct Plus {
  template <typename T>
  SYNCLINE_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
// NaN if either is NaN.
struct Larger {
  SYNCLINE_DEVICE float operator()(float a, float b) const {
    return a > b || a != a ? a : b;
  }
};

// fold over the values of a warp's lanes, in all of them. T has 4 or 8 bytes.
template <typename T, typename Fold>
SYNCLINE_DEVICE T WarpFold(T value, Fold fold) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value = fold(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// fold over the values of the block's threads, in all of them. All threads call
// it. `partial` is shared, [kWarpsMax], and may be used again afterwards.
template <typename T, typename Fold>
SYNCLINE_DEVICE T BlockFold(T value, Shared<T> partial, Fold fold) {
  value = WarpFold(value, fold);
  const int warps = blockDim.x / kWarpThreads;
  if (threadIdx.x % kWarpThreads == 0) {
    partial[threadIdx.x / kWarpThreads] = value;
  }
  __syncthreads();
  T whole = partial[0];
  for (int warp = 1; warp < warps; ++warp) {
    whole = fold(whole, static_cast<T>(partial[warp]));
  }
  __syncthreads();
  return whole;
}

template <typename T>
SYNCLINE_DEVICE T BlockSum(T value, Shared<T> partial) {
  return BlockFold(value, partial, Plus());
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_BLOCK_FOLD_H_
