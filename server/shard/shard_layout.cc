#include "server/shard/shard_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/step_limits.h"
#include "common/regime/compression_message.h"
#include "common/wire/compression.h"
#include "common/wire/frame.h"
#include "common/wire/wire_element_type.h"

namespace syncline::ps {
namespace {

constexpr BlockIndex kNotHere = std::numeric_limits<BlockIndex>::max();
// Sums over all workers stay within 64 bits.
constexpr uint64_t kSamplesMax = uint64_t{1} << 40;

absl::Status NotNegative(absl::string_view field, int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be at least 0"));
}

absl::Status CheckSize(const PayloadPart& payload, uint64_t expected,
                       int blocks, const std::string& rows) {
  if (payload.bytes == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the payload has ", payload.bytes, " bytes, its ", blocks,
                   " blocks", rows, " have ", expected));
}

// " and 12 rows"; nothing without tables.
std::string RowsText(
    const google::protobuf::RepeatedPtrField<TableRows>& tables) {
  uint64_t rows = 0;
  for (const TableRows& table : tables) rows += table.rows();
  return rows == 0 ? "" : absl::StrCat(" and ", rows, " rows");
}

uint64_t KeyBytes(const google::protobuf::RepeatedPtrField<TableRows>& tables) {
  uint64_t rows = 0;
  for (const TableRows& table : tables) rows += table.rows();
  return rows * sizeof(int64_t);
}

bool AsksForChanges(const PullHeader& header) {
  return header.compression() > CompressionSpec::NONE;
}

}  // namespace

ShardLayout::ShardLayout(BlockMap map, uint32_t shard,
                         std::vector<TableLayout> tables,
                         const RegimeSchedule& regimes, bool leases)
    : map_(std::move(map)),
      shard_(shard),
      tables_(std::move(tables)),
      regimes_(regimes),
      leases_(leases),
      index_of_(map_.blocks().size(), kNotHere) {
  for (const uint32_t id : ids()) {
    index_of_[id] = static_cast<BlockIndex>(counts_.size());
    counts_.push_back(static_cast<size_t>(map_.blocks()[id].count));
  }
  first_block_.push_back(static_cast<BlockIndex>(counts_.size()));
  for (const TableLayout& table : tables_) {
    first_block_.push_back(first_block_.back() + table.map.SlotCount(shard_));
  }
}

absl::StatusOr<std::vector<BlockIndex>> ShardLayout::CheckInit(
    const InitHeader& header, size_t payload_bytes) const {
  SYNCLINE_RETURN_IF_ERROR(NotNegative("total_clocks", header.total_clocks()));
  SYNCLINE_ASSIGN_OR_RETURN(std::vector<BlockIndex> blocks,
                            Indices(header.blocks()));
  SYNCLINE_RETURN_IF_ERROR(CheckSize({nullptr, payload_bytes},
                                     Offsets(blocks).back() * sizeof(float),
                                     header.blocks_size(), ""));
  return blocks;
}

absl::StatusOr<CheckedPush> ShardLayout::CheckPush(
    const PushHeader& header, const PayloadPart& payload) const {
  return ReadPush(header, payload, 0);
}

absl::StatusOr<CheckedPull> ShardLayout::CheckPull(
    const PullHeader& header, const PayloadPart& payload) const {
  SYNCLINE_RETURN_IF_ERROR(CheckPullFields(header));
  SYNCLINE_RETURN_IF_ERROR(CheckSize(payload, KeyBytes(header.tables()), 0,
                                     RowsText(header.tables())));
  return ReadPull(header, payload, 0);
}

absl::Status ShardLayout::CheckPushPull(const PushPullHeader& header,
                                        const PayloadPart& payload,
                                        CheckedPush* push,
                                        CheckedPull* pull) const {
  SYNCLINE_RETURN_IF_ERROR(CheckPullFields(header.pull()));
  const uint64_t key_bytes = KeyBytes(header.pull().tables());
  SYNCLINE_ASSIGN_OR_RETURN(*push, ReadPush(header.push(), payload, key_bytes));
  SYNCLINE_ASSIGN_OR_RETURN(
      *pull, ReadPull(header.pull(), payload, payload.bytes - key_bytes));
  return absl::OkStatus();
}

