#ifndef SYNCLINE_SERVER_SHARD_SHARD_LAYOUT_H_
#define SYNCLINE_SERVER_SHARD_SHARD_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/regime/live_regimes.h"
#include "common/regime/regime_schedule.h"
#include "common/wire/block_map.h"
#include "common/wire/table_map.h"
#include "proto/parameter_server.pb.h"
#include "server/consistency/shard_call.h"

namespace syncline::ps {

// An embedding table as far as messages care.
struct TableLayout {
  std::string name;
  uint32_t dim = 0;  // > 0
  TableMap map;
};

// Rows of one table in one message: their keys, the one thing that is copied
// out of a payload, and where their values lie.
struct RowList {
  uint32_t table = 0;
  std::vector<int64_t> keys;  // ascending by (slot, key), unique
  std::vector<SlotRun> runs;  // the same keys, cut by slot
  // Where the values begin, in elements of their type: of the payload for a
  // push, of the answer for a pull.
  size_t first = 0;
};

// The bytes of a payload, in memory of its owner.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Copies the bytes [first, first + count).
  virtual void CopyBytes(size_t first, size_t count, void* out) const = 0;
};

// A received payload: elements of the job's type, and keys of 8 bytes.
struct PayloadPart {
  const ByteSource* source = nullptr;  // null: empty
  size_t bytes = 0;
};

// The facts of a header, and the rows that came with it. The facts' blocks are
// the dense ones, then each list's slots.
struct CheckedPush {
  PushFacts facts;
  std::vector<RowList> rows;
};
struct CheckedPull {
  PullFacts facts;
  std::vector<RowList> rows;
};

// The blocks and the tables' virtual slots of one shard, and what of a call's
// header may be believed: ids that are this shard's, sizes that fit, keys in
// order. Everything a peer sends goes through here. Immutable but for the
// regimes that are added, and thread-safe as these are (LiveRegimes).
//
// BlockIndex: [dense blocks][this shard's slots of table 0][of table 1]...
class ShardLayout {
 public:
  // `tables`: in the order of JobAssignment.tables, cut for the map's shards.
  // `regimes`: the types in which values travel, by clock; later ones are added
  // to regimes(). `leases`: the job's
  // data are leased, so a push may close clocks behind its own.
  ShardLayout(BlockMap map, uint32_t shard,
              std::vector<TableLayout> tables = {},
              const RegimeSchedule& regimes = {}, bool leases = false);

  const BlockMap& map() const { return map_; }
  uint32_t shard() const { return shard_; }
  // By clock, those that come while the job runs too.
  LiveRegimes& regimes() { return regimes_; }
  const LiveRegimes& regimes() const { return regimes_; }
  // How the values of a clock travel.
  ElementType TypeAt(int64_t clock) const {
    return regimes_.At(clock).wire_type;
  }
  // How the dense gradients of a clock are compressed.
  const GradientCompression& CompressionAt(int64_t clock) const {
    return regimes_.At(clock).compression;
  }
  // Workers train with SentValues at this clock.
  bool SendsChanges(int64_t clock) const;
  // Bytes of each dense block's change. REQUIRES: the job begins with such.
  std::vector<uint32_t> ChangeBytes(absl::Span<const BlockIndex> blocks) const;
  // Elements and global id of each dense block, by BlockIndex.
  absl::Span<const size_t> counts() const { return counts_; }
  absl::Span<const uint32_t> ids() const { return map_.shard_blocks(shard_); }
  bool is_dense(BlockIndex block) const { return block < counts_.size(); }

  absl::Span<const TableLayout> tables() const { return tables_; }
  // A table's slots follow its first one.
  BlockIndex FirstSlotBlock(uint32_t table) const {
    return first_block_[table];
  }
  // REQUIRES: the slot is this shard's.
  BlockIndex SlotBlock(uint32_t table, uint32_t slot) const {
    return first_block_[table] + tables_[table].map.SlotIndex(slot);
  }
  // Dense blocks and slots.
  uint32_t block_count() const { return first_block_.back(); }

  // Errors of all four: InvalidArgument, naming field and value.
  //
  // The payload must be exactly what the header says. What is inside compressed
  // blocks is checked where they are read.
  absl::StatusOr<std::vector<BlockIndex>> CheckInit(const InitHeader& header,
                                                    size_t payload_bytes) const;
  absl::StatusOr<CheckedPush> CheckPush(const PushHeader& header,
                                        const PayloadPart& payload) const;
  // The values must fit into one message.
  absl::StatusOr<CheckedPull> CheckPull(const PullHeader& header,
                                        const PayloadPart& payload) const;
  // Both of one message: the pull's keys come behind the push.
  absl::Status CheckPushPull(const PushPullHeader& header,
                             const PayloadPart& payload, CheckedPush* push,
                             CheckedPull* pull) const;

  // Where each dense block starts in a payload of these blocks, in elements;
  // then the end. `blocks` may go on with slots, which are left out.
  std::vector<size_t> Offsets(absl::Span<const BlockIndex> blocks) const;

 private:
  using TableList = google::protobuf::RepeatedPtrField<TableRows>;

  // OK if a pull asks for values in a type that the job has: it may have left
  // before the type changed, and come after.
  absl::Status CheckAskedType(WireType type, int64_t clock) const;
  // OK if a message's values are of the clock's wire type.
  absl::Status CheckWireType(absl::string_view field, WireType type,
                             int64_t clock) const;
  // OK if a message's blocks are compressed as the clock's regime says, and
  // its sizes add up to `payload_bytes`.
  absl::Status CheckCompression(const PushHeader& header,
                                uint64_t payload_bytes) const;
  absl::Status CheckPushFields(const PushHeader& header) const;
  absl::Status CheckPullFields(const PullHeader& header) const;
  // OK if the pull asks for what a worker of the job may have.
  absl::Status CheckAskedChanges(const PullHeader& header) const;
  absl::Status CheckTables(absl::string_view field,
                           const TableList& tables) const;
  // Bytes of what the header announces. REQUIRES: CheckTables is OK.
  uint64_t PushBytes(absl::Span<const BlockIndex> blocks,
                     const TableList& tables, ElementType type) const;
  absl::StatusOr<CheckedPush> ReadPush(const PushHeader& header,
                                       const PayloadPart& payload,
                                       uint64_t bytes_behind) const;
  absl::StatusOr<CheckedPull> ReadPull(const PullHeader& header,
                                       const PayloadPart& payload,
                                       size_t first_byte) const;
  // Reads the keys of `rows` at byte `at`; appends their slots to `blocks`.
  absl::StatusOr<RowList> ReadKeys(const TableRows& rows,
                                   const PayloadPart& payload, size_t at,
                                   std::vector<BlockIndex>* blocks) const;
  absl::StatusOr<std::vector<BlockIndex>> Indices(
      absl::Span<const uint32_t> ids) const;

  const BlockMap map_;
  const uint32_t shard_;
  const std::vector<TableLayout> tables_;
  LiveRegimes regimes_;
  const bool leases_;
  std::vector<size_t> counts_;
  std::vector<BlockIndex> index_of_;     // by global id; kNotHere
  std::vector<BlockIndex> first_block_;  // by table, then the end
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_SHARD_LAYOUT_H_
