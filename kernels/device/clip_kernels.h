#ifndef SYNCLINE_KERNELS_DEVICE_CLIP_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_CLIP_KERNELS_H_

#include <cstdint>

#include "kernels/device/floats.h"

namespace syncline {

class Stream;

// n numbers between two bounds. `low` and `high` are arrays of one
// element, each of which may be null: no bound.
struct ClipKernels {
  // If low is above high, the result is high. NaN stays NaN. y may be x.
  void (*forward)(Stream& stream, int64_t n, ConstFloats x, ConstFloats low,
                  ConstFloats high, Floats y) = nullptr;
  // dy where x lies within the bounds, both included, else 0. dx may be dy.
  void (*backward)(Stream& stream, int64_t n, ConstFloats x, ConstFloats low,
                   ConstFloats high, ConstFloats dy, bool accumulate,
                   Floats dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_CLIP_KERNELS_H_
