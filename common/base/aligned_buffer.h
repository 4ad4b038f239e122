#ifndef SYNCLINE_COMMON_BASE_ALIGNED_BUFFER_H_
#define SYNCLINE_COMMON_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/types/span.h"
#include "common/base/check.h"

namespace syncline {

inline constexpr size_t kCacheLineBytes = 64;

// Owns 64-byte aligned float32 storage, zeroed, of fixed size. Pages of a large
// one become resident when they are first touched. Move-only;
// thread-compatible.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(size_t count) : count_(count) {
    if (count == 0) return;
    // Unlike aligned_alloc it knows which pages are zero already.
    memory_.reset(std::calloc(count * sizeof(float) + kCacheLineBytes, 1));
    SYNCLINE_CHECK(memory_ != nullptr);
  }

  float* data() { return aligned(); }
  const float* data() const { return aligned(); }
  size_t size() const { return count_; }
  absl::Span<float> span() { return {aligned(), count_}; }
  absl::Span<const float> span() const { return {aligned(), count_}; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  // Null if there is no memory.
  float* aligned() const {
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    return reinterpret_cast<float*>((address + kCacheLineBytes - 1) /
                                    kCacheLineBytes * kCacheLineBytes);
  }

  size_t count_ = 0;
  std::unique_ptr<void, Free> memory_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_ALIGNED_BUFFER_H_
