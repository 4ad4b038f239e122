#include "worker/embedding/checkpoint_rows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/system/memory_claim.h"

namespace syncline::worker {
namespace {

// More than before when the map from keys to rows grows, for each of its
// places: two new ones, an entry and its control byte each, beside the old one.
constexpr uint64_t kGrowthBytesOfPlace =
    2 * (sizeof(std::pair<int64_t, uint32_t>) + sizeof(char));
// A map that is small takes no memory worth counting, but for this.
constexpr uint64_t kPlacesMin = 1024;
constexpr size_t kKeysMax = std::numeric_limits<uint32_t>::max();

}  // namespace

CheckpointRows::CheckpointRows(std::vector<Table> tables,
                               std::function<uint64_t()> available)
    : available_(std::move(available)) {
  for (Table& table : tables) {
    tables_.push_back({.table = std::move(table), .row_of = {}, .values = {}});
  }
}

absl::Status CheckpointRows::CheckRoom(const Kept& kept, const char* what,
                                       uint64_t bytes) const {
  const absl::Status room = CheckMemoryFor(
      absl::StrCat("the ", what, " of table \"", kept.table.name,
                   "\" that data.test reads, ", kept.row_of.size(), " so far,"),
      bytes, available_);
  if (room.ok()) return room;
  return absl::ResourceExhaustedError(
      absl::StrCat(room.message(),
                   "; evaluate fewer samples, or where there is more memory"));
}

absl::Status CheckpointRows::AddKeys(absl::Span<RowBatch* const> batches) {
  SYNCLINE_CHECK(batches.size() == tables_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    Kept& kept = tables_[t];
    const absl::Span<const int64_t> keys = batches[t]->keys();
    if (keys.size() > kKeysMax - kept.row_of.size()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "table \"", kept.table.name,
          "\": data.test reads more "
          "than 4,294,967,295 keys of it; evaluate fewer samples"));
    }
    for (const int64_t key : keys) {
      if (kept.row_of.contains(key)) continue;
      const size_t places = kept.row_of.capacity();
      if (kept.row_of.size() >= places / 8 * 7) {  // it may grow
        SYNCLINE_RETURN_IF_ERROR(CheckRoom(
            kept, "keys",
            std::max<uint64_t>(places, kPlacesMin) * kGrowthBytesOfPlace));
      }
      kept.row_of.emplace(key, static_cast<uint32_t>(kept.row_of.size()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointRows::Begin() {
  for (Kept& kept : tables_) {
    const size_t count = kept.row_of.size() * kept.table.dim;
    if (kept.values.size() != count) {
      SYNCLINE_RETURN_IF_ERROR(
          CheckRoom(kept, "rows", uint64_t{count} * sizeof(float)));
      kept.values.resize(count);
    }
    for (const auto& [key, row] : kept.row_of) {
      kept.table.initializer.Fill(
          key, kept.values.data() + row * kept.table.dim, kept.table.dim);
    }
  }
  return absl::OkStatus();
}

void CheckpointRows::Put(uint32_t table, absl::Span<const int64_t> keys,
                         absl::Span<const float> values) {
  SYNCLINE_CHECK(table < tables_.size());
  Kept& kept = tables_[table];
  const size_t dim = kept.table.dim;
  SYNCLINE_CHECK(values.size() == keys.size() * dim);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto found = kept.row_of.find(keys[i]);
    if (found == kept.row_of.end()) continue;
    std::copy_n(values.data() + i * dim, dim,
                kept.values.data() + found->second * dim);
  }
}

void CheckpointRows::Read(absl::Span<RowBatch* const> batches) const {
  SYNCLINE_CHECK(batches.size() == tables_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    const Kept& kept = tables_[t];
    const size_t dim = kept.table.dim;
    for (size_t i = 0; i < batches[t]->keys().size(); ++i) {
      const auto found = kept.row_of.find(batches[t]->keys()[i]);
      SYNCLINE_CHECK(found != kept.row_of.end());
      std::copy_n(kept.values.data() + found->second * dim, dim,
                  batches[t]->value(i));
    }
  }
}

void CheckpointRows::FillInitial(uint32_t table, absl::Span<const int64_t> keys,
                                 float* values) const {
  SYNCLINE_CHECK(table < tables_.size());
  const Table& of = tables_[table].table;
  for (size_t i = 0; i < keys.size(); ++i) {
    of.initializer.Fill(keys[i], values + i * of.dim, of.dim);
  }
}

uint64_t CheckpointRows::keys() const {
  uint64_t keys = 0;
  for (const Kept& kept : tables_) keys += kept.row_of.size();
  return keys;
}

}  // namespace syncline::worker
