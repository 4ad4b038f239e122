#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_TF32_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_TF32_H_

#include <cstdint>
#include <cstring>

namespace syncline::testing {

// The nearest number of 11 bits, even where two are as near: a factor as tensor
// cores multiply it in TF32.
inline float ToTf32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  constexpr uint32_t kDropped = (uint32_t{1} << 13) - 1;
  bits = (bits + (kDropped >> 1) + ((bits >> 13) & 1)) & ~kDropped;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_TF32_H_
