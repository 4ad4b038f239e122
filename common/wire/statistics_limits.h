#ifndef SYNCLINE_COMMON_WIRE_STATISTICS_LIMITS_H_
#define SYNCLINE_COMMON_WIRE_STATISTICS_LIMITS_H_

#include <cstddef>

namespace syncline {

// Values of one FoldStatistics call; more are folded in pieces.
inline constexpr size_t kFoldedValuesMax = 65536;

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_STATISTICS_LIMITS_H_
