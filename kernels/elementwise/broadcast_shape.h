#ifndef SYNCLINE_KERNELS_ELEMENTWISE_BROADCAST_SHAPE_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_BROADCAST_SHAPE_H_

// The descriptors of a broadcast, for kernels of every device; broadcast.h
// makes them.

#include <cstddef>
#include <cstdint>

#include "kernels/elementwise/fixed_list.h"

namespace syncline {

// How two dense row-major arrays lie over their broadcast result (numpy's
// rules, which are ONNX's), in as few nested loops as possible: equal shapes
// and scalars become one loop, a bias row two.
//
// A tensor has at most 8 dimensions (common/model), so there are no more loops.
struct Broadcast {
  static constexpr size_t kLoopsMax = 8;
  struct Loop {
    int64_t count = 0;
    int64_t a_stride = 0;  // in elements; 0 where the array is repeated
    int64_t b_stride = 0;
  };
  FixedList<Loop, kLoopsMax> outer;  // outermost first
  int64_t inner = 1;                 // elements in the innermost loop
  bool a_moves = false;              // or is repeated in the innermost loop
  bool b_moves = false;
  int64_t a_count = 1;
  int64_t b_count = 1;
  int64_t count = 1;  // of the result
};

// One of the two arrays.
enum class Side { kA, kB };

// The loops around the innermost one, as they look from one of the arrays:
// those in which it moves, and those in which it is repeated, outermost first.
struct LoopsAround {
  struct Loop {
    int64_t count = 0;
    int64_t result_stride = 0;
    int64_t a_stride = 0;
    int64_t b_stride = 0;
  };
  using Loops = FixedList<Loop, Broadcast::kLoopsMax>;
  Loops moving;
  Loops repeated;
};
LoopsAround LoopsAroundA(const Broadcast& s);
LoopsAround LoopsAroundB(const Broadcast& s);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_BROADCAST_SHAPE_H_
