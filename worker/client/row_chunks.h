#ifndef SYNCLINE_WORKER_CLIENT_ROW_CHUNKS_H_
#define SYNCLINE_WORKER_CLIENT_ROW_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "worker/embedding/row_batch.h"

namespace syncline::worker {

// Rows [first, first + count) of one table in one message.
struct TableRowSpan {
  uint32_t table = 0;
  uint32_t first = 0;
  uint32_t count = 0;  // > 0
};

// The rows of one message: ranges ascend by (table, first), and none begins
// where another ends. A table has several where the slots between them are of
// other shards. Bytes are those of keys and values, which travel as `type`.
struct RowChunk {
  uint32_t shard = 0;
  ElementType type = ElementType::kFloat32;
  std::vector<TableRowSpan> ranges = {};
  size_t bytes = 0;

  size_t key_bytes() const;
};

// Cuts rows for `shard` into messages of at most `chunk_bytes`, or one row
// where that is larger. `tables` are by table index. Pure.

// Gradients: ranges of keys(), cut between slots only, because the rows of a
// slot of one clock travel together. A slot that is larger than a chunk is a
// message of its own.
// Errors: InvalidArgument: one is larger than `message_bytes`.
absl::StatusOr<std::vector<RowChunk>> CutGradients(
    absl::Span<RowBatch* const> tables, uint32_t shard, ElementType type,
    size_t chunk_bytes, size_t message_bytes);

// The wanted rows, early or not: ranges of wanted(), cut anywhere.
enum class WantedPart { kEarly, kRest };
std::vector<RowChunk> CutWanted(absl::Span<RowBatch* const> tables,
                                uint32_t shard, ElementType type,
                                size_t chunk_bytes,
                                WantedPart part = WantedPart::kRest);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_ROW_CHUNKS_H_
