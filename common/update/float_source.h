#ifndef SYNCLINE_COMMON_UPDATE_FLOAT_SOURCE_H_
#define SYNCLINE_COMMON_UPDATE_FLOAT_SOURCE_H_

#include <cstddef>

namespace syncline {

// Float32 values in memory of its owner, in pieces and unaligned: the payload
// of a call, or a tensor of this process. Shared with its owner;
// thread-compatible.
class FloatSource {
 public:
  virtual ~FloatSource() = default;
  // Copies the elements [first, first + count).
  virtual void CopyTo(size_t first, size_t count, float* out) const = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_FLOAT_SOURCE_H_
