#ifndef SYNCLINE_KERNELS_WINDOW_H_
#define SYNCLINE_KERNELS_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/elementwise/fixed_list.h"

namespace syncline {

// A window that slides over the 1 to 3 spatial axes of a plane, as convolution
// and pooling have it: element k of the window for result o is the input's
//
//   o * stride + k * dilation - pad_begin
//
// along each axis, or padding if that is outside [0, in).
struct Window {
  struct Axis {
    int64_t in = 1;
    int64_t out = 1;
    int64_t kernel = 1;
    int64_t stride = 1;
    int64_t dilation = 1;
    int64_t pad_begin = 0;
    int64_t pad_end = 0;

    // Input elements between a window's first and one past its last.
    int64_t span() const { return (kernel - 1) * dilation + 1; }
  };
  static constexpr size_t kAxesMax = 3;

  Window() = default;
  Window(std::initializer_list<Axis> outermost_first) {
    for (const Axis& axis : outermost_first) axes.push_back(axis);
  }

  FixedList<Axis, kAxesMax> axes;  // outermost first

  int64_t in_count() const { return Product(&Axis::in); }
  int64_t out_count() const { return Product(&Axis::out); }
  int64_t kernel_count() const { return Product(&Axis::kernel); }

 private:
  int64_t Product(int64_t Axis::*member) const {
    int64_t product = 1;
    for (const Axis& axis : axes) product *= axis.*member;
    return product;
  }
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_WINDOW_H_
