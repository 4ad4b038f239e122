#include "common/base/element_type.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace syncline {
namespace {

// The number of values that one of F16C's instructions converts.
constexpr size_t kVector = 8;

uint16_t ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  // Rounding could carry a NaN into infinity, or beyond.
  const uint32_t quiet = (bits >> 16) | 0x40;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(is_nan ? quiet : rounded);
}

void NarrowBfloat16(const float* values, char* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t narrow = ToBfloat16(values[i]);
    std::memcpy(out + i * sizeof(narrow), &narrow, sizeof(narrow));
  }
}

void WidenBfloat16(const char* in, float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t narrow;
    std::memcpy(&narrow, in + i * sizeof(narrow), sizeof(narrow));
    values[i] = std::bit_cast<float>(uint32_t{narrow} << 16);
  }
}

__m128i ToFloat16(const float* values) {
  return _mm256_cvtps_ph(_mm256_loadu_ps(values),
                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

void NarrowFloat16(const float* values, char* out, size_t count) {
  size_t i = 0;
  for (; i + kVector <= count; i += kVector) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     ToFloat16(values + i));
  }
  if (i == count) return;
  float rest[kVector] = {};
  std::copy_n(values + i, count - i, rest);
  const __m128i narrow = ToFloat16(rest);
  std::memcpy(out + 2 * i, &narrow, 2 * (count - i));
}

void WidenFloat16(const char* in, float* values, size_t count) {
  size_t i = 0;
  for (; i + kVector <= count; i += kVector) {
    const __m128i narrow =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    _mm256_storeu_ps(values + i, _mm256_cvtph_ps(narrow));
  }
  if (i == count) return;
  __m128i narrow = _mm_setzero_si128();
  std::memcpy(&narrow, in + 2 * i, 2 * (count - i));
  float rest[kVector];
  _mm256_storeu_ps(rest, _mm256_cvtph_ps(narrow));
  std::copy_n(rest, count - i, values + i);
}

// Magnitudes from this one on are infinite, or NaN: halfway between the largest
// finite value and the next one there would be.
uint32_t FirstInfinite(ElementType type) {
  switch (type) {
    case ElementType::kBfloat16:
      return 0x7f7f8000;
    case ElementType::kFloat16:
      return 0x477ff000;
    default:
      return 0x7f800000;
  }
}

}  // namespace

void Narrow(ElementType type, const float* values, void* out, size_t count) {
  switch (type) {
    case ElementType::kFloat32:
      std::memcpy(out, values, count * sizeof(float));
      return;
    case ElementType::kBfloat16:
      return NarrowBfloat16(values, static_cast<char*>(out), count);
    case ElementType::kFloat16:
      return NarrowFloat16(values, static_cast<char*>(out), count);
  }
}

void Widen(ElementType type, const void* in, float* values, size_t count) {
  switch (type) {
    case ElementType::kFloat32:
      std::memcpy(values, in, count * sizeof(float));
      return;
    case ElementType::kBfloat16:
      return WidenBfloat16(static_cast<const char*>(in), values, count);
    case ElementType::kFloat16:
      return WidenFloat16(static_cast<const char*>(in), values, count);
  }
}

bool AllFiniteAs(ElementType type, const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest =
        std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffff);
  }
  return largest < FirstInfinite(type);
}

}  // namespace syncline
