#ifndef SYNCLINE_WORKER_CLIENT_BLOCK_FRAMES_H_
#define SYNCLINE_WORKER_CLIENT_BLOCK_FRAMES_H_

// How blocks of dense tensors lie in messages (proto/parameter_server.proto):
// the slices of a request point into the tensors, the values of an answer are
// copied into them once. row_frames.h does the same for rows of tables.

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "common/wire/block_map.h"
#include "common/wire/frame.h"
#include "grpcpp/support/slice.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/chunk_builder.h"
#include "worker/exchange/gradient_compressor.h"

namespace syncline::worker {

// The values of `chunk`, as float32, where they are. `values`: by tensor of
// `map`; `owner` keeps them alive.
std::vector<grpc::Slice> ValueSlices(const BlockMap& map, const Chunk& chunk,
                                     absl::Span<const absl::Span<float>> values,
                                     const std::shared_ptr<const void>& owner);

// The gradients of `chunk` as `type`. Float32 stays where it is; a narrower
// type is a copy.
std::vector<grpc::Slice> GradientSlices(
    const BlockMap& map, const Chunk& chunk, ElementType type,
    absl::Span<const absl::Span<const float>> gradients,
    const std::shared_ptr<const void>& owner);

// The compressed gradients of `chunk`, with the bytes of each block in
// `header`. A copy: the compressor's own are of the next step soon.
std::vector<grpc::Slice> CompressedSlices(const Chunk& chunk,
                                          const GradientCompressor& compressor,
                                          PushHeader* header);

// Copies the answer to a pull of `chunk`, whose values are of `type`, into
// `values`. Errors: Internal: the answer has other blocks than were asked for.
absl::Status StoreBlocks(const BlockMap& map, const Chunk& chunk,
                         ElementType type, const PullResponseHeader& header,
                         const PayloadView& payload,
                         absl::Span<const absl::Span<float>> values);

// Adds the answer to a pull of what changes in `chunk` to `values`. Errors:
// Internal: it is not what was asked for. Some blocks may have changed then.
absl::Status AddChanges(const BlockMap& map, const Chunk& chunk,
                        const PullResponseHeader& header,
                        const PayloadView& payload,
                        absl::Span<const absl::Span<float>> values);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_BLOCK_FRAMES_H_
