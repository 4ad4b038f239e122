#ifndef SYNCLINE_KERNELS_CUDA_MMA_H_
#define SYNCLINE_KERNELS_CUDA_MMA_H_

// The products that a warp's tensor cores compute at once: C [16, 8] +=
// A [16, 16] B [16, 8], A and B of 16 bits, C and the sums float32. Source: PTX
// ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": lane l has
// group g = l / 4 and t = l % 4, and of each matrix these elements. A pair is
// of two neighbouring k, the lower one in the lower bits.

#include <cstdint>

#include "common/base/dtype.h"
#include "kernels/cuda/float_array.h"
#include "kernels/cuda/language.h"

namespace syncline::cuda {

inline constexpr int kMmaRows = 16;
inline constexpr int kMmaColumns = 8;
inline constexpr int kMmaDepth = 16;

// Of A: rows g and g + 8 at k = 2 t, then both at k = 2 t + 8.
struct MmaRowPairs {
  uint32_t pairs[4];
};
// Of B: column g at k = 2 t, and at 2 t + 8.
struct MmaColumnPairs {
  uint32_t pairs[2];
};
// Of C: row g at columns 2 t and 2 t + 1, then row g + 8.
struct MmaSums {
  float at[4];
};

SYNCLINE_DEVICE inline int MmaGroup() { return threadIdx.x % kWarpThreads / 4; }
SYNCLINE_DEVICE inline int MmaMember() { return threadIdx.x % 4; }

// c += a b, of bfloat16 or float16. All lanes of the warp call it.
#if defined(__CUDACC__)

SYNCLINE_DEVICE inline void MultiplyAdd(DType type, const MmaRowPairs& a,
                                        const MmaColumnPairs& b, MmaSums& c) {
  if (type == DType::kBfloat16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
        : "r"(a.pairs[0]), "r"(a.pairs[1]), "r"(a.pairs[2]), "r"(a.pairs[3]),
          "r"(b.pairs[0]), "r"(b.pairs[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
        : "r"(a.pairs[0]), "r"(a.pairs[1]), "r"(a.pairs[2]), "r"(a.pairs[3]),
          "r"(b.pairs[0]), "r"(b.pairs[1]));
  }
}

#else

inline void MultiplyAdd(DType type, const MmaRowPairs& a,
                        const MmaColumnPairs& b, MmaSums& c) {
  // The elements of this lane's rows and columns, of the lanes that have them.
  float rows[2][kMmaDepth];
  float columns[2][kMmaDepth];
  const auto spread = [type](uint32_t pair, int k, float* to) {
    to[k] = WidenAs(type, static_cast<uint16_t>(pair));
    to[k + 1] = WidenAs(type, static_cast<uint16_t>(pair >> 16));
  };
  for (int member = 0; member < 4; ++member) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair =
          __shfl_sync(kAllLanes, a.pairs[i], 4 * MmaGroup() + member);
      spread(pair, 2 * member + i / 2 * 8, rows[i % 2]);
    }
    for (int column = 0; column < 2; ++column) {
      const int lane = 4 * (2 * MmaMember() + column) + member;
      for (int i = 0; i < 2; ++i) {
        spread(__shfl_sync(kAllLanes, b.pairs[i], lane), 2 * member + 8 * i,
               columns[column]);
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < kMmaDepth; ++k) {
      c.at[i] += rows[i / 2][k] * columns[i % 2][k];
    }
  }
}

#endif

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_MMA_H_
