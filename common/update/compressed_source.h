#ifndef SYNCLINE_COMMON_UPDATE_COMPRESSED_SOURCE_H_
#define SYNCLINE_COMMON_UPDATE_COMPRESSED_SOURCE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/update/float_source.h"
#include "common/wire/compression.h"

namespace syncline {

// Compressed blocks (common/wire/compression.h), one behind the other, as
// float32. They are decoded piece by piece when they are read, and take until
// then the memory that they came in. Immutable once all blocks are added.
class CompressedSource final : public FloatSource {
 public:
  // `bytes`: of the blocks that Add adds.
  explicit CompressedSource(std::string bytes = {})
      : bytes_(std::move(bytes)) {}
  // Blocks are views of it.
  CompressedSource(const CompressedSource&) = delete;
  CompressedSource& operator=(const CompressedSource&) = delete;

  // The next `size` bytes are a block of `count` elements.
  // Errors: CompressedBlock::Parse's; fewer bytes are left.
  absl::Status Add(size_t size, size_t count);
  // The same of a block that is not among `bytes`. It outlives this, and does
  // not change.
  absl::Status AddView(absl::string_view block, size_t count);

  void CopyTo(size_t first, size_t count, float* out) const override;

 private:
  const std::string bytes_;
  size_t read_ = 0;  // bytes of it
  std::vector<CompressedBlock> blocks_;
  std::vector<size_t> ends_;  // by block: behind its last element
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_COMPRESSED_SOURCE_H_
