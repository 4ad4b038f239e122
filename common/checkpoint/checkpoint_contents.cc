#include "common/checkpoint/checkpoint_contents.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/state_file.h"
#include "common/state/row_chain.h"
#include "common/state/row_layout.h"
#include "common/state/shard_state_reader.h"
#include "common/update/row_expiry.h"
#include "common/update/update_spec.h"
#include "common/wire/routing_table.h"
#include "proto/shard_state.pb.h"

namespace syncline {
namespace {

// Floats of an optimizer for each value of a row, at most.
constexpr uint32_t kStateFloatsMax = 16;
// Slots of a table, as a job may have them at most.
constexpr uint32_t kSlotsMax = 65536;
constexpr uint32_t kNoTable = ~uint32_t{0};

// One shard's file, and the older ones that it needs.
class FileReader {
 public:
  // `expiries`: by the manifest's table.
  FileReader(const CheckpointManifest* manifest, const RoutingTable* routing,
             absl::Span<const RowExpiry> expiries, const KeyFilter& wants,
             uint32_t shard, ShardStateSource* source)
      : manifest_(manifest),
        routing_(routing),
        expiries_(expiries),
        wants_(wants),
        shard_(shard),
        source_(source),
        came_(routing->blocks().blocks().size()) {}

  absl::Status Read(const ValueVisitor& values, const RowVisitor& rows) {
    SYNCLINE_RETURN_IF_ERROR(
        ReadFile(source_, manifest_->cut_id(), values, rows));
    chain_.EndNewest();
    is_older_ = true;
    // The newest first.
    for (int i = newest_.older_size() - 1; i >= 0; --i) {
      const ShardStateHeader::Older& of = newest_.older(i);
      SYNCLINE_ASSIGN_OR_RETURN(
          const std::unique_ptr<ShardStateSource> older,
          source_->OpenOlder(of.cut_id(), of.bytes(), of.crc32c()));
      SYNCLINE_RETURN_IF_ERROR(
          ReadFile(older.get(), of.cut_id(), nullptr, rows));
    }
    const std::optional<RowChain::Slot> missing = chain_.Missing();
    if (missing.has_value()) {
      return absl::DataLossError(absl::StrCat(
          source_->name(), ": neither it nor an older file has all rows of ",
          "slot ", missing->slot, " of table ", missing->table));
    }
    for (const uint32_t block : routing_->blocks().shard_blocks(shard_)) {
      if (came_[block] == routing_->blocks().blocks()[block].count) continue;
      return Damage(absl::StrCat("block ", block, " is not whole"));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadFile(ShardStateSource* source, uint64_t cut_id,
                        const ValueVisitor& values, const RowVisitor& rows) {
    reader_.emplace(source);
    table_ = kNoTable;
    rows_ = 0;
    gone_ = 0;
    ShardStateKind kind = ShardStateKind::kHeader;
    while (kind != ShardStateKind::kTrailer) {
      SYNCLINE_ASSIGN_OR_RETURN(const ShardStateReader::Record record,
                                reader_->Next());
      kind = record.kind;
      if (kind == ShardStateKind::kHeader) {
        SYNCLINE_RETURN_IF_ERROR(ReadHeader(record, cut_id));
      } else if (kind == ShardStateKind::kDense) {
        SYNCLINE_RETURN_IF_ERROR(ReadDense(record, values));
      } else if (kind == ShardStateKind::kPart) {
        SYNCLINE_RETURN_IF_ERROR(ReadPart(record));
      } else if (kind == ShardStateKind::kRows) {
        SYNCLINE_RETURN_IF_ERROR(ReadRows(record, rows));
      } else if (kind == ShardStateKind::kTrailer) {
        SYNCLINE_RETURN_IF_ERROR(ReadTrailer(record));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadPart(const ShardStateReader::Record& record) {
    TablePart part;
    SYNCLINE_RETURN_IF_ERROR(reader_->Parse(record, &part));
    if (part.table() >= tables_.size()) return Damage("a table too many");
    table_ = part.table();
    changes_only_ = part.changes_only();
    const uint32_t slots = tables_[table_].slots;
    uint32_t end = 0;  // of the runs so far
    for (const TablePart::Run& run : part.slots()) {
      if (run.count() == 0 || run.first() < end || run.first() >= slots ||
          run.count() > slots - run.first()) {
        return Damage("slots that the table has not, or in no order");
      }
      end = run.first() + run.count();
    }
    std::string problem;
    if (chain_.OpenPart(part, &problem)) return absl::OkStatus();
    return Damage(problem);
  }

  struct Table {
    uint32_t index = 0;  // in the manifest
    RowLayout layout;
    uint32_t slots = 0;
  };

  absl::Status Damage(absl::string_view problem) const {
    return reader_->Damage(problem);
  }

  absl::Status ReadHeader(const ShardStateReader::Record& record,
                          uint64_t cut_id) {
    ShardStateHeader header;
    SYNCLINE_RETURN_IF_ERROR(reader_->Parse(record, &header));
    const bool needs_older = header.format() == kShardStateChainFormat;
    if ((header.format() != kShardStateFormat && !needs_older) ||
        header.ps_rank() != shard_ || header.cut_id() != cut_id ||
        needs_older != (header.older_size() > 0) ||
        header.older_size() > kOlderStatesMax) {
      return Damage(absl::StrCat("it is of shard ", header.ps_rank(),
                                 " at cut ", header.cut_id(), ", format ",
                                 header.format(), ", and needs ",
                                 header.older_size(), " older files"));
    }
    if (is_older_) {
      bool same = header.job_id() == newest_.job_id() &&
                  header.tables_size() == newest_.tables_size();
      for (int i = 0; same && i < header.tables_size(); ++i) {
        same = header.tables(i).SerializeAsString() ==
               newest_.tables(i).SerializeAsString();
      }
      return same ? absl::OkStatus()
                  : Damage("it is not an older file of the same shard");
    }
    newest_ = header;
    if (header.tables_size() > manifest_->tables_size()) {
      return Damage("it has more tables than the manifest");
    }
    std::vector<uint32_t> slots;
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
           RowLayout(from.dim(), from.state_floats()), from.slots()});
      if (from.slots() > kSlotsMax) return Damage("a table of too many slots");
      slots.push_back(from.slots());
    }
    chain_.Begin(slots);
    return absl::OkStatus();
  }

  absl::Status ReadDense(const ShardStateReader::Record& record,
                         const ValueVisitor& values) {
    if (is_older_) return absl::OkStatus();
    DensePiece piece;
    SYNCLINE_RETURN_IF_ERROR(reader_->Parse(record, &piece));
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
      // A record's bytes have no alignment.
      values_.resize(count);
      std::memcpy(values_.data(), record.bulk.data(), record.bulk.size());
      values(block.tensor, block.offset + came, values_);
    }
    came += static_cast<int64_t>(count);
    return absl::OkStatus();
  }

  absl::Status ReadRows(const ShardStateReader::Record& record,
                        const RowVisitor& rows) {
    RowsPiece piece;
    SYNCLINE_RETURN_IF_ERROR(reader_->Parse(record, &piece));
    if (table_ >= tables_.size()) return Damage("rows of no table");
    const RowLayout& layout = tables_[table_].layout;
    const size_t count = piece.rows();
    const size_t gone = piece.gone();
    if (count > kShardStateBulkMax ||
        gone > (changes_only_ ? kShardStateBulkMax : 0) ||
        record.bulk.size() !=
            count * (layout.bytes() + 1) + gone * sizeof(int64_t)) {
      return Damage(absl::StrCat(record.bulk.size(), " bytes for ", count,
                                 " rows of ", layout.bytes(), " + 1 and ", gone,
                                 " keys without one"));
    }
    rows_ += count;
    gone_ += gone;
    if (rows == nullptr) return absl::OkStatus();
    const uint32_t table = tables_[table_].index;
    const char* const keys_gone =
        record.bulk.data() + count * (layout.bytes() + 1);
    for (size_t i = 0; i < gone; ++i) {
      int64_t key = 0;
      std::memcpy(&key, keys_gone + i * sizeof(key), sizeof(key));
      if (Wants(table, key)) chain_.TakeGone(key);
    }
    keys_.clear();
    values_.clear();
    for (size_t i = 0; i < count; ++i) {
      const char* const row = record.bulk.data() + i * layout.bytes();
      const int64_t key = RowLayout::Key(row);
      if (!Wants(table, key) || !chain_.TakeRow(key) || HasExpired(row)) {
        continue;
      }
      keys_.push_back(key);
      values_.resize(keys_.size() * layout.dim());
      std::memcpy(values_.data() + (keys_.size() - 1) * layout.dim(),
                  RowLayout::Values(row), layout.dim() * sizeof(float));
    }
    if (keys_.empty()) return absl::OkStatus();
    return rows(table, keys_, values_);
  }

  bool Wants(uint32_t table, int64_t key) const {
    return wants_ == nullptr || wants_(table, key);
  }
  // For a ps the row is not there, removed or not.
  bool HasExpired(const char* row) const {
    const RowExpiry& expiry = expiries_[tables_[table_].index];
    return expiry.enabled() &&
           expiry.Judge(RowLayout::Score(row), RowLayout::Clock(row),
                        static_cast<uint32_t>(manifest_->clock()),
                        /*too_old=*/0) != RowExpiry::Verdict::kLives;
  }

  absl::Status ReadTrailer(const ShardStateReader::Record& record) {
    ShardStateTrailer trailer;
    SYNCLINE_RETURN_IF_ERROR(reader_->Parse(record, &trailer));
    if (trailer.rows() == rows_ && trailer.gone() == gone_) {
      return absl::OkStatus();
    }
    return Damage(absl::StrCat("it was written behind ", trailer.rows(), " + ",
                               trailer.gone(), " rows, and ", rows_, " + ",
                               gone_, " were read"));
  }

  const CheckpointManifest* const manifest_;
  const RoutingTable* const routing_;
  const absl::Span<const RowExpiry> expiries_;
  const KeyFilter& wants_;
  const uint32_t shard_;
  ShardStateSource* const source_;
  std::optional<ShardStateReader> reader_;  // of one file after the other
  std::vector<int64_t> came_;               // elements of values, by block
  std::vector<Table> tables_;               // by the state's index
  ShardStateHeader newest_;
  RowChain chain_;
  bool is_older_ = false;
  uint32_t table_ = kNoTable;
  bool changes_only_ = false;
  uint64_t rows_ = 0;
  uint64_t gone_ = 0;
  std::vector<int64_t> keys_;  // scratch, as the next one
  std::vector<float> values_;
};

absl::StatusOr<RoutingTable> RoutingOf(const std::string& path,
                                       const CheckpointManifest& manifest) {
  absl::StatusOr<RoutingTable> routing =
      RoutingTable::Create(AssignmentOf(manifest));
  if (routing.ok()) return routing;
  return absl::DataLossError(absl::StrCat(
      path, ": the manifest is of no model: ", routing.status().message()));
}

// By table; of one that is not in the spec: none expires.
absl::StatusOr<std::vector<RowExpiry>> ExpiriesOf(
    const std::string& path, const CheckpointManifest& manifest) {
  std::vector<RowExpiry> expiries;
  for (const TableInfo& table : manifest.tables()) {
    ExpirySpec spec;
    for (const TableSpec& of : manifest.spec().tables()) {
      if (of.name() == table.name()) spec = of.expiry();
    }
    const ExpiryOptions options = ReadExpiry(spec);
    if (options.decay_clocks <= 0) {
      return absl::DataLossError(
          absl::StrCat(path, ": the manifest has an expiry.decay_clocks of ",
                       spec.decay_clocks()));
    }
    expiries.emplace_back(options);
  }
  return expiries;
}

// No more memory than there are bytes on the disk.
absl::StatusOr<TensorValues> RoomForValues(const std::string& path,
                                           const CheckpointManifest& manifest) {
  SYNCLINE_ASSIGN_OR_RETURN(const RoutingTable routing,
                            RoutingOf(path, manifest));
  uint64_t bytes = 0;
  for (const CheckpointManifest::Shard& shard : manifest.shards()) {
    if (shard.file().empty()) continue;
    SYNCLINE_RETURN_IF_ERROR(
        StateFileSource::Open(absl::StrCat(path, "/", shard.file()),
                              shard.bytes(), shard.crc32c())
            .status());
    bytes += shard.bytes();
  }
  const int64_t count = routing.blocks().element_count();
  if (static_cast<uint64_t>(count) * sizeof(float) > bytes) {
    return absl::DataLossError(absl::StrCat(path, ": its files have ", bytes,
                                            " bytes, its model ", count,
                                            " values"));
  }
  TensorValues values;
  int64_t left = count;
  for (const ParameterInfo& parameter : manifest.parameters()) {
    int64_t elements = 1;
    for (const int64_t dim : parameter.dims()) {
      if (dim <= 0 || elements > left / dim) {
        return absl::DataLossError(
            absl::StrCat(path, ": the manifest places ", count,
                         " values, and its tensors have others"));
      }
      elements *= dim;
    }
    left -= elements;
    values.emplace_back(static_cast<size_t>(elements));
  }
  return values;
}

}  // namespace

absl::Status VisitCheckpoint(const std::string& path,
                             const CheckpointManifest& manifest,
                             const ValueVisitor& values, const RowVisitor& rows,
                             const KeyFilter& wants, const GoOnCheck& go_on,
                             uint64_t* read) {
  SYNCLINE_ASSIGN_OR_RETURN(const RoutingTable routing,
                            RoutingOf(path, manifest));
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<RowExpiry> expiries,
                            ExpiriesOf(path, manifest));
  std::vector<std::unique_ptr<StateFileSource>> files;
  for (const CheckpointManifest::Shard& shard : manifest.shards()) {
    const auto number = static_cast<uint32_t>(files.size());
    files.emplace_back();
    if (shard.file().empty()) {
      const bool has_rows =
          !routing.tables().empty() && number < routing.ps_shard_count();
      if (!has_rows && routing.blocks().shard_blocks(number).empty()) continue;
      return absl::DataLossError(
          absl::StrCat(path, ": the manifest has no file of shard ", number,
                       ", which has ", has_rows ? "rows" : "blocks"));
    }
    SYNCLINE_ASSIGN_OR_RETURN(
        files.back(),
        StateFileSource::Open(absl::StrCat(path, "/", shard.file()),
                              shard.bytes(), shard.crc32c(), go_on));
    files.back()->CountIn(read);
  }
  for (uint32_t shard = 0; shard < files.size(); ++shard) {
    if (files[shard] == nullptr) continue;
    SYNCLINE_RETURN_IF_ERROR(FileReader(&manifest, &routing, expiries, wants,
                                        shard, files[shard].get())
                                 .Read(values, rows));
  }
  return absl::OkStatus();
}

absl::Status ReadCheckpoint(const std::string& path,
                            const CheckpointManifest& manifest,
                            TensorValues* values, const RowVisitor& rows) {
  if (values == nullptr) {
    return VisitCheckpoint(path, manifest, nullptr, rows, nullptr, nullptr);
  }
  SYNCLINE_ASSIGN_OR_RETURN(*values, RoomForValues(path, manifest));
  return VisitCheckpoint(
      path, manifest,
      [&](uint32_t parameter, int64_t first, absl::Span<const float> read) {
        std::copy(read.begin(), read.end(),
                  (*values)[parameter].begin() + first);
      },
      rows, nullptr, nullptr);
}

}  // namespace syncline
