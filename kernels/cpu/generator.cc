#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/generator_kernels.h"

namespace syncline {
namespace {

template <typename T>
void FillOf(const AnyElement& element, int64_t count, void* y) {
  T value;
  std::memcpy(&value, element.value.data(), sizeof(T));
  std::fill_n(static_cast<T*>(y), count, value);
}

void Fill(Stream& stream, const AnyElement& element, int64_t count, void* y) {
  const CpuKernel kernel(stream);
  switch (element.bytes) {
    case 1:
      return FillOf<uint8_t>(element, count, y);
    case 4:
      return FillOf<uint32_t>(element, count, y);
    default:
      return FillOf<uint64_t>(element, count, y);
  }
}

template <typename Index>
void OneHotOf(const OneHotShape& s, const void* indices, const void* values,
              void* y) {
  const Index* given = static_cast<const Index*>(indices);
  const char* const off = static_cast<const char*>(values);
  const char* const on = off + s.element_bytes;
  char* const to = static_cast<char*>(y);
  const double depth = static_cast<double>(s.depth);
  for (int64_t o = 0; o < s.outer; ++o) {
    for (int64_t i = 0; i < s.inner; ++i, ++given) {
      // ONNX: an index becomes an int64 first.
      double index = std::trunc(static_cast<double>(*given));
      if (index < 0) index += depth;
      for (int64_t k = 0; k < s.depth; ++k) {
        const int64_t at = (o * s.depth + k) * s.inner + i;
        const bool hit = index == static_cast<double>(k);
        std::memcpy(to + at * s.element_bytes, hit ? on : off, s.element_bytes);
      }
    }
  }
}

void OneHot(Stream& stream, const OneHotShape& s, const void* indices,
            const void* values, void* y) {
  const CpuKernel kernel(stream);
  switch (s.index_type) {
    case DType::kInt64:
      return OneHotOf<int64_t>(s, indices, values, y);
    case DType::kInt32:
      return OneHotOf<int32_t>(s, indices, values, y);
    case DType::kFloat32:
      return OneHotOf<float>(s, indices, values, y);
    case DType::kFloat64:
      return OneHotOf<double>(s, indices, values, y);
    default:
      return OneHotOf<uint8_t>(s, indices, values, y);
  }
}

template <typename T>
void RangeOf(int64_t count, const void* first, const void* step, void* to) {
  const T start = *static_cast<const T*>(first);
  const T delta = *static_cast<const T*>(step);
  T* const y = static_cast<T*>(to);
  for (int64_t i = 0; i < count; ++i) {
    y[i] = static_cast<T>(start + static_cast<T>(i) * delta);
  }
}

void Range(Stream& stream, DType dtype, int64_t count, const void* start,
           const void* delta, void* y) {
  const CpuKernel kernel(stream);
  switch (dtype) {
    case DType::kInt64:
      return RangeOf<int64_t>(count, start, delta, y);
    case DType::kInt32:
      return RangeOf<int32_t>(count, start, delta, y);
    default:
      return RangeOf<float>(count, start, delta, y);
  }
}

}  // namespace

const GeneratorKernels& CpuGeneratorKernels() {
  static constexpr GeneratorKernels kKernels = {
      .fill = Fill, .one_hot = OneHot, .range = Range};
  return kKernels;
}

}  // namespace syncline
