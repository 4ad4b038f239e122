#ifndef SYNCLINE_KERNELS_DEVICE_BLOCK_COPY_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_BLOCK_COPY_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device/floats.h"

namespace syncline {

class Stream;

// Runs of elements, one in each row of two arrays: what is joined along an axis
// and what is cut there. In elements.
struct BlockRows {
  int64_t rows = 1;
  int64_t width = 0;
  int64_t from_row = 0;  // where the next row begins
  int64_t to_row = 0;
};

// Addresses are those of the first run. Runs of `from` and `to` do not overlap.
struct BlockCopyKernels {
  // Elements of 1, 2, 4 or 8 bytes.
  void (*copy)(Stream& stream, const BlockRows& s, size_t element_bytes,
               const void* from, void* to) = nullptr;
  // to = from, or += with `accumulate`. `from` may be `to`.
  void (*gradient)(Stream& stream, const BlockRows& s, ConstFloats from,
                   bool accumulate, Floats to) = nullptr;
  // to = 0.
  void (*clear)(Stream& stream, const BlockRows& s, Floats to) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_BLOCK_COPY_KERNELS_H_
