#include "common/model/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace syncline {
namespace {

int64_t Align(int64_t bytes) {
  return (bytes + kPlanAlignmentBytes - 1) / kPlanAlignmentBytes *
         kPlanAlignmentBytes;
}

bool AliveTogether(const BufferLifetime& a, const BufferLifetime& b) {
  return a.first_use <= b.last_use && b.first_use <= a.last_use;
}

}  // namespace

MemoryPlan PlanMemory(absl::Span<const BufferLifetime> buffers) {
  std::vector<int> by_size(buffers.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](int a, int b) {
    return buffers[a].size_bytes > buffers[b].size_bytes;
  });

  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  std::vector<int> placed;  // by ascending offset
  for (int index : by_size) {
    const BufferLifetime& buffer = buffers[index];
    const int64_t wanted = Align(buffer.size_bytes);
    if (wanted == 0) continue;
    // Walk the gaps between the buffers that are alive at the same time.
    int64_t best_offset = -1;
    int64_t best_gap = std::numeric_limits<int64_t>::max();
    int64_t gap_begin = 0;
    for (int other : placed) {
      if (!AliveTogether(buffer, buffers[other])) continue;
      const int64_t gap = plan.offsets[other] - gap_begin;
      if (gap >= wanted && gap < best_gap) {
        best_gap = gap;
        best_offset = gap_begin;
      }
      gap_begin = std::max(
          gap_begin, plan.offsets[other] + Align(buffers[other].size_bytes));
    }
    const int64_t offset = best_offset >= 0 ? best_offset : gap_begin;
    plan.offsets[index] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + wanted);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](int a, int b) {
                                     return plan.offsets[a] < plan.offsets[b];
                                   }),
                  index);
  }
  return plan;
}

}  // namespace syncline
