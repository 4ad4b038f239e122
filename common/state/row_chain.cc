#include "common/state/row_chain.h"

#include "absl/strings/str_cat.h"

namespace syncline {

void RowChain::Begin(absl::Span<const uint32_t> slots) {
  tables_.clear();
  for (const uint32_t count : slots) {
    tables_.emplace_back().slots.resize(count, Come::kNone);
  }
  is_newest_ = true;
  counts_ = false;
}

bool RowChain::OpenPart(const TablePart& part, std::string* problem) {
  table_ = part.table();
  counts_ = false;
  changes_only_ = part.changes_only();
  std::vector<Come>& slots = tables_[table_].slots;
  const Come next = changes_only_ ? Come::kChanges : Come::kAll;
  std::optional<Come> before;
  for (const TablePart::Run& run : part.slots()) {
    for (uint32_t slot = run.first(); slot < run.first() + run.count();
         ++slot) {
      Come& come = slots[slot];
      if (is_newest_ != (come == Come::kNone)) {
        *problem =
            absl::StrCat("slot ", slot,
                         is_newest_ ? " comes twice" : " is in no newer file");
        return false;
      }
      if (before.value_or(come) != come) {
        *problem = absl::StrCat("slot ", slot,
                                " is in a part of other slots in a newer file");
        return false;
      }
      before = come;
      if (come != Come::kAll) come = next;
    }
  }
  counts_ = before.has_value() && *before != Come::kAll;
  return true;
}

bool RowChain::TakeRow(int64_t key) {
  if (!counts_) return false;
  absl::flat_hash_set<int64_t>& newer = tables_[table_].newer;
  // Behind a part with all rows nobody asks for its keys.
  return changes_only_ ? newer.insert(key).second : !newer.contains(key);
}

void RowChain::TakeGone(int64_t key) {
  if (counts_) tables_[table_].newer.insert(key);
}

std::optional<RowChain::Slot> RowChain::Missing() const {
  for (uint32_t table = 0; table < tables_.size(); ++table) {
    const std::vector<Come>& slots = tables_[table].slots;
    for (uint32_t slot = 0; slot < slots.size(); ++slot) {
      if (slots[slot] == Come::kChanges) return Slot{table, slot};
    }
  }
  return std::nullopt;
}

}  // namespace syncline
