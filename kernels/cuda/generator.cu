#include <cmath>
#include <cstring>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/element_bytes.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/generator_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

template <typename T>
struct FillElement {
  T value;
  Global<T> y;

  SYNCLINE_DEVICE void operator()(int64_t i) const { y[i] = value; }
};

void Fill(Stream& stream, const AnyElement& element, int64_t count, void* y) {
  cuda::WithElementBytes(element.bytes, [&](auto value) {
    using T = decltype(value);
    std::memcpy(&value, element.value.data(), sizeof(T));
    cuda::LaunchElements(stream, count,
                         FillElement<T>{value, OnDevice(static_cast<T*>(y))});
  });
}

template <typename Index, typename T>
struct OneHotElement {
  OneHotShape s;
  Global<const Index> indices;
  Global<const T> values;
  Global<T> y;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const int64_t column = i % s.inner;
    const int64_t k = i / s.inner % s.depth;
    const int64_t row = i / s.inner / s.depth;
    double index = std::trunc(static_cast<double>(
        static_cast<Index>(indices[row * s.inner + column])));
    if (index < 0) index += static_cast<double>(s.depth);
    y[i] = values[index == static_cast<double>(k) ? 1 : 0];
  }
};

template <typename Index>
void OneHotOf(Stream& stream, const OneHotShape& s, const void* indices,
              const void* values, void* y) {
  cuda::WithElementBytes(s.element_bytes, [&](auto element) {
    using T = decltype(element);
    cuda::LaunchElements(
        stream, s.outer * s.depth * s.inner,
        OneHotElement<Index, T>{s, OnDevice(static_cast<const Index*>(indices)),
                                OnDevice(static_cast<const T*>(values)),
                                OnDevice(static_cast<T*>(y))});
  });
}

void OneHot(Stream& stream, const OneHotShape& s, const void* indices,
            const void* values, void* y) {
  switch (s.index_type) {
    case DType::kInt64:
      return OneHotOf<int64_t>(stream, s, indices, values, y);
    case DType::kInt32:
      return OneHotOf<int32_t>(stream, s, indices, values, y);
    case DType::kFloat32:
      return OneHotOf<float>(stream, s, indices, values, y);
    case DType::kFloat64:
      return OneHotOf<double>(stream, s, indices, values, y);
    default:
      return OneHotOf<uint8_t>(stream, s, indices, values, y);
  }
}

template <typename T>
void RangeOf(Stream& stream, int64_t count, const void* start,
             const void* delta, void* y) {
  cuda::LaunchElements(
      stream, count,
      [start = OnDevice(static_cast<const T*>(start)),
       delta = OnDevice(static_cast<const T*>(delta)),
       y = OnDevice(static_cast<T*>(y))] SYNCLINE_DEVICE(int64_t i) {
        y[i] = static_cast<T>(start[0] + static_cast<T>(i) * delta[0]);
      });
}

void Range(Stream& stream, DType dtype, int64_t count, const void* start,
           const void* delta, void* y) {
  switch (dtype) {
    case DType::kInt64:
      return RangeOf<int64_t>(stream, count, start, delta, y);
    case DType::kInt32:
      return RangeOf<int32_t>(stream, count, start, delta, y);
    default:
      return RangeOf<float>(stream, count, start, delta, y);
  }
}

}  // namespace

const GeneratorKernels& CudaGeneratorKernels() {
  static constexpr GeneratorKernels kKernels = {
      .fill = Fill, .one_hot = OneHot, .range = Range};
  return kKernels;
}

}  // namespace syncline
