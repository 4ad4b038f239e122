#ifndef SYNCLINE_KERNELS_CUDA_ELEMENTWISE_NARROW_FLOATS_H_
#define SYNCLINE_KERNELS_CUDA_ELEMENTWISE_NARROW_FLOATS_H_

// float32 as 16 bits and back, as common/base/element_type.h has it: to the
// nearest and ties to even, NaN stays NaN with its sign, subnormals are kept.

#include <bit>
#include <cstdint>

#include "kernels/elementwise/host_device.h"

namespace syncline::cuda {

struct Bfloat16 {
  SYNCLINE_HOST_DEVICE static uint16_t Narrow(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x0040);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  SYNCLINE_HOST_DEVICE static float Widen(uint16_t bits) {
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
};

struct Float16 {
  SYNCLINE_HOST_DEVICE static uint16_t Narrow(float value) {
    constexpr uint32_t kInfinity = 0x7c00;
    constexpr uint32_t kOverflow = (127 + 16) << 23;     // 2^16
    constexpr uint32_t kLeastNormal = (127 - 14) << 23;  // 2^-14
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t size = bits & 0x7fffffff;
    if (value != value) {
      return static_cast<uint16_t>(sign | 0x7e00 | (size >> 13 & 0x1ff));
    }
    if (size >= kOverflow) return static_cast<uint16_t>(sign | kInfinity);
    if (size < kLeastNormal) {
      // Beside 1/2 the last bit of a float is 2^-24, that of a subnormal: the
      // sum is rounded as it must be.
      constexpr uint32_t kHalf = 126u << 23;
      const float sum =
          std::bit_cast<float>(size) + std::bit_cast<float>(kHalf);
      return static_cast<uint16_t>(sign |
                                   (std::bit_cast<uint32_t>(sum) - kHalf));
    }
    const uint32_t odd = size >> 13 & 1;
    const uint32_t rounded = size - ((127 - 15) << 23) + 0xfff + odd;
    return static_cast<uint16_t>(sign | rounded >> 13);
  }
  SYNCLINE_HOST_DEVICE static float Widen(uint16_t bits) {
    const uint32_t sign = uint32_t{bits} << 16 & 0x80000000;
    const uint32_t size = (uint32_t{bits} & 0x7fff) << 13;
    const uint32_t exponent = size >> 23;
    if (exponent == 0) {  // A subnormal counts steps of 2^-24.
      constexpr float kStep = 1.0f / (1 << 24);
      const float value = static_cast<float>(size >> 13) * kStep;
      return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
    }
    const uint32_t shift = exponent == 31 ? 255 - 31 : 127 - 15;
    return std::bit_cast<float>(sign | (size + (shift << 23)));
  }
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_ELEMENTWISE_NARROW_FLOATS_H_
