#include "server/memory/slab_pool.h"

#include <sys/mman.h>

#include <cstdint>

#include "common/base/aligned_buffer.h"

namespace syncline::ps {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPageBytes = 4096;
// Larger slabs would leave too much of a huge page unused.
constexpr size_t kSharedSlabBytes = kHugePageBytes / 8;

size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// `bytes` of address space that begin at a multiple of a huge page, whatever
// the kernel thinks of: what is too much is given back.
void* MapAligned(size_t bytes) {
  const size_t mapped = bytes + kHugePageBytes;
  void* const map = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(map);
  const size_t before =
      -reinterpret_cast<uintptr_t>(begin) & (kHugePageBytes - 1);
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, mapped - before - bytes);
  return begin + before;
}

}  // namespace

SlabPool::SlabPool(size_t slab_bytes, bool huge_pages)
    : slab_bytes_(RoundUp(slab_bytes, kCacheLineBytes)),
      huge_pages_(huge_pages && slab_bytes_ <= kSharedSlabBytes),
      chunk_bytes_(slab_bytes_ <= kSharedSlabBytes
                       ? kHugePageBytes
                       : RoundUp(slab_bytes_, kPageBytes)) {}

SlabPool::~SlabPool() {
  for (void* chunk : chunks_) munmap(chunk, chunk_bytes_);
}

bool SlabPool::MapChunk() {
  void* const chunk = MapAligned(chunk_bytes_);
  if (chunk == nullptr) return false;
  // Declined where the kernel has none; pages are small then.
  if (huge_pages_) madvise(chunk, chunk_bytes_, MADV_HUGEPAGE);
  chunks_.push_back(chunk);
  next_ = static_cast<char*>(chunk);
  left_ = chunk_bytes_ / slab_bytes_;
  return true;
}

char* SlabPool::Take() {
  MutexLock lock(&mu_);
  if (left_ == 0 && !MapChunk()) return nullptr;
  char* const slab = next_;
  next_ += slab_bytes_;
  --left_;
  return slab;
}

}  // namespace syncline::ps
