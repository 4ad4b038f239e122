#ifndef SYNCLINE_KERNELS_DEVICE_GATHER_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_GATHER_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "common/base/dtype.h"
#include "kernels/device/data_error.h"
#include "kernels/device/floats.h"

namespace syncline {

class Stream;

// data [outer, n, inner]; indices [indices], int32 or int64, from the end where
// negative; result [outer, indices, inner].
struct GatherShape {
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
  int64_t indices = 1;
  DType index_type = DType::kInt64;
  size_t element_bytes = 4;  // of the data: 1, 2, 4 or 8
};

// Rows of an array, by their numbers. Arrays do not overlap. An index that is
// out of range counts as 0.
struct GatherKernels {
  // y[o, i] = x[o, indices[i]]; zeros if x has no rows. The first index that is
  // out of range is reported as kind 0, with its position among the indices.
  void (*forward)(Stream& stream, const GatherShape& s, const void* x,
                  const void* indices, void* y,
                  const ErrorSlot& errors) = nullptr;
  // dx[o, indices[i]] += dy[o, i]; the other rows are 0 unless
  // `accumulate`. Summands of one row are added in order. The bits of the
  // sum do not depend on where the rows lie, and its error does not grow with
  // their number (kernels/named_rows.h). `scratch` has
  // backward_scratch_bytes(s).
  void (*backward)(Stream& stream, const GatherShape& s, const void* indices,
                   ConstFloats dy, bool accumulate, Floats dx,
                   void* scratch) = nullptr;
  int64_t (*backward_scratch_bytes)(const GatherShape& s) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_GATHER_KERNELS_H_
