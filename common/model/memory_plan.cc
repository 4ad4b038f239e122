#include "common/model/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace syncline {
namespace {

int64_t Align(int64_t bytes) {
  return (bytes + kPlanAlignmentBytes - 1) / kPlanAlignmentBytes *
         kPlanAlignmentBytes;
}

bool AliveTogether(const BufferLifetime& a, const BufferLifetime& b) {
  return a.first_use <= b.last_use && b.first_use <= a.last_use;
}

class Placement {
 public:
  explicit Placement(absl::Span<const BufferLifetime> buffers)
      : buffers_(buffers) {
    plan_.offsets.assign(buffers.size(), 0);
  }

  void PlaceAt(int index, int64_t offset) {
    const int64_t end = offset + Align(buffers_[index].size_bytes);
    plan_.offsets[index] = offset;
    plan_.arena_bytes = std::max(plan_.arena_bytes, end);
    placed_.insert(
        std::upper_bound(
            placed_.begin(), placed_.end(), index,
            [&](int a, int b) { return plan_.offsets[a] < plan_.offsets[b]; }),
        index);
  }

  // Of the gaps between the buffers that are alive at the same time, the
  // smallest that takes it; else behind them.
  int64_t OffsetFor(int index) const {
    const BufferLifetime& buffer = buffers_[index];
    const int64_t wanted = Align(buffer.size_bytes);
    int64_t best_offset = -1;
    int64_t best_gap = std::numeric_limits<int64_t>::max();
    int64_t gap_begin = 0;
    for (int other : placed_) {
      if (!AliveTogether(buffer, buffers_[other])) continue;
      const int64_t gap = plan_.offsets[other] - gap_begin;
      if (gap >= wanted && gap < best_gap) {
        best_gap = gap;
        best_offset = gap_begin;
      }
      gap_begin = std::max(
          gap_begin, plan_.offsets[other] + Align(buffers_[other].size_bytes));
    }
    return best_offset >= 0 ? best_offset : gap_begin;
  }

  MemoryPlan Take() { return std::move(plan_); }

 private:
  const absl::Span<const BufferLifetime> buffers_;
  std::vector<int> placed_;  // by ascending offset
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan PlanMemory(absl::Span<const BufferLifetime> buffers) {
  std::vector<int> by_size(buffers.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](int a, int b) {
    return buffers[a].size_bytes > buffers[b].size_bytes;
  });
  Placement placement(buffers);
  for (const bool given : {true, false}) {
    for (const int index : by_size) {
      const BufferLifetime& buffer = buffers[index];
      if (buffer.size_bytes == 0 || buffer.offset.has_value() != given)
        continue;
      placement.PlaceAt(index,
                        given ? *buffer.offset : placement.OffsetFor(index));
    }
  }
  return placement.Take();
}

}  // namespace syncline
