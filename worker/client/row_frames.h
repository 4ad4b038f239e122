#ifndef SYNCLINE_WORKER_CLIENT_ROW_FRAMES_H_
#define SYNCLINE_WORKER_CLIENT_ROW_FRAMES_H_

// How rows of embedding tables lie in messages (proto/parameter_server.proto):
// the slices of what is sent point into the RowBatches, what arrives is copied
// into them once.

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/wire/frame.h"
#include "grpcpp/support/slice.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/row_chunks.h"

namespace syncline::worker {

// A slice over memory that `owner` keeps alive.
grpc::Slice BorrowedSlice(const void* data, size_t bytes,
                          const std::shared_ptr<const void>& owner);

// `count` values of a payload, which are of `type` and start at byte `offset`.
void CopyValues(const PayloadView& payload, ElementType type, size_t offset,
                size_t count, float* out);

// Lists the rows of `chunk`, cut by CutGradients, in `header` and appends their
// keys and gradients; those that are narrowed are copied.
void AddGradients(absl::Span<RowBatch* const> tables, const RowChunk& chunk,
                  const std::shared_ptr<const void>& owner, PushHeader* header,
                  std::vector<grpc::Slice>* payload);

// Lists the rows of `chunk`, cut by CutWanted, in `header` and appends their
// keys.
void AddWantedKeys(absl::Span<RowBatch* const> tables, const RowChunk& chunk,
                   const std::shared_ptr<const void>& owner, PullHeader* header,
                   std::vector<grpc::Slice>* payload);

// Bytes of the values that the answer to such a pull has.
size_t ValueBytes(absl::Span<RowBatch* const> tables, const RowChunk& chunk);

// Copies the answer to such a pull into the batches, and says as of which clock
// its rows are. Errors: Internal: it has other rows than were asked for.
absl::Status StoreRows(absl::Span<RowBatch* const> tables,
                       const RowChunk& chunk, const PullResponseHeader& header,
                       const PayloadView& payload);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_ROW_FRAMES_H_
