#ifndef SYNCLINE_COMMON_BASE_ALIGNED_BUFFER_H_
#define SYNCLINE_COMMON_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/types/span.h"
#include "common/base/check.h"

namespace syncline {

inline constexpr size_t kCacheLineBytes = 64;

// Owns 64-byte aligned float32 storage, zeroed, of fixed size. Move-only;
// thread-compatible.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(size_t count) : count_(count) {
    if (count == 0) return;
    const size_t bytes = (count * sizeof(float) + kCacheLineBytes - 1) /
                         kCacheLineBytes * kCacheLineBytes;
    data_.reset(
        static_cast<float*>(std::aligned_alloc(kCacheLineBytes, bytes)));
    SYNCLINE_CHECK(data_ != nullptr);
    std::memset(data_.get(), 0, bytes);
  }

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  size_t size() const { return count_; }
  absl::Span<float> span() { return {data_.get(), count_}; }
  absl::Span<const float> span() const { return {data_.get(), count_}; }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  size_t count_ = 0;
  std::unique_ptr<float, Free> data_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_ALIGNED_BUFFER_H_
