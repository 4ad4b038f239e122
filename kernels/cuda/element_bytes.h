#ifndef SYNCLINE_KERNELS_CUDA_ELEMENT_BYTES_H_
#define SYNCLINE_KERNELS_CUDA_ELEMENT_BYTES_H_

#include <cstddef>
#include <cstdint>

#include "common/base/check.h"

namespace syncline::cuda {

// Calls run(T()) with the unsigned type of so many bytes: 1, 2, 4 or 8.
// Code that copies elements needs to know no more of them.
template <typename Run>
void WithElementBytes(size_t bytes, Run run) {
  if (bytes == 1) return run(uint8_t{});
  if (bytes == 2) return run(uint16_t{});
  if (bytes == 4) return run(uint32_t{});
  SYNCLINE_CHECK(bytes == 8);
  run(uint64_t{});
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_ELEMENT_BYTES_H_
