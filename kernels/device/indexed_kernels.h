#ifndef SYNCLINE_KERNELS_DEVICE_INDEXED_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_INDEXED_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "common/base/dtype.h"
#include "kernels/device/data_error.h"
#include "kernels/device/floats.h"
#include "kernels/elementwise/fixed_list.h"

namespace syncline {

class Stream;

// Runs of a dense array, each at a place that indices say in each step. The
// runs are counted row-major over `loops`, of which there is one at least; run
// i begins where its round of the loops lies, and `places` on from there: its
// indices are those from i * places.size() on, each a place in one dimension of
// the array, from the end where negative.
struct IndexedShape {
  static constexpr size_t kDimensionsMax = 8;  // of a tensor
  struct Dimension {
    int64_t n = 1;
    int64_t stride = 0;  // in elements of the array
  };
  FixedList<Dimension, kDimensionsMax> loops;
  FixedList<Dimension, kDimensionsMax> places;
  int64_t runs = 0;
  int64_t run_length = 1;            // elements
  int64_t count = 0;                 // elements of the array
  DType index_type = DType::kInt64;  // or kInt32
};

// Where runs begin, in elements of the array: one for each, multiples of the
// run's length. Arrays do not overlap.
struct IndexedKernels {
  // Writes where each run begins. The first index that is outside its dimension
  // is reported as kind 0, with its position among the indices; it counts as 0.
  void (*find)(Stream& stream, const IndexedShape& s, const void* indices,
               int64_t* begins, const ErrorSlot& errors) = nullptr;
  // y [runs, run_length] = the runs of x, of elements of 1, 2, 4 or 8 bytes;
  // zeros if x has no elements.
  void (*gather)(Stream& stream, const IndexedShape& s, size_t element_bytes,
                 const int64_t* begins, const void* x, void* y) = nullptr;
  // to[begins[i] + k] += from[i, k]. Summands of one place are added in
  // order, with an error that does not grow with the number
  // (kernels/named_rows.h). `scratch` has add_scratch_bytes(s).
  void (*add)(Stream& stream, const IndexedShape& s, const int64_t* begins,
              ConstFloats from, Floats to, void* scratch) = nullptr;
  int64_t (*add_scratch_bytes)(const IndexedShape& s) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_INDEXED_KERNELS_H_
