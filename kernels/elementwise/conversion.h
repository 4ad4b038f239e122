#ifndef SYNCLINE_KERNELS_ELEMENTWISE_CONVERSION_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_CONVERSION_H_

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/elementwise/host_device.h"

namespace syncline {

// Converts as C++ does. Where C++ leaves the result undefined, it is the
// nearest value of the type; NaN becomes 0.
template <typename To, typename From>
SYNCLINE_HOST_DEVICE To ConvertTo(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> &&
                       std::is_integral_v<To>) {
    // The largest To may round up as a From; at and above that it is reached.
    constexpr From kAbove = static_cast<From>(std::numeric_limits<To>::max());
    constexpr From kLeast = static_cast<From>(std::numeric_limits<To>::min());
    if (std::isnan(value)) return 0;
    if (value >= kAbove) return std::numeric_limits<To>::max();
    if (value <= kLeast) return std::numeric_limits<To>::min();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_CONVERSION_H_
