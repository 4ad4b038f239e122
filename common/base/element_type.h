#ifndef SYNCLINE_COMMON_BASE_ELEMENT_TYPE_H_
#define SYNCLINE_COMMON_BASE_ELEMENT_TYPE_H_

#include <cstddef>

namespace syncline {

// How float32 values are written where they travel.
enum class ElementType { kFloat32, kBfloat16, kFloat16 };

inline size_t ElementBytes(ElementType type) {
  return type == ElementType::kFloat32 ? 4 : 2;
}

// Writes `count` values as `type`, little-endian, rounded to the nearest, ties
// to even. Beyond the largest finite value: infinity (kFloat16 from 65,520 on).
// NaN stays NaN, with its sign. kFloat16's subnormals are kept. Vectorised.
//   out  count x ElementBytes(type), any alignment; does not overlap `values`
void Narrow(ElementType type, const float* values, void* out, size_t count);

// The same values in float32, exactly. `in`: as Narrow's `out`.
void Widen(ElementType type, const void* in, float* values, size_t count);

// True if all values are finite once they are narrowed.
bool AllFiniteAs(ElementType type, const float* values, size_t count);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_ELEMENT_TYPE_H_
