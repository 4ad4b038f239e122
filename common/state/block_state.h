#ifndef SYNCLINE_COMMON_STATE_BLOCK_STATE_H_
#define SYNCLINE_COMMON_STATE_BLOCK_STATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/state/shard_state_reader.h"
#include "common/state/shard_state_stream.h"
#include "common/state/shard_state_writer.h"

namespace syncline {

// Dense blocks in the state of a shard: DensePiece of proto/shard_state.proto.

// Of one piece's bulk.
inline constexpr size_t kBlockPieceFloats = kShardStateBulkMax / sizeof(float);

// Writes all pieces of a block. `array_of`: its values, then each slot of the
// optimizer, `elements` floats each; borrowed until it returns. Errors: the
// writer's.
absl::Status WriteBlock(
    uint32_t id, uint64_t elements, int64_t updates, int arrays,
    absl::FunctionRef<absl::Span<const float>(int array)> array_of,
    ShardStateWriter* writer);

// Reads the pieces of blocks, which come one block after the other, each from
// its first array's first element to its last array's last. Thread-compatible.
class BlockStateReader {
 public:
  struct Piece {
    uint32_t block = 0;     // global id
    uint64_t elements = 0;  // of the block, as the state says
    int64_t updates = 0;    // likewise, >= 0
    uint32_t array = 0;     // 0: values; k: the optimizer's slot k - 1
    uint64_t first = 0;
    // Floats [first, first + bytes / 4), at any address. The record's; empty if
    // it was passed over.
    absl::string_view bytes;
    // It is the first one of its block.
    bool begins = false;
  };

  // `arrays`: of each block of the state that comes now. No block is open.
  void Begin(uint32_t arrays);
  // Takes a record of kDense. Errors: DataLoss: it does not go on where the
  // piece before it has ended.
  absl::StatusOr<Piece> Take(const ShardStateReader& reader,
                             const ShardStateReader::Record& record);
  // OK where no block is open. Errors: DataLoss.
  absl::Status CheckClosed(const ShardStateReader& reader) const;
  // Blocks that have come whole, since Begin.
  uint64_t blocks() const { return blocks_; }

 private:
  struct Open {
    uint32_t id = 0;
    uint64_t elements = 0;
    int64_t updates = 0;
    uint32_t array = 0;  // of the next piece
    uint64_t first = 0;
  };
  uint32_t arrays_ = 1;
  std::optional<Open> open_;
  uint64_t blocks_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_STATE_BLOCK_STATE_H_
