#ifndef SYNCLINE_COMMON_WIRE_SMALLEST_CUT_H_
#define SYNCLINE_COMMON_WIRE_SMALLEST_CUT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace syncline {

// The detail of a refused BeginCut: by rank, the smallest clocks at which the
// shard can still be cut (SmallestCut in proto/parameter_server.proto). A
// refusal without it holds for all clocks.
inline constexpr char kCutClocksDetail[] = "syncline/cut_clocks";

// `refusal` with the detail.
absl::Status WithSmallestCut(absl::Status refusal,
                             absl::Span<const int64_t> clocks);

// None: the error has no such detail, or one that is not of `workers` clocks,
// each from 0 to kCutClockMax.
std::optional<std::vector<int64_t>> SmallestCutOf(const absl::Status& refusal,
                                                  size_t workers);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_SMALLEST_CUT_H_
