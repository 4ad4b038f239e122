#ifndef SYNCLINE_SERVER_MEMORY_BUFFER_POOL_H_
#define SYNCLINE_SERVER_MEMORY_BUFFER_POOL_H_

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace syncline::ps {

// Memory for answers, used again and again: fresh memory of this size costs a
// page fault per 4 KiB, which is more than filling it. Thread-safe; shared with
// the buffers that are out.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // Keeps at most so many bytes that are not in use.
  explicit BufferPool(size_t idle_bytes_max)
      : idle_bytes_max_(idle_bytes_max) {}
  ~BufferPool();

  // Uninitialised, 64-byte aligned. Goes back to the pool when it dies.
  // Move-only; may outlive everything but its memory.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(data_, other.data_);
      std::swap(size_class_, other.size_class_);
      return *this;
    }
    ~Buffer() {
      if (data_ != nullptr) pool_->Return(data_, size_class_);
    }
    float* floats() const { return static_cast<float*>(data_); }

   private:
    friend class BufferPool;
    std::shared_ptr<BufferPool> pool_;
    void* data_ = nullptr;
    int size_class_ = 0;
  };
  Buffer Get(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  size_t idle_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Class c holds buffers of 4 KiB << c.
  static constexpr int kClassCount = 24;
  static constexpr size_t kSmallest = 4096;

  void Return(void* data, int size_class) ABSL_LOCKS_EXCLUDED(mu_);

  const size_t idle_bytes_max_;
  mutable Mutex mu_;
  std::array<std::vector<void*>, kClassCount> idle_ ABSL_GUARDED_BY(mu_);
  size_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_MEMORY_BUFFER_POOL_H_
