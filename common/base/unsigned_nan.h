#ifndef SYNCLINE_COMMON_BASE_UNSIGNED_NAN_H_
#define SYNCLINE_COMMON_BASE_UNSIGNED_NAN_H_

#include <cmath>
#include <limits>

namespace syncline {

// `value`, but a NaN is the one without a sign: absl::StrFormat writes the sign
// of a NaN, which means nothing, as in "-nan". absl::StrCat does not.
inline double UnsignedNan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_UNSIGNED_NAN_H_
