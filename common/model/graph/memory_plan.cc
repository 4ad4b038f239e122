#include "common/model/graph/memory_plan.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <set>
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

// Ranges of an arena that grows, in use or free.
class FreeRanges {
 public:
  explicit FreeRanges(int64_t begin) : end_(begin) {}

  // The smallest free range that takes `bytes` > 0, else behind all others.
  int64_t Take(int64_t bytes) {
    const auto found = by_size_.lower_bound({bytes, 0});
    if (found != by_size_.end()) {
      const auto [size, offset] = *found;
      Remove(offset, size);
      if (size > bytes) Add(offset + bytes, size - bytes);
      return offset;
    }
    int64_t offset = end_;
    if (!by_offset_.empty()) {
      const auto [last, size] = *by_offset_.rbegin();
      if (last + size == end_) {
        offset = last;
        Remove(last, size);
      }
    }
    end_ = offset + bytes;
    return offset;
  }

  void GiveBack(int64_t offset, int64_t bytes) {
    const auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto [before, size] = *std::prev(next);
      if (before + size == offset) {
        Remove(before, size);
        offset = before;
        bytes += size;
      }
    }
    const auto after = by_offset_.find(offset + bytes);
    if (after != by_offset_.end()) {
      const auto [at, size] = *after;
      Remove(at, size);
      bytes += size;
    }
    Add(offset, bytes);
  }

  int64_t end() const { return end_; }

 private:
  void Add(int64_t offset, int64_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void Remove(int64_t offset, int64_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
  }

  std::map<int64_t, int64_t> by_offset_;           // offset -> size
  std::set<std::pair<int64_t, int64_t>> by_size_;  // size, offset
  int64_t end_ = 0;
};

MemoryPlan PlanByFirstUse(absl::Span<const BufferLifetime> buffers) {
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  std::vector<int> order;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size_bytes == 0) continue;
    if (!buffers[i].offset.has_value()) {
      order.push_back(static_cast<int>(i));
      continue;
    }
    plan.offsets[i] = *buffers[i].offset;
    plan.arena_bytes = std::max(
        plan.arena_bytes, *buffers[i].offset + Align(buffers[i].size_bytes));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return buffers[a].first_use < buffers[b].first_use;
  });
  FreeRanges free(plan.arena_bytes);
  using Use = std::pair<int32_t, int>;  // last use, buffer
  std::priority_queue<Use, std::vector<Use>, std::greater<Use>> alive;
  for (const int index : order) {
    while (!alive.empty() && alive.top().first < buffers[index].first_use) {
      const int ended = alive.top().second;
      alive.pop();
      free.GiveBack(plan.offsets[ended], Align(buffers[ended].size_bytes));
    }
    plan.offsets[index] = free.Take(Align(buffers[index].size_bytes));
    alive.push({buffers[index].last_use, index});
  }
  plan.arena_bytes = free.end();
  return plan;
}

}  // namespace

MemoryPlan PlanMemory(absl::Span<const BufferLifetime> buffers) {
  if (buffers.size() > kPlannedBySizeMax) return PlanByFirstUse(buffers);
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
