#include "server/service/compressed_payload.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/update/compressed_source.h"

namespace syncline::ps {

absl::StatusOr<std::shared_ptr<const FloatSource>> ReadCompressedBlocks(
    const PushHeader& header, absl::Span<const BlockIndex> blocks,
    const ShardLayout& layout, const PayloadPart& payload) {
  std::string bytes(payload.bytes, '\0');
  // A push without bytes has no source; its blocks are refused below.
  if (payload.bytes > 0) {
    payload.source->CopyBytes(0, bytes.size(), bytes.data());
  }
  auto source = std::make_shared<CompressedSource>(std::move(bytes));
  for (size_t i = 0; i < blocks.size(); ++i) {
    SYNCLINE_RETURN_IF_ERROR(
        Annotate(source->Add(header.block_bytes(static_cast<int>(i)),
                             layout.counts()[blocks[i]]),
                 absl::StrCat("compressed block ", layout.ids()[blocks[i]])));
  }
  return source;
}

}  // namespace syncline::ps
