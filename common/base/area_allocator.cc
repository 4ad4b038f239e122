#include "common/base/area_allocator.h"

#include <algorithm>
#include <iterator>

#include "common/base/check.h"

namespace syncline {

AreaAllocator::AreaAllocator(size_t size) {
  const size_t whole = size / kAlignment * kAlignment;
  if (whole > 0) gaps_.emplace(0, whole);
}

std::optional<size_t> AreaAllocator::Allocate(size_t bytes) {
  SYNCLINE_CHECK(bytes > 0);
  const size_t size = (bytes - 1) / kAlignment * kAlignment + kAlignment;
  if (size < bytes) return std::nullopt;  // beyond the largest size_t
  const auto gap =
      std::find_if(gaps_.begin(), gaps_.end(),
                   [size](const auto& g) { return g.second >= size; });
  if (gap == gaps_.end()) return std::nullopt;
  const auto [offset, gap_size] = *gap;
  gaps_.erase(gap);
  if (gap_size > size) gaps_.emplace(offset + size, gap_size - size);
  used_.emplace(offset, size);
  used_bytes_ += size;
  return offset;
}

void AreaAllocator::Free(size_t offset) {
  const auto used = used_.find(offset);
  SYNCLINE_CHECK(used != used_.end());
  size_t size = used->second;
  used_.erase(used);
  used_bytes_ -= size;
  auto behind = gaps_.lower_bound(offset);
  if (behind != gaps_.end() && behind->first == offset + size) {
    size += behind->second;
    behind = gaps_.erase(behind);
  }
  if (behind != gaps_.begin()) {
    const auto before = std::prev(behind);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  gaps_.emplace_hint(behind, offset, size);
}

}  // namespace syncline
