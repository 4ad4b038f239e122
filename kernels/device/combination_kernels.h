#ifndef SYNCLINE_KERNELS_DEVICE_COMBINATION_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_COMBINATION_KERNELS_H_

#include <cstdint>

#include "kernels/elementwise/broadcast_shape.h"

namespace syncline {

class Stream;

// Sum, mean, maximum and minimum of any number of float32 arrays, element by
// element, broadcast: one array after the other into the result. Of each shape
// operand a is the result, y and dy, and b is the array, x and dx. dx may be dy
// where it has the result's shape. NaN in any array is NaN in the result.
struct CombinationKernels {
  void (*spread)(Stream& stream, const Broadcast& s, const float* x,
                 float* y) = nullptr;  // y = x
  void (*add)(Stream& stream, const Broadcast& s, const float* x,
              float* y) = nullptr;  // y += x
  void (*scale)(Stream& stream, int64_t n, float factor,
                float* y) = nullptr;  // y *= factor
  // Of one array in the sum, or in the mean: factor * dy, summed over where the
  // array was repeated, with an error that does not grow with the number.
  void (*sum_backward)(Stream& stream, const Broadcast& s, float factor,
                       const float* dy, bool accumulate, float* dx) = nullptr;

  // Winner, an unsigned type, holds the number of any of the arrays.
  // `winners` says for each element of the result which array it is of.
  template <typename Winner>
  struct Contest {
    // y = x of array 0.
    void (*begin)(Stream& stream, const Broadcast& s, const float* x, float* y,
                  Winner* winners) = nullptr;
    // The larger, or the smaller, of y and x of array `number`. The earlier one
    // wins among equals.
    using Join = void (*)(Stream& stream, const Broadcast& s, Winner number,
                          const float* x, float* y, Winner* winners);
    Join maximum = nullptr;
    Join minimum = nullptr;
    // dy where array `number` has won, summed over where it was repeated.
    void (*backward)(Stream& stream, const Broadcast& s, Winner number,
                     const Winner* winners, const float* dy, bool accumulate,
                     float* dx) = nullptr;
  };
  Contest<uint8_t> few;  // at most 256 arrays
  Contest<uint32_t> many;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_COMBINATION_KERNELS_H_
