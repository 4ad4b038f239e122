#ifndef SYNCLINE_COMMON_STATE_ROW_CHAIN_H_
#define SYNCLINE_COMMON_STATE_ROW_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "proto/shard_state.pb.h"

namespace syncline {

// Which rows count, of a state that needs older ones (ShardStateHeader.older).
// The states are read from the newest to the oldest: of each key the first that
// comes counts, whether it is a row or says that there is none. Behind a part
// that has all rows nothing older of its slots counts. Needs the memory of the
// keys in parts that have changes alone, about 18 bytes each. Pure.
// Thread-compatible.
class RowChain {
 public:
  // `slots`: of each table of the newest state. What was before is forgotten.
  void Begin(absl::Span<const uint32_t> slots);
  // The states that come from here on are older ones.
  void EndNewest() { is_newest_ = false; }

  // A part whose runs of slots are in order and below the table's number.
  // REQUIRES: part.table() < tables. False: it does not fit what came before
  // it: no rows of it may be taken, and *problem says why.
  bool OpenPart(const TablePart& part, std::string* problem);
  // True if rows of the open part may count: else it can be passed over.
  bool PartCounts() const { return counts_; }
  // True if the row of the key counts, in the open part. REQUIRES: called once
  // for each.
  bool TakeRow(int64_t key);
  // The key has no row.
  void TakeGone(int64_t key);

  // A slot of which no state has all rows, with its table; nothing: there is
  // none. Asked at the end.
  struct Slot {
    uint32_t table = 0;
    uint32_t slot = 0;
  };
  std::optional<Slot> Missing() const;

 private:
  enum class Come : uint8_t { kNone, kChanges, kAll };
  struct Table {
    std::vector<Come> slots;
    absl::flat_hash_set<int64_t> newer;  // keys that have been decided
  };
  std::vector<Table> tables_;
  bool is_newest_ = true;
  // Of the open part.
  uint32_t table_ = 0;
  bool counts_ = false;
  bool changes_only_ = false;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_STATE_ROW_CHAIN_H_
