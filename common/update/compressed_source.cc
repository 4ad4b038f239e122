#include "common/update/compressed_source.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace syncline {

absl::Status CompressedSource::Add(size_t size, size_t count) {
  const absl::string_view left = absl::string_view(bytes_).substr(read_);
  SYNCLINE_RETURN_IF_ERROR(AddView(left.substr(0, size), count));
  read_ += size;
  return absl::OkStatus();
}

absl::Status CompressedSource::AddView(absl::string_view block, size_t count) {
  SYNCLINE_ASSIGN_OR_RETURN(CompressedBlock parsed,
                            CompressedBlock::Parse(block, count));
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) + count);
  blocks_.push_back(std::move(parsed));
  return absl::OkStatus();
}

void CompressedSource::CopyTo(size_t first, size_t count, float* out) const {
  auto i = static_cast<size_t>(
      std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  for (; count > 0; ++i) {
    const size_t begin = ends_[i] - blocks_[i].count();
    const size_t n = std::min(count, ends_[i] - first);
    blocks_[i].CopyTo(first - begin, n, out);
    first += n;
    out += n;
    count -= n;
  }
}

}  // namespace syncline
