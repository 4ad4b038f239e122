#include "server/service/compressed_payload.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/compression.h"

namespace syncline::ps {
namespace {

class CompressedSource final : public FloatSource {
 public:
  explicit CompressedSource(std::string bytes) : bytes_(std::move(bytes)) {}
  CompressedSource(const CompressedSource&) = delete;
  CompressedSource& operator=(const CompressedSource&) = delete;

  absl::string_view bytes() const { return bytes_; }
  // `block` is a view of bytes().
  void Add(CompressedBlock block) {
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + block.count());
    blocks_.push_back(std::move(block));
  }

  void CopyTo(size_t first, size_t count, float* out) const override {
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

 private:
  const std::string bytes_;
  std::vector<CompressedBlock> blocks_;
  std::vector<size_t> ends_;  // behind the last element of each
};

}  // namespace

absl::StatusOr<std::shared_ptr<const FloatSource>> ReadCompressedBlocks(
    const PushHeader& header, absl::Span<const BlockIndex> blocks,
    const ShardLayout& layout, const PayloadPart& payload) {
  std::string bytes(payload.bytes, '\0');
  // A push without bytes has no source; its blocks are refused below.
  if (payload.bytes > 0) {
    payload.source->CopyBytes(0, bytes.size(), bytes.data());
  }
  auto source = std::make_shared<CompressedSource>(std::move(bytes));
  size_t at = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t size = header.block_bytes(static_cast<int>(i));
    auto block = CompressedBlock::Parse(source->bytes().substr(at, size),
                                        layout.counts()[blocks[i]]);
    if (!block.ok()) {
      return Annotate(block.status(), absl::StrCat("compressed block ",
                                                   layout.ids()[blocks[i]]));
    }
    source->Add(*std::move(block));
    at += size;
  }
  return source;
}

}  // namespace syncline::ps
