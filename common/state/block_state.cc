#include "common/state/block_state.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "proto/shard_state.pb.h"

namespace syncline {

absl::Status WriteBlock(
    uint32_t id, uint64_t elements, int64_t updates, int arrays,
    absl::FunctionRef<absl::Span<const float>(int array)> array_of,
    ShardStateWriter* writer) {
  DensePiece piece;
  piece.set_block(id);
  piece.set_elements(elements);
  piece.set_updates(updates);
  for (int array = 0; array < arrays; ++array) {
    piece.set_array(static_cast<uint32_t>(array));
    const absl::Span<const float> all = array_of(array);
    for (size_t first = 0; first < all.size(); first += kBlockPieceFloats) {
      piece.set_first(first);
      const absl::Span<const float> some =
          all.subspan(first, kBlockPieceFloats);
      SYNCLINE_RETURN_IF_ERROR(
          writer->Write(ShardStateKind::kDense, piece,
                        {reinterpret_cast<const char*>(some.data()),
                         some.size() * sizeof(float)}));
    }
  }
  return absl::OkStatus();
}

void BlockStateReader::Begin(uint32_t arrays) {
  arrays_ = arrays;
  open_.reset();
  blocks_ = 0;
}

absl::StatusOr<BlockStateReader::Piece> BlockStateReader::Take(
    const ShardStateReader& reader, const ShardStateReader::Record& record) {
  DensePiece piece;
  SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &piece));
  const bool begins = !open_.has_value();
  if (begins) {
    if (piece.updates() < 0) {
      return reader.Damage(absl::StrCat("block ", piece.block(), " has ",
                                        piece.updates(), " updates"));
    }
    open_ = Open{.id = piece.block(),
                 .elements = piece.elements(),
                 .updates = piece.updates()};
  }
  Open& open = *open_;
  if (piece.block() != open.id || piece.elements() != open.elements ||
      piece.updates() != open.updates || piece.array() != open.array ||
      piece.first() != open.first) {
    return reader.Damage(absl::StrCat(
        "expected block ", open.id, " from element ", open.first, " of array ",
        open.array, ", it has block ", piece.block(), " from element ",
        piece.first(), " of array ", piece.array()));
  }
  const uint64_t count = record.bulk_bytes / sizeof(float);
  if (count == 0 || record.bulk_bytes % sizeof(float) != 0 ||
      count > open.elements - open.first) {
    return reader.Damage(absl::StrCat(record.bulk_bytes, " bytes for the ",
                                      open.elements - open.first,
                                      " elements left of block ", open.id));
  }
  const Piece taken = {.block = open.id,
                       .elements = open.elements,
                       .updates = open.updates,
                       .array = open.array,
                       .first = open.first,
                       .bytes = record.bulk,
                       .begins = begins};
  open.first += count;
  if (open.first < open.elements) return taken;
  open.first = 0;
  if (++open.array < arrays_) return taken;
  ++blocks_;
  open_.reset();
  return taken;
}

absl::Status BlockStateReader::CheckClosed(
    const ShardStateReader& reader) const {
  if (!open_.has_value()) return absl::OkStatus();
  return reader.Damage(absl::StrCat("block ", open_->id, " is not whole"));
}

}  // namespace syncline
