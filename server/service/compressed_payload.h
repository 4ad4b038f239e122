#ifndef SYNCLINE_SERVER_SERVICE_COMPRESSED_PAYLOAD_H_
#define SYNCLINE_SERVER_SERVICE_COMPRESSED_PAYLOAD_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/update/float_source.h"
#include "proto/parameter_server.pb.h"
#include "server/shard/shard_layout.h"

namespace syncline::ps {

// The compressed blocks of a push (common/wire/compression.h) as float32, which
// are decoded piece by piece when they are added up: until then they take the
// memory that they came in. The payload is copied, because its caller might
// change it between the check and the reading. Immutable.
//
// REQUIRES: ShardLayout's check of `header` was OK; `blocks` are its blocks.
// Errors: InvalidArgument, which names the block: its bytes are not those of a
// block of its size.
absl::StatusOr<std::shared_ptr<const FloatSource>> ReadCompressedBlocks(
    const PushHeader& header, absl::Span<const BlockIndex> blocks,
    const ShardLayout& layout, const PayloadPart& payload);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_COMPRESSED_PAYLOAD_H_
