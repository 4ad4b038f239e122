#ifndef SYNCLINE_KERNELS_CUDA_ELEMENTWISE_NARROW_FLOATS_H_
#define SYNCLINE_KERNELS_CUDA_ELEMENTWISE_NARROW_FLOATS_H_

// float32 as 16 bits and back, as common/base/element_type.h has it: to the
// nearest and ties to even, NaN stays NaN with its sign, subnormals are kept. A
// GPU has instructions for float16 that do the same.

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
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t size = bits & 0x7fffffff;
    if (value != value) {
      return static_cast<uint16_t>(sign | 0x7e00 | (size >> 13 & 0x1ff));
    }
#if defined(__CUDA_ARCH__)
    uint16_t narrow = 0;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(value));
    return narrow;
#else
    return static_cast<uint16_t>(sign | NarrowSize(size));
#endif
  }
  SYNCLINE_HOST_DEVICE static float Widen(uint16_t bits) {
#if defined(__CUDA_ARCH__)
    float value = 0;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const uint32_t sign = uint32_t{bits} << 16 & 0x80000000;
    return std::bit_cast<float>(sign | WidenSize(bits));
#endif
  }

 private:
  // Of numbers without their sign.
  static uint32_t NarrowSize(uint32_t size) {
    constexpr uint32_t kInfinity = 0x7c00;
    constexpr uint32_t kOverflow = (127 + 16) << 23;     // 2^16
    constexpr uint32_t kLeastNormal = (127 - 14) << 23;  // 2^-14
    if (size >= kOverflow) return kInfinity;
    if (size < kLeastNormal) {
      // Beside 1/2 the last bit of a float is 2^-24, that of a subnormal: the
      // sum is rounded as it must be.
      constexpr uint32_t kHalf = 126u << 23;
      const float sum =
          std::bit_cast<float>(size) + std::bit_cast<float>(kHalf);
      return std::bit_cast<uint32_t>(sum) - kHalf;
    }
    const uint32_t odd = size >> 13 & 1;
    return (size - ((127 - 15) << 23) + 0xfff + odd) >> 13;
  }
  static uint32_t WidenSize(uint16_t bits) {
    const uint32_t size = (uint32_t{bits} & 0x7fff) << 13;
    const uint32_t exponent = size >> 23;
    if (exponent == 0) {  // A subnormal counts steps of 2^-24.
      constexpr float kStep = 1.0f / (1 << 24);
      return std::bit_cast<uint32_t>(static_cast<float>(size >> 13) * kStep);
    }
    const uint32_t shift = exponent == 31 ? 255 - 31 : 127 - 15;
    return size + (shift << 23);
  }
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_ELEMENTWISE_NARROW_FLOATS_H_
