#include "kernels/optimizer/finite.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace syncline {
namespace {

// The bits of infinity. Without their sign, finite values have smaller ones.
constexpr uint32_t kInfinity = 0x7f800000;

uint32_t Magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffff;
}

}  // namespace

bool AllFinite(const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, Magnitude(values[i]));
  }
  return largest < kInfinity;
}

size_t FirstNonFinite(const float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (Magnitude(values[i]) >= kInfinity) return i;
  }
  return count;
}

}  // namespace syncline
