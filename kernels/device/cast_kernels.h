#ifndef SYNCLINE_KERNELS_DEVICE_CAST_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_CAST_KERNELS_H_

#include <cstdint>

#include "kernels/device/floats.h"
#include "kernels/elementwise/by_dtype.h"

namespace syncline {

class Stream;

// Arrays converted to another type, as kernels/elementwise/conversion.h says.
// The 16-bit types are converted from float32, to the nearest and ties to even,
// and to float32, exactly (common/base/element_type.h); not to others.
struct CastKernels {
  // n elements. Arrays do not overlap.
  using Forward = void (*)(Stream& stream, int64_t n, const void* x, void* y);
  ByDType<ByDType<Forward>> casts;  // [from][to]
  // Of floats to floats: dx = dy. dx may be dy.
  using Backward = void (*)(Stream& stream, int64_t n, ConstFloats dy,
                            bool accumulate, Floats dx);
  Backward backward = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_CAST_KERNELS_H_