absl::Status ShardLayout::CheckWireType(absl::string_view field, WireType type,
                                        int64_t clock) const {
  const WireType expected = WireTypeOf(TypeAt(clock));
  if (type == WIRE_TYPE_UNSPECIFIED) type = WIRE_FLOAT32;
  if (type == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " is ",
      WireType_IsValid(type) ? WireType_Name(type) : absl::StrCat(type),
      ", the job's is ", WireType_Name(expected), " at clock ", clock));
}

absl::Status ShardLayout::CheckAskedType(WireType type, int64_t clock) const {
  if (WireType_IsValid(type) && regimes_.HasWireType(ElementTypeOf(type))) {
    return absl::OkStatus();
  }
  return CheckWireType("pull.wire_type", type, clock);
}

absl::Status ShardLayout::CheckCompression(const PushHeader& header,
                                           uint64_t payload_bytes) const {
  const CompressionSpec::Kind expected =
      header.blocks().empty() ? CompressionSpec::NONE
                              : KindOf(CompressionAt(header.clock()));
  const CompressionSpec::Kind kind =
      header.compression() == CompressionSpec::KIND_UNSPECIFIED
          ? CompressionSpec::NONE
          : header.compression();
  if (kind != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "push.compression is ",
        CompressionSpec::Kind_IsValid(kind) ? CompressionSpec::Kind_Name(kind)
                                            : absl::StrCat(kind),
        ", the job's is ", CompressionSpec::Kind_Name(expected), " at clock ",
        header.clock()));
  }
  const int blocks = kind == CompressionSpec::NONE ? 0 : header.blocks_size();
  if (header.block_bytes_size() != blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("push.block_bytes has ", header.block_bytes_size(),
                     " sizes, must have ", blocks));
  }
  if (kind == CompressionSpec::NONE) return absl::OkStatus();
  if (header.tables_size() > 0) {
    return absl::InvalidArgumentError(
        "push.tables: rows do not travel with compressed blocks");
  }
  uint64_t bytes = 0;
  for (const uint32_t of : header.block_bytes()) bytes += of;
  return CheckSize({nullptr, payload_bytes}, bytes, header.blocks_size(), "");
}

absl::Status ShardLayout::CheckPushFields(const PushHeader& header) const {
  SYNCLINE_RETURN_IF_ERROR(NotNegative("push.clock", header.clock()));
  SYNCLINE_RETURN_IF_ERROR(
      CheckWireType("push.wire_type", header.wire_type(), header.clock()));
  if (header.sample_count() > kSamplesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("push.sample_count is ", header.sample_count(),
                     ", must be at most ", kSamplesMax));
  }
  if (header.non_finite() && header.sample_count() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("push.non_finite is set, but push.sample_count is ",
                     header.sample_count(), ", must be 0"));
  }
  if (header.close_until() != 0 && !leases_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "push.close_until is ", header.close_until(),
        ", must be 0: the job's data are not leased, and a shard closes the "
        "clocks that a worker was left behind at by itself"));
  }
  if (header.close_until() != 0 && header.close_until() <= header.clock()) {
    return absl::InvalidArgumentError(
        absl::StrCat("push.close_until is ", header.close_until(),
                     ", must be 0 or above push.clock, ", header.clock()));
  }
  if (header.has_for_rank() && (!leases_ || header.caller().rank() != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("push.for_rank is ", header.for_rank(),
                     " in a push of rank ", header.caller().rank(),
                     ", must be unset: the chief alone makes clocks of lost "
                     "workers, of jobs "
                     "whose data are leased"));
  }
  if (!(header.squared_norm() >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("push.squared_norm is ",
                                                   header.squared_norm(),
                                                   ", must be at least 0"));
  }
  return CheckTables("push.tables", header.tables());
}

absl::Status ShardLayout::CheckPullFields(const PullHeader& header) const {
  SYNCLINE_RETURN_IF_ERROR(NotNegative("pull.clock", header.clock()));
  if (!(header.wait_seconds() > 0 &&
        header.wait_seconds() <= kWaitSecondsMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull.wait_seconds is ", header.wait_seconds(),
                     ", must be > 0 and at most ", kWaitSecondsMax));
  }
  return CheckTables("pull.tables", header.tables());
}

