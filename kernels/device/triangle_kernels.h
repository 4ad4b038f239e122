#ifndef SYNCLINE_KERNELS_DEVICE_TRIANGLE_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_TRIANGLE_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device/floats.h"
#include "kernels/elementwise/host_device.h"

namespace syncline {

class Stream;

// Matrices of which one side of a diagonal is kept, with the diagonal.
struct TriangleShape {
  int64_t matrices = 1;
  int64_t rows = 1;
  int64_t columns = 1;
  bool upper = true;
  // Diagonals above the main one, of at most rows + columns either way.
  int64_t diagonal = 0;

  SYNCLINE_HOST_DEVICE bool Keeps(int64_t row, int64_t column) const {
    return upper ? column >= row + diagonal : column <= row + diagonal;
  }
};

struct TriangleKernels {
  // y = x where it is kept, else 0. Elements of 1, 2, 4 or 8 bytes. y may be x.
  void (*forward)(Stream& stream, const TriangleShape& s, size_t element_bytes,
                  const void* x, void* y) = nullptr;
  // dx = dy where x was kept, else 0. dx may be dy.
  void (*backward)(Stream& stream, const TriangleShape& s, ConstFloats dy,
                   bool accumulate, Floats dx) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_TRIANGLE_KERNELS_H_
