#ifndef SYNCLINE_COMMON_BASE_AREA_ALLOCATOR_H_
#define SYNCLINE_COMMON_BASE_AREA_ALLOCATOR_H_

#include <cstddef>
#include <map>
#include <optional>

namespace syncline {

// Hands out areas of a range of `size` bytes that it never looks into: offsets
// only. The lowest place that fits is taken, so that a few areas in use stay
// close together, and in a cache. Pure; thread-compatible.
//
// Areas start on multiples of kAlignment, do not overlap, and merge with their
// free neighbours when they are given back: with none in use the whole range
// can be had as one again.
class AreaAllocator {
 public:
  static constexpr size_t kAlignment = 4096;

  // Of `size` only whole multiples of kAlignment are used.
  explicit AreaAllocator(size_t size);

  // The offset of `bytes` > 0 that no other area overlaps; nothing if there is
  // no gap of that size.
  std::optional<size_t> Allocate(size_t bytes);
  // REQUIRES: `offset` came from Allocate and was not given back since.
  void Free(size_t offset);

  // Bytes of areas in use, rounded up to kAlignment.
  size_t used_bytes() const { return used_bytes_; }

 private:
  std::map<size_t, size_t> gaps_;  // offset -> size; no two touch
  std::map<size_t, size_t> used_;
  size_t used_bytes_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_AREA_ALLOCATOR_H_
