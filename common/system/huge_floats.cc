#include "common/system/huge_floats.h"

#include <sys/mman.h>

#include <cstdint>

namespace syncline {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPageBytes = 4096;

// `bytes` of address space that begin at a multiple of a huge page, whatever
// the kernel thinks of: what is too much is given back. Null: there is none.
void* MapAligned(size_t bytes) {
  const size_t mapped = bytes + kHugePageBytes;
  void* const map = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(map);
  const size_t before =
      -reinterpret_cast<uintptr_t>(begin) & (kHugePageBytes - 1);
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, kHugePageBytes - before);
  return begin + before;
}

}  // namespace

void HugeFloats::Unmap::operator()(float* map) const { munmap(map, bytes); }

HugeFloats::HugeFloats(size_t count) : count_(count) {
  const size_t bytes =
      (count * sizeof(float) + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* const map = bytes < kHugeFrom ? nullptr : MapAligned(bytes);
  if (map == nullptr) {
    small_ = AlignedFloats(count);
    return;
  }
  // The last pages stay small: a whole huge one would be more than was asked
  // for. Declined where the kernel has none; all pages are small then.
  madvise(map, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  map_ = std::unique_ptr<float, Unmap>(static_cast<float*>(map), Unmap{bytes});
}

}  // namespace syncline
