#ifndef SYNCLINE_COMMON_MODEL_GRAPH_MEMORY_PLAN_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_MEMORY_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace syncline {

// A buffer that is needed from step `first_use` to step `last_use`, both
// included. Steps are any numbering of what a program does in order.
struct BufferLifetime {
  int64_t size_bytes = 0;  // >= 0
  int32_t first_use = 0;
  int32_t last_use = 0;  // >= first_use
  // Where it is, a multiple of kPlanAlignmentBytes, if that is not to be
  // planned: the others lie around it. Such buffers overlap only by intent.
  std::optional<int64_t> offset = {};
};

struct MemoryPlan {
  // By buffer; multiples of kPlanAlignmentBytes.
  std::vector<int64_t> offsets;
  // Size of the arena that holds them all.
  int64_t arena_bytes = 0;
};

inline constexpr int64_t kPlanAlignmentBytes = 64;

// Up to so many buffers are placed with the least memory as the aim.
inline constexpr size_t kPlannedBySizeMax = 16'384;

// Places buffers in one arena so that two that are alive at the same step never
// overlap. Those that have their place, then largest first, each into the
// smallest gap that takes it (Pisarchyk and Lee 2020, "greedy by size"), which
// is quadratic in the number of buffers at worst. More than kPlannedBySizeMax
// are placed in the order of their first use instead, each into the smallest
// range that is free then, behind those that have their place: n log n, and
// somewhat more memory. Pure; the same input gives the same plan.
MemoryPlan PlanMemory(absl::Span<const BufferLifetime> buffers);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_MEMORY_PLAN_H_
