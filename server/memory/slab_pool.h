#ifndef SYNCLINE_SERVER_MEMORY_SLAB_POOL_H_
#define SYNCLINE_SERVER_MEMORY_SLAB_POOL_H_

#include <cstddef>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace syncline::ps {

// Hands out slabs of one size, cut from large chunks that the kernel maps:
// huge pages where it has them, since rows are touched at random and page
// translation would cost as much as the row. Slabs are zeroed, 64-byte aligned,
// and given back all at once, by the destructor. Thread-safe.
class SlabPool {
 public:
  // huge_pages: worth it once a table is much larger than a huge page, of which
  // up to one is resident before it is handed out.
  SlabPool(size_t slab_bytes, bool huge_pages);
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  // Null: the system has no memory left.
  char* Take() ABSL_LOCKS_EXCLUDED(mu_);
  size_t slab_bytes() const { return slab_bytes_; }

 private:
  bool MapChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t slab_bytes_;
  const bool huge_pages_;
  const size_t chunk_bytes_;
  Mutex mu_;
  std::vector<void*> chunks_ ABSL_GUARDED_BY(mu_);
  char* next_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t left_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_MEMORY_SLAB_POOL_H_
