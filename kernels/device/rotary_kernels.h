#ifndef SYNCLINE_KERNELS_DEVICE_ROTARY_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_ROTARY_KERNELS_H_

#include <cstdint>

#include "kernels/device/data_error.h"
#include "kernels/device/floats.h"

namespace syncline {

class Stream;

// Heads of x, [batch, heads, length, width] or joined, and the tables by whose
// angles they are turned, [positions, pairs] or [batch, length, pairs].
struct RotaryShape {
  int64_t batch = 0, heads = 0, length = 0, width = 0;
  bool joined = false;       // [batch, length, heads * width]
  bool interleaved = false;  // pairs are neighbours, else half a turn apart
  int64_t pairs = 0;         // the rest of a head is copied
  bool by_position = false;  // tables have a row per position, else per sample
  int64_t positions = 0;     // rows of the tables
};

// Su et al. 2021: pairs (a, b) of a head's elements are turned, to
// (cos a - sin b, sin a + cos b).
struct RotaryKernels {
  // `positions` is int64 [batch, length], or null if not by_position. `back`
  // turns by the opposite angles. y may be x. The first position that is
  // outside the tables is reported as kind 0, with its number; nothing turns
  // there.
  void (*turn)(Stream& stream, const RotaryShape& s, ConstFloats x,
               ConstFloats cosines, ConstFloats sines, const int64_t* positions,
               bool back, bool accumulate, Floats y,
               const ErrorSlot& errors) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_ROTARY_KERNELS_H_