absl::Status ShardLayout::CheckAskedChanges(const PullHeader& header) const {
  if (!AsksForChanges(header)) return absl::OkStatus();
  // A call may come again when its clock's regime sends none any more: the one
  // before it did.
  const bool sends =
      SendsChanges(header.clock()) || SendsChanges(header.clock() - 1);
  if (header.compression() != CompressionSpec::INT8 || !sends ||
      header.cut_id() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pull.compression is ",
        CompressionSpec::Kind_IsValid(header.compression())
            ? CompressionSpec::Kind_Name(header.compression())
            : absl::StrCat(header.compression()),
        header.cut_id() != 0 ? " at a cut, whose values are whole"
        : sends
            ? ", values come back as INT8"
            : absl::StrCat(", the job's values are not compressed at clock ",
                           header.clock())));
  }
  if (header.tables_size() > 0) {
    return absl::InvalidArgumentError(
        "pull.tables: rows do not travel with compressed blocks");
  }
  return absl::OkStatus();
}

absl::Status ShardLayout::CheckTables(absl::string_view field,
                                      const TableList& tables) const {
  for (int i = 0; i < tables.size(); ++i) {
    const uint32_t table = tables[i].table();
    const auto wrong = [&](const auto&... what) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "[", i, "]: ", what...));
    };
    if (table >= tables_.size()) {
      return wrong("table ", table, " does not exist, there are ",
                   tables_.size(), " tables");
    }
    if (i > 0 && table <= tables[i - 1].table()) {
      return wrong("table ", table, " comes after table ",
                   tables[i - 1].table(), ", they must be ascending");
    }
    if (tables[i].rows() == 0) {
      return wrong("rows is 0, must be at least 1");
    }
  }
  return absl::OkStatus();
}

uint64_t ShardLayout::PushBytes(absl::Span<const BlockIndex> blocks,
                                const TableList& tables,
                                ElementType type) const {
  uint64_t elements = Offsets(blocks).back();
  for (const TableRows& rows : tables) {
    elements += uint64_t{rows.rows()} * tables_[rows.table()].dim;
  }
  return elements * ElementBytes(type) + KeyBytes(tables);
}

// Sizes are compared before anything is allocated by them.
absl::StatusOr<CheckedPush> ShardLayout::ReadPush(const PushHeader& header,
                                                  const PayloadPart& payload,
                                                  uint64_t bytes_behind) const {
  SYNCLINE_RETURN_IF_ERROR(CheckPushFields(header));
  const ElementType type = TypeAt(header.clock());
  CheckedPush push;
  push.facts.clock = header.clock();
  push.facts.close_until = header.close_until();
  push.facts.sample_count = header.sample_count();
  push.facts.is_late = header.late();
  push.facts.blocks_in_clock = header.blocks_in_clock();
  push.facts.finished = header.finished();
  push.facts.squared_norm = header.squared_norm();
  push.facts.non_finite = header.non_finite();
  SYNCLINE_ASSIGN_OR_RETURN(push.facts.blocks, Indices(header.blocks()));
  SYNCLINE_RETURN_IF_ERROR(CheckCompression(
      header, payload.bytes - std::min<uint64_t>(bytes_behind, payload.bytes)));
  if (header.block_bytes_size() > 0) {
    if (bytes_behind == 0) return push;
    return absl::InvalidArgumentError(
        "pull.tables: rows do not travel with compressed blocks");
  }
  SYNCLINE_RETURN_IF_ERROR(CheckSize(
      payload,
      PushBytes(push.facts.blocks, header.tables(), type) + bytes_behind,
      header.blocks_size(),
      absl::StrCat(RowsText(header.tables()),
                   bytes_behind > 0 ? " and a pull's keys" : "")));
  const size_t element_bytes = ElementBytes(type);
  size_t at = Offsets(push.facts.blocks).back() * element_bytes;
  for (const TableRows& rows : header.tables()) {
    SYNCLINE_ASSIGN_OR_RETURN(RowList list,
                              ReadKeys(rows, payload, at, &push.facts.blocks));
    at += list.keys.size() * sizeof(int64_t);
    list.first = at / element_bytes;
    at += list.keys.size() * tables_[list.table].dim * element_bytes;
    push.rows.push_back(std::move(list));
  }
  return push;
}

