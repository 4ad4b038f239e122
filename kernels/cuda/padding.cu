#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/element_bytes.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/padding_kernels.h"

namespace syncline {
namespace {

using cuda::ConstFloatArray;
using cuda::FloatArray;
using cuda::Global;
using cuda::OnDevice;

int64_t ResultCount(const Padding& p) {
  int64_t count = 1;
  for (const Padding::Axis& axis : p.axes) count *= axis.count;
  return count;
}

// Where in the input element `i` of the result is from; -1: nowhere.
SYNCLINE_DEVICE int64_t FromOf(const Padding& p, int64_t i) {
  int64_t at = 0;
  for (size_t d = p.axes.size(); d-- > 0;) {
    const Padding::Axis& axis = p.axes[d];
    const int64_t from = PaddedFrom(p.mode, axis, i % axis.count);
    if (from < 0) return -1;
    at += from * axis.stride;
    i /= axis.count;
  }
  return at;
}

template <typename T>
struct PadElement {
  Padding p;
  bool has_constant;
  Global<const T> x;
  Global<const T> constant;
  Global<T> y;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const int64_t from = FromOf(p, i);
    T value{0};
    if (from >= 0) {
      value = x[from];
    } else if (has_constant) {
      value = constant[0];
    }
    y[i] = value;
  }
};

void Forward(Stream& stream, const Padding& p, const void* x,
             const void* constant, void* y) {
  cuda::WithElementBytes(p.element_bytes, [&](auto element) {
    using T = decltype(element);
    cuda::LaunchElements(
        stream, ResultCount(p),
        PadElement<T>{p, constant != nullptr,
                      OnDevice(static_cast<const T*>(x)),
                      OnDevice(static_cast<const T*>(constant)),
                      OnDevice(static_cast<T*>(y))});
  });
}

// The first number from `from` on that is `rest` modulo n.
SYNCLINE_DEVICE int64_t NextCongruent(int64_t from, int64_t rest, int64_t n) {
  const int64_t ahead = (rest - from) % n;
  return from + (ahead < 0 ? ahead + n : ahead);
}

// The next place of the result, behind `i`, that is from `target`; its count if
// there is none. It steps from place to place, over those in between.
SYNCLINE_DEVICE int64_t NextFrom(const Padding& p, const Padding::Axis& axis,
                                 int64_t target, int64_t i) {
  const int64_t n = axis.left;
  // As PaddedFrom has it: by what is left of the input, which begins at 0.
  const int64_t element = target - axis.first;
  if (element < 0 || element >= n) return axis.count;
  const int64_t least = i + 1 - axis.begin;
  int64_t at = element;  // where it is no repetition
  switch (p.mode) {
    case PadMode::kConstant:
      break;
    case PadMode::kEdge:
      if (element == 0 && least < 0) at = least;
      if (element == n - 1 && least > at) at = least;
      break;
    case PadMode::kWrap:
      at = NextCongruent(least, element, n);
      break;
    case PadMode::kReflect: {
      const int64_t round = n > 1 ? 2 * (n - 1) : 1;
      const int64_t forth = NextCongruent(least, element, round);
      const int64_t back = NextCongruent(least, -element, round);
      at = forth < back ? forth : back;
      break;
    }
  }
  const int64_t next = at + axis.begin;
  return at >= least && next < axis.count ? next : axis.count;
}

// An element gathers from all places of the result that are from it, in their
// order: axis by axis, as an odometer.
struct GatherElement {
  Padding p;
  bool accumulate;
  ConstFloatArray dy;
  FloatArray dx;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    int64_t target[Padding::kAxesMax];
    int64_t left = i;
    for (size_t d = 0; d < p.axes.size(); ++d) {
      target[d] = left / p.axes[d].stride;
      left %= p.axes[d].stride;
    }
    int64_t places[Padding::kAxesMax];
    int64_t before[Padding::kAxesMax];  // in the result, by the axes before
    float sum = 0;
    const int last = static_cast<int>(p.axes.size()) - 1;
    int d = 0;
    places[0] = -1;
    before[0] = 0;
    while (d >= 0) {
      const Padding::Axis& axis = p.axes[d];
      places[d] = NextFrom(p, axis, target[d], places[d]);
      if (places[d] >= axis.count) {
        --d;
      } else if (d == last) {
        sum += dy[before[d] * axis.count + places[d]];
      } else {
        before[d + 1] = before[d] * axis.count + places[d];
        places[++d] = -1;
      }
    }
    dx[i] = accumulate ? dx[i] + sum : sum;
  }
};

void Backward(Stream& stream, const Padding& p, ConstFloats dy, bool accumulate,
              Floats dx) {
  cuda::LaunchElements(
      stream, p.input_count,
      GatherElement{p, accumulate, OnDevice(dy), OnDevice(dx)});
}

}  // namespace

const PaddingKernels& CudaPaddingKernels() {
  static constexpr PaddingKernels kKernels = {.forward = Forward,
                                              .backward = Backward};
  return kKernels;
}

}  // namespace syncline
