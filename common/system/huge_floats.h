#ifndef SYNCLINE_COMMON_SYSTEM_HUGE_FLOATS_H_
#define SYNCLINE_COMMON_SYSTEM_HUGE_FLOATS_H_

#include <cstddef>
#include <memory>

#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"

namespace syncline {

// Owns float32 storage as AlignedFloats does: 64-byte aligned, zeroed, of fixed
// size, resident when it is first touched. That of kHugeFrom bytes and more is
// on pages of 2 MiB where the kernel has some: one of them is resident several
// times as soon as 512 small ones. No more memory than it has bytes becomes
// resident. Move-only; thread-compatible.
class HugeFloats {
 public:
  static constexpr size_t kHugeFrom = size_t{8} << 20;

  HugeFloats() = default;
  explicit HugeFloats(size_t count);

  float* data() { return map_ != nullptr ? map_.get() : small_.data(); }
  const float* data() const {
    return map_ != nullptr ? map_.get() : small_.data();
  }
  size_t size() const { return count_; }
  absl::Span<float> span() { return {data(), count_}; }

 private:
  struct Unmap {
    size_t bytes;
    void operator()(float* map) const;
  };

  size_t count_ = 0;
  AlignedFloats small_;  // where it is not mapped
  std::unique_ptr<float, Unmap> map_{nullptr, Unmap{0}};
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_HUGE_FLOATS_H_
