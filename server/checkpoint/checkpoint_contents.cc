#include "server/checkpoint/checkpoint_contents.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/state_file.h"
#include "common/state/shard_state_reader.h"
#include "common/wire/routing_table.h"
#include "proto/shard_state.pb.h"
#include "server/tables/row_layout.h"

namespace syncline::ps {
namespace {

// Floats of an optimizer for each value of a row, at most.
constexpr uint32_t kStateFloatsMax = 16;

// One shard's file.
class FileReader {
 public:
  FileReader(const CheckpointManifest* manifest, const RoutingTable* routing,
             uint32_t shard, ShardStateSource* source)
      : manifest_(manifest),
        routing_(routing),
        shard_(shard),
        reader_(source),
        came_(routing->blocks().blocks().size()) {}

  absl::Status Read(TensorValues* values, const RowVisitor& rows) {
    ShardStateKind kind = ShardStateKind::kHeader;
    while (kind != ShardStateKind::kTrailer) {
      SYNCLINE_ASSIGN_OR_RETURN(const ShardStateReader::Record record,
                                reader_.Next());
      kind = record.kind;
      if (kind == ShardStateKind::kHeader) {
        SYNCLINE_RETURN_IF_ERROR(ReadHeader(record));
      } else if (kind == ShardStateKind::kDense) {
        SYNCLINE_RETURN_IF_ERROR(ReadDense(record, values));
      } else if (kind == ShardStateKind::kPart) {
        TablePart part;
        SYNCLINE_RETURN_IF_ERROR(reader_.Parse(record, &part));
        if (part.table() >= tables_.size()) return Damage("a table too many");
        table_ = part.table();
      } else if (kind == ShardStateKind::kRows) {
        SYNCLINE_RETURN_IF_ERROR(ReadRows(record, rows));
      } else if (kind == ShardStateKind::kTrailer) {
        SYNCLINE_RETURN_IF_ERROR(ReadTrailer(record));
      }
    }
    for (const uint32_t block : routing_->blocks().shard_blocks(shard_)) {
      if (came_[block] == routing_->blocks().blocks()[block].count) continue;
      return Damage(absl::StrCat("block ", block, " is not whole"));
    }
    return absl::OkStatus();
  }

 private:
  struct Table {
    uint32_t index = 0;  // in the manifest
    RowLayout layout;
  };

  absl::Status Damage(absl::string_view problem) const {
    return reader_.Damage(problem);
  }

  absl::Status ReadHeader(const ShardStateReader::Record& record) {
    ShardStateHeader header;
    SYNCLINE_RETURN_IF_ERROR(reader_.Parse(record, &header));
    if (header.format() != kShardStateFormat || header.ps_rank() != shard_ ||
        header.cut_id() != manifest_->cut_id()) {
      return Damage(absl::StrCat("it is of shard ", header.ps_rank(),
                                 " at cut ", header.cut_id(), ", format ",
                                 header.format()));
    }
    for (const ShardStateHeader::Table& from : header.tables()) {
      const auto found = std::find_if(
          manifest_->tables().begin(), manifest_->tables().end(),
          [&](const TableInfo& table) { return table.name() == from.name(); });
      if (found == manifest_->tables().end() || from.dim() != found->dim() ||
          from.state_floats() > kStateFloatsMax * from.dim()) {
        return Damage("it has a table that the manifest has not");
      }
      tables_.push_back(
          {static_cast<uint32_t>(found - manifest_->tables().begin()),
           RowLayout(from.dim(), from.state_floats())});
    }
    return absl::OkStatus();
  }

  absl::Status ReadDense(const ShardStateReader::Record& record,
                         TensorValues* values) {
    DensePiece piece;
    SYNCLINE_RETURN_IF_ERROR(reader_.Parse(record, &piece));
    if (piece.array() != 0) return absl::OkStatus();
    const absl::Span<const Block> blocks = routing_->blocks().blocks();
    if (piece.block() >= blocks.size() ||
        blocks[piece.block()].shard != shard_) {
      return Damage(absl::StrCat("it has block ", piece.block(),
                                 ", which is not its own"));
    }
    const Block& block = blocks[piece.block()];
    int64_t& came = came_[piece.block()];
    const size_t count = record.bulk.size() / sizeof(float);
    if (piece.first() != static_cast<uint64_t>(came) ||
        record.bulk.size() % sizeof(float) != 0 ||
        count > static_cast<size_t>(block.count - came)) {
      return Damage(absl::StrCat("block ", piece.block(),
                                 " does not come from front to back"));
    }
    if (values != nullptr) {
      std::memcpy((*values)[block.tensor].data() + block.offset + came,
                  record.bulk.data(), record.bulk.size());
    }
    came += static_cast<int64_t>(count);
    return absl::OkStatus();
  }