absl::StatusOr<CheckedPull> ShardLayout::ReadPull(const PullHeader& header,
                                                  const PayloadPart& payload,
                                                  size_t first_byte) const {
  CheckedPull pull;
  pull.facts.clock = header.clock();
  pull.facts.cut_id = header.cut_id();
  if (header.wire_type() > WIRE_FLOAT32) {
    SYNCLINE_RETURN_IF_ERROR(
        CheckAskedType(header.wire_type(), header.clock()));
    pull.facts.type = ElementTypeOf(header.wire_type());
  }
  SYNCLINE_RETURN_IF_ERROR(CheckAskedChanges(header));
  pull.facts.changes = AsksForChanges(header);
  SYNCLINE_ASSIGN_OR_RETURN(pull.facts.blocks, Indices(header.blocks()));
  size_t values = Offsets(pull.facts.blocks).back();
  size_t at = first_byte;
  for (const TableRows& rows : header.tables()) {
    SYNCLINE_ASSIGN_OR_RETURN(RowList list,
                              ReadKeys(rows, payload, at, &pull.facts.blocks));
    at += list.keys.size() * sizeof(int64_t);
    list.first = values;
    values += list.keys.size() * tables_[list.table].dim;
    pull.rows.push_back(std::move(list));
  }
  const size_t bytes = values * ElementBytes(pull.facts.type);
  if (bytes > kChunkBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pull.blocks", header.tables().empty() ? "" : " and pull.tables",
        " have ", bytes, " bytes, at most ", kChunkBytesMax,
        " fit into a message"));
  }
  return pull;
}

absl::StatusOr<RowList> ShardLayout::ReadKeys(
    const TableRows& rows, const PayloadPart& payload, size_t at,
    std::vector<BlockIndex>* blocks) const {
  RowList list;
  list.table = rows.table();
  list.keys.resize(rows.rows());
  payload.source->CopyBytes(at, list.keys.size() * sizeof(int64_t),
                            list.keys.data());
  const TableLayout& table = tables_[list.table];
  if (absl::Status cut = table.map.CutBySlot(list.keys, shard_, &list.runs);
      !cut.ok()) {
    return Annotate(cut, absl::StrCat("table '", table.name, "'"));
  }
  for (const SlotRun& run : list.runs) {
    blocks->push_back(SlotBlock(list.table, run.slot));
  }
  return list;
}

std::vector<size_t> ShardLayout::Offsets(
    absl::Span<const BlockIndex> blocks) const {
  std::vector<size_t> offsets = {0};
  offsets.reserve(blocks.size() + 1);
  for (const BlockIndex block : blocks) {
    if (!is_dense(block)) break;
    offsets.push_back(offsets.back() + counts_[block]);
  }
  return offsets;
}

bool ShardLayout::SendsChanges(int64_t clock) const {
  return regimes_.At(0).SendsChanges() && regimes_.At(clock).SendsChanges();
}

std::vector<uint32_t> ShardLayout::ChangeBytes(
    absl::Span<const BlockIndex> blocks) const {
  const uint32_t group = regimes_.At(0).compression.block_elements;
  std::vector<uint32_t> bytes;
  for (const BlockIndex block : blocks) {
    if (!is_dense(block)) break;
    bytes.push_back(static_cast<uint32_t>(Int8Bytes(counts_[block], group)));
  }
  return bytes;
}

absl::StatusOr<std::vector<BlockIndex>> ShardLayout::Indices(
    absl::Span<const uint32_t> ids) const {
  std::vector<BlockIndex> indices;
  indices.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint32_t id = ids[i];
    if (id >= index_of_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", id, " does not exist, there are ",
                       index_of_.size(), " blocks"));
    }
    if (index_of_[id] == kNotHere) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", id, " belongs to ps rank ",
                       map_.blocks()[id].shard, ", this is ps rank ", shard_));
    }
    if (i > 0 && id <= ids[i - 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", id, " comes after block ", ids[i - 1],
                       ", they must be ascending"));
    }
    indices.push_back(index_of_[id]);
  }
  return indices;
}

}  // namespace syncline::ps
