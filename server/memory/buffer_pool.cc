#include "server/memory/buffer_pool.h"

#include <cstdlib>

#include "common/base/aligned_buffer.h"
#include "common/base/check.h"

namespace syncline::ps {

BufferPool::~BufferPool() {
  for (const std::vector<void*>& buffers : idle_) {
    for (void* buffer : buffers) std::free(buffer);
  }
}

BufferPool::Buffer BufferPool::Get(size_t bytes) {
  int size_class = 0;
  while ((kSmallest << size_class) < bytes) ++size_class;
  SYNCLINE_CHECK(size_class < kClassCount);
  Buffer buffer;
  buffer.pool_ = shared_from_this();
  buffer.size_class_ = size_class;
  {
    MutexLock lock(&mu_);
    std::vector<void*>& idle = idle_[size_class];
    if (!idle.empty()) {
      buffer.data_ = idle.back();
      idle.pop_back();
      idle_bytes_ -= kSmallest << size_class;
    }
  }
  if (buffer.data_ == nullptr) {
    buffer.data_ = std::aligned_alloc(kCacheLineBytes, kSmallest << size_class);
    SYNCLINE_CHECK(buffer.data_ != nullptr);
  }
  return buffer;
}

void BufferPool::Return(void* data, int size_class) {
  const size_t bytes = kSmallest << size_class;
  {
    MutexLock lock(&mu_);
    if (idle_bytes_ + bytes <= idle_bytes_max_) {
      idle_[size_class].push_back(data);
      idle_bytes_ += bytes;
      return;
    }
  }
  std::free(data);
}

size_t BufferPool::idle_bytes() const {
  MutexLock lock(&mu_);
  return idle_bytes_;
}

}  // namespace syncline::ps
