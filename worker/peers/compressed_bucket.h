#ifndef SYNCLINE_WORKER_PEERS_COMPRESSED_BUCKET_H_
#define SYNCLINE_WORKER_PEERS_COMPRESSED_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/update/float_source.h"
#include "common/wire/block_map.h"
#include "worker/collectives/peer_transport.h"
#include "worker/peers/block_owners.h"

namespace syncline::worker {

// A bucket whose blocks are compressed. It is two messages, since its bytes
// depend on its values:
//
//   sizes    one uint32 for each block of the bucket
//   blocks   one behind the other, as common/wire/compression.h has them

// One that leaves: memory of whoever has encoded it, and of `sizes`.
struct LeavingBucket {
  std::vector<ConstPeerMemory> blocks;
  size_t bytes = 0;  // of blocks
};
// `bytes_of(id)` is a block of the bucket, encoded.
template <typename BytesOf>
LeavingBucket LeaveWith(const Bucket& bucket, BytesOf bytes_of,
                        std::vector<uint32_t>* sizes) {
  sizes->clear();
  LeavingBucket leaving;
  for (const uint32_t id : bucket.blocks) {
    const absl::string_view block = bytes_of(id);
    sizes->push_back(static_cast<uint32_t>(block.size()));
    leaving.bytes += block.size();
    leaving.blocks.push_back(
        {reinterpret_cast<const uint8_t*>(block.data()), block.size()});
  }
  return leaving;
}

// One that comes from another rank, once in a step.
class ComingBucket {
 public:
  // Where the sizes come.
  absl::Span<uint32_t> Sizes(const Bucket& bucket) {
    sizes_.resize(bucket.blocks.size());
    return absl::MakeSpan(sizes_);
  }
  // The sizes have come: where the blocks go. Errors: InvalidArgument: a size
  // that no block of so many elements has.
  absl::StatusOr<PeerMemory> Blocks(const BlockMap& map, const Bucket& bucket);
  // The blocks have come, of so many bytes. Gives them away.
  struct Received {
    std::shared_ptr<const FloatSource> values;
    size_t bytes = 0;
  };
  // Errors: InvalidArgument: bytes that are no block; names it.
  absl::StatusOr<Received> Take(const BlockMap& map, const Bucket& bucket);

 private:
  std::vector<uint32_t> sizes_;  // by block
  std::string bytes_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_COMPRESSED_BUCKET_H_
