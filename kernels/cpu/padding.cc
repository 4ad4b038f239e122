#include <algorithm>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/device/padding_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

// Calls visit(offset) for each row of the result, in order: where in the input
// its row begins; -1: nowhere, all of it is the constant.
template <typename Visit>
void ForEachRow(const Padding& p, size_t axis, int64_t at, const Visit& visit) {
  if (axis + 1 == p.axes.size()) return visit(at);
  const Padding::Axis& a = p.axes[axis];
  for (int64_t i = 0; i < a.count; ++i) {
    const int64_t from = PaddedFrom(p.mode, a, i);
    const bool outside = at < 0 || from < 0;
    ForEachRow(p, axis + 1, outside ? -1 : at + from * a.stride, visit);
  }
}

template <typename T>
void CopyPadded(const Padding& p, const void* input, const void* given,
                void* output) {
  const T* const x = static_cast<const T*>(input);
  const T constant = given != nullptr ? *static_cast<const T*>(given) : T{0};
  const Padding::Axis row = p.axes.back();
  T* y = static_cast<T*>(output);
  ForEachRow(p, 0, 0, [&](int64_t at) {
    const auto element = [&](int64_t i) {
      const int64_t from = at < 0 ? -1 : PaddedFrom(p.mode, row, i);
      return from < 0 ? constant : x[at + from];
    };
    for (int64_t i = 0; i < row.begin; ++i) y[i] = element(i);
    if (at >= 0) {
      std::copy_n(x + at + row.first, row.left, y + row.begin);
    } else {
      std::fill_n(y + row.begin, row.left, constant);
    }
    for (int64_t i = row.end(); i < row.count; ++i) y[i] = element(i);
    y += row.count;
  });
}

void Forward(Stream& stream, const Padding& p, const void* x,
             const void* constant, void* y) {
  const CpuKernel kernel(stream);
  switch (p.element_bytes) {
    case 1:
      return CopyPadded<uint8_t>(p, x, constant, y);
    case 2:
      return CopyPadded<uint16_t>(p, x, constant, y);
    case 4:
      return CopyPadded<uint32_t>(p, x, constant, y);
    default:
      return CopyPadded<uint64_t>(p, x, constant, y);
  }
}

void AddRow(const Padding& p, const float* dy, float* dx) {
  const Padding::Axis& row = p.axes.back();
  const auto add = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = PaddedFrom(p.mode, row, i);
      if (from >= 0) dx[from] += dy[i];
    }
  };
  add(0, row.begin);
  const float* const inside = dy + row.begin;
  Emit(row.left, /*accumulate=*/true, dx + row.first,
       [=](int64_t i) { return inside[i]; });
  add(row.end(), row.count);
}

void Backward(Stream& stream, const Padding& p, const float* dy,
              bool accumulate, float* dx) {
  const CpuKernel kernel(stream);
  if (!accumulate) std::fill_n(dx, p.input_count, 0.0f);
  ForEachRow(p, 0, 0, [&](int64_t at) {
    if (at >= 0) AddRow(p, dy, dx + at);
    dy += p.axes.back().count;
  });
}

}  // namespace

const PaddingKernels& CpuPaddingKernels() {
  static constexpr PaddingKernels kKernels = {.forward = Forward,
                                              .backward = OnFloat32<Backward>};
  return kKernels;
}

}  // namespace syncline