  absl::Status ReadRows(const ShardStateReader::Record& record,
                        const RowVisitor& rows) {
    RowsPiece piece;
    SYNCLINE_RETURN_IF_ERROR(reader_.Parse(record, &piece));
    if (table_ >= tables_.size()) return Damage("rows of no table");
    const RowLayout& layout = tables_[table_].layout;
    const size_t count = piece.rows();
    if (count > kShardStateBulkMax ||
        record.bulk.size() != count * (layout.bytes() + 1)) {
      return Damage(absl::StrCat(record.bulk.size(), " bytes for ", count,
                                 " rows of ", layout.bytes(), " + 1"));
    }
    rows_ += count;
    if (rows == nullptr) return absl::OkStatus();
    keys_.resize(count);
    row_values_.resize(count * layout.dim());
    for (size_t i = 0; i < count; ++i) {
      const char* const row = record.bulk.data() + i * layout.bytes();
      keys_[i] = RowLayout::Key(row);
      std::memcpy(row_values_.data() + i * layout.dim(), RowLayout::Values(row),
                  layout.dim() * sizeof(float));
    }
    return rows(tables_[table_].index, keys_, row_values_);
  }

  absl::Status ReadTrailer(const ShardStateReader::Record& record) {
    ShardStateTrailer trailer;
    SYNCLINE_RETURN_IF_ERROR(reader_.Parse(record, &trailer));
    if (trailer.rows() == rows_) return absl::OkStatus();
    return Damage(absl::StrCat("it was written behind ", trailer.rows(),
                               " rows, and ", rows_, " were read"));
  }

  const CheckpointManifest* const manifest_;
  const RoutingTable* const routing_;
  const uint32_t shard_;
  ShardStateReader reader_;
  std::vector<int64_t> came_;  // elements of values, by block
  std::vector<Table> tables_;  // by the state's index
  uint32_t table_ = ~uint32_t{0};
  uint64_t rows_ = 0;
  std::vector<int64_t> keys_;  // scratch, as the next one
  std::vector<float> row_values_;
};

}  // namespace

absl::Status ReadCheckpoint(const std::string& path,
                            const CheckpointManifest& manifest,
                            TensorValues* values, const RowVisitor& rows) {
  absl::StatusOr<RoutingTable> routing =
      RoutingTable::Create(AssignmentOf(manifest));
  if (!routing.ok()) {
    return absl::DataLossError(absl::StrCat(
        path, ": the manifest is of no model: ", routing.status().message()));
  }
  std::vector<std::unique_ptr<StateFileSource>> files;
  uint64_t bytes = 0;
  for (const CheckpointManifest::Shard& shard : manifest.shards()) {
    files.emplace_back();
    if (shard.file().empty()) continue;
    SYNCLINE_ASSIGN_OR_RETURN(
        files.back(),
        StateFileSource::Open(absl::StrCat(path, "/", shard.file()),
                              shard.bytes(), shard.crc32c()));
    bytes += shard.bytes();
  }
  if (values != nullptr) {
    // No more memory than there are bytes on the disk.
    if (static_cast<uint64_t>(routing->blocks().element_count()) *
            sizeof(float) >
        bytes) {
      return absl::DataLossError(
          absl::StrCat(path, ": its files have ", bytes, " bytes, its model ",
                       routing->blocks().element_count(), " values"));
    }
    values->clear();
    for (const ParameterInfo& parameter : manifest.parameters()) {
      int64_t count = 1;
      for (const int64_t dim : parameter.dims()) count *= dim;
      values->emplace_back(static_cast<size_t>(count));
    }
  }
  for (uint32_t shard = 0; shard < files.size(); ++shard) {
    if (files[shard] == nullptr) continue;
    SYNCLINE_RETURN_IF_ERROR(
        FileReader(&manifest, &*routing, shard, files[shard].get())
            .Read(values, rows));
  }
  return absl::OkStatus();
}

}  // namespace syncline::ps
