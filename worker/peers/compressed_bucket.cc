#include "worker/peers/compressed_bucket.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/update/compressed_source.h"

namespace syncline::worker {
namespace {

size_t CountOf(const BlockMap& map, uint32_t block) {
  return static_cast<size_t>(map.blocks()[block].count);
}

}  // namespace

absl::StatusOr<PeerMemory> ComingBucket::Blocks(const BlockMap& map,
                                                const Bucket& bucket) {
  size_t bytes = 0;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const uint32_t id = bucket.blocks[i];
    const size_t most = CompressedBytesMax(CountOf(map, id));
    if (sizes_[i] > most) {
      return absl::InvalidArgumentError(absl::StrCat(
          "compressed block ", id, " of ", CountOf(map, id), " elements has ",
          sizes_[i], " bytes, at most ", most, " can be"));
    }
    bytes += sizes_[i];
  }
  bytes_.resize(bytes);
  return PeerMemory{reinterpret_cast<uint8_t*>(bytes_.data()), bytes};
}

absl::StatusOr<ComingBucket::Received> ComingBucket::Take(
    const BlockMap& map, const Bucket& bucket) {
  Received received;
  received.bytes = bytes_.size();
  auto source =
      std::make_shared<CompressedSource>(std::exchange(bytes_, std::string()));
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const uint32_t id = bucket.blocks[i];
    SYNCLINE_RETURN_IF_ERROR(Annotate(source->Add(sizes_[i], CountOf(map, id)),
                                      absl::StrCat("compressed block ", id)));
  }
  received.values = std::move(source);
  return received;
}

}  // namespace syncline::worker
