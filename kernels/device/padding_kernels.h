#ifndef SYNCLINE_KERNELS_DEVICE_PADDING_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_PADDING_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device/floats.h"
#include "kernels/elementwise/fixed_list.h"
#include "kernels/elementwise/host_device.h"

namespace syncline {

class Stream;

enum class PadMode { kConstant, kEdge, kReflect, kWrap };

// Negative pads take from the input before positive ones repeat what is left.
struct Padding {
  // A tensor has at most 8 dimensions (common/model).
  static constexpr size_t kAxesMax = 8;
  struct Axis {
    // Of the input: the first element that is left, how many are, and from one
    // to the next.
    int64_t first = 0;
    int64_t left = 1;
    int64_t stride = 1;
    // Of the result: where what is left begins, and all elements.
    int64_t begin = 0;
    int64_t count = 1;

    int64_t end() const { return begin + left; }
  };

  PadMode mode = PadMode::kConstant;
  FixedList<Axis, kAxesMax> axes;  // outermost first, at least one
  int64_t input_count = 1;
  size_t element_bytes = 4;  // 1, 2, 4 or 8
};

// Where in the input's axis element `i` of the result's is from; -1: nowhere,
// it is the constant. REQUIRES: with another mode, something is left.
SYNCLINE_HOST_DEVICE inline int64_t PaddedFrom(PadMode mode,
                                               const Padding::Axis& axis,
                                               int64_t i) {
  const int64_t at = i - axis.begin;
  const int64_t n = axis.left;
  if (at >= 0 && at < n) return axis.first + at;
  if (mode == PadMode::kConstant) return -1;
  if (mode == PadMode::kEdge) return axis.first + (at < 0 ? 0 : n - 1);
  // The nearest repetition, which is most of them, needs no division.
  if (mode == PadMode::kWrap) {
    if (at < 0 && at >= -n) return axis.first + at + n;
    if (at >= n && at < 2 * n) return axis.first + at - n;
    return axis.first + ((at % n) + n) % n;
  }
  const int64_t last = n - 1;
  if (at < 0 && at >= -last) return axis.first - at;
  if (at > last && at <= 2 * last) return axis.first + 2 * last - at;
  const int64_t round = last > 0 ? 2 * last : 1;
  const int64_t turned = ((at % round) + round) % round;
  return axis.first + (turned < round - turned ? turned : round - turned);
}

// Arrays do not overlap.
struct PaddingKernels {
  // `constant` is one element of the device, of the type of x; null: zero.
  void (*forward)(Stream& stream, const Padding& p, const void* x,
                  const void* constant, void* y) = nullptr;
  // Gradients of an element that y repeats add up in the order of dy.
  void (*backward)(Stream& stream, const Padding& p, ConstFloats dy,
                   bool accumulate, Floats dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_PADDING_KERNELS_H_
