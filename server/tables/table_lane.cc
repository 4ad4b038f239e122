#include "server/tables/table_lane.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/optimizer/finite.h"

namespace syncline::ps {
namespace {

// Missing rows that are put aside: a batch large enough for the cold store, and
// at most 256 KiB of gradients, or one row.
constexpr size_t kMissingRows = 256;
constexpr size_t kMissingFloats = 64 << 10;
// The part of the rows that one Maintain looks at: it takes a few milliseconds,
// and as long again if the disk has to be read.
constexpr UpkeepBudget kUpkeep = {.rows = 256 << 10, .disk_bytes = 4 << 20};

// Clocks are kept in 32 bits: 4 billion steps, and then they stand still.
uint32_t Clock32(int64_t clock) {
  return static_cast<uint32_t>(
      std::clamp<int64_t>(clock, 0, std::numeric_limits<uint32_t>::max()));
}

// The first of several errors.
void Keep(absl::Status next, absl::Status* first) {
  if (first->ok()) *first = std::move(next);
}

}  // namespace

PartitionMap::PartitionMap(const TableMap& map, uint32_t shard,
                           uint32_t partitions)
    : map_(map),
      shard_(shard),
      partitions_(partitions),
      shift_(64 - std::countr_zero(map.slots())),
      of_slot_(map.slots()) {
  const absl::Span<const uint32_t> slots = map.shard_slots(shard);
  for (uint64_t i = 0; i < slots.size(); ++i) {
    of_slot_[slots[i]] = static_cast<uint16_t>(i * partitions / slots.size());
  }
}

TableLane::TableLane(TableContext* context, const TableMap& map,
                     const PartitionMap* partition_of)
    : context_(context),
      partition_of_(partition_of),
      dim_(context->layout.dim()),
      missing_limit_(
          std::clamp<size_t>(kMissingFloats / dim_, 1, kMissingRows)),
      merge_(map, dim_),
      history_(context->options.expiry.unseen_time),
      gradients_(
          std::min(kGroupRows, std::max<size_t>(1, kMissingFloats / dim_)) *
          dim_) {}

void TableLane::AddPartition(uint32_t id, uint32_t rows_per_slab,
                             uint32_t rows_max, size_t filter_bytes) {
  if (partitions_.empty()) first_partition_ = id;
  partitions_.push_back(
      std::make_unique<TablePartition>(context_, &counts_, &scratch_, id,
                                       rows_per_slab, rows_max, filter_bytes));
}

void TableLane::Locate() {
  Group& g = group_;
  for (size_t i = 0; i < g.size; ++i) {
    g.hashes[i] = RowPartition::Hash(g.keys[i]);
    g.partitions[i] = &PartitionOf(g.hashes[i]);
    g.partitions[i]->rows().PrefetchIndex(g.hashes[i]);
  }
  for (size_t i = 0; i < g.size; ++i) {
    const RowPartition& rows = g.partitions[i]->rows();
    g.rows[i] = rows.Guess(g.hashes[i]);
    if (g.rows[i] != RowPartition::kNone) rows.PrefetchRow(g.rows[i]);
  }
  // The guess is wrong where two keys share a tag: then its row has another
  // key.
  for (size_t i = 0; i < g.size; ++i) {
    if (g.rows[i] == RowPartition::kNone) continue;
    const RowPartition& rows = g.partitions[i]->rows();
    if (RowLayout::Key(rows.At(g.rows[i])) != g.keys[i]) {
      g.rows[i] = rows.Find(g.keys[i], g.hashes[i]);
    }
  }
}

// --- Push ---

char* TableLane::Record(TablePartition* partition, uint32_t row,
                        uint32_t push_clock) {
  char* const at = partition->rows().At(row);
  const uint32_t before = RowLayout::Clock(at);
  const uint32_t clock = std::max(before, push_clock);
  const float score =
      context_->expiry.ScoreAt(RowLayout::Score(at), before, clock) + 1;
  RowLayout::SetPast(at, score, clock);
  partition->SetChanged(row);
  hot_keys_.Offer(RowLayout::Key(at), score);
  return at;
}

void TableLane::Apply(const RowStep& step, size_t count) {
  context_->optimizer.Apply({.learning_rate = step.learning_rate,
                             .gradient_scale = step.gradient_scale},
                            count, group_.gradients, group_.values);
}

absl::Status TableLane::Push(absl::Span<const GradientRows> ranks,
                             const RowStep& step) {
  absl::Status status;
  merge_.Start(ranks);
  while (NextGroup(step)) Keep(PushGroup(gradients_.data(), step), &status);
  Keep(PushMissing(step), &status);
  return status;
}

bool TableLane::NextGroup(const RowStep& step) {
  group_.size =
      merge_.Next(gradients_.size() / dim_, group_.keys, gradients_.data());
  if (group_.size == 0) return false;
  if (!AllFinite(gradients_.data(), group_.size * dim_)) KeepFinite(step);
  return true;
}

void TableLane::KeepFinite(const RowStep& step) {
  size_t kept = 0;
  for (size_t i = 0; i < group_.size; ++i) {
    const float* const gradient = gradients_.data() + i * dim_;
    if (!AllFinite(gradient, dim_)) {
      if (step.non_finite != nullptr) {
        step.non_finite->push_back(group_.keys[i]);
      }
      continue;
    }
    group_.keys[kept] = group_.keys[i];
    if (kept < i) std::copy_n(gradient, dim_, gradients_.data() + kept * dim_);
    ++kept;
  }
  group_.size = kept;
}

absl::Status TableLane::PushGroup(const float* gradients, const RowStep& step) {
  absl::Status status;
  const uint32_t clock = Clock32(step.clock);
  Locate();
  counts_.pushed_rows += group_.size;
  size_t count = 0;
  for (size_t i = 0; i < group_.size; ++i) {
    TablePartition* const partition = group_.partitions[i];
    const uint32_t row = group_.rows[i];
    if (row == RowPartition::kNone) continue;
    if (partition->Expired(partition->rows().At(row), clock)) {
      absl::Status gone = partition->Expire(row, clock);
      group_.rows[i] = RowPartition::kNone;
      if (gone.ok()) continue;
      // The row is still in the table, and must not be added once more.
      Keep(std::move(gone), &status);
      group_.partitions[i] = nullptr;
      continue;
    }
    char* const at = Record(partition, row, clock);
    group_.gradients[count] = gradients + i * dim_;
    group_.values[count++] = RowLayout::Values(at);
  }
  Apply(step, count);
  if (count == group_.size) return status;
  for (size_t i = 0; i < group_.size; ++i) {
    if (group_.rows[i] != RowPartition::kNone) continue;
    if (group_.partitions[i] == nullptr) continue;
    if (missing_.keys.size() == missing_limit_) {
      Keep(PushMissing(step), &status);
    }
    PutAside(i);
    missing_.gradients.insert(missing_.gradients.end(), gradients + i * dim_,
                              gradients + (i + 1) * dim_);
  }
  return status;
}

void TableLane::PutAside(size_t i) {
  missing_.keys.push_back(group_.keys[i]);
  missing_.hashes.push_back(group_.hashes[i]);
  missing_.partitions.push_back(group_.partitions[i]);
}

void TableLane::ClearMissing() {
  missing_.keys.clear();
  missing_.hashes.clear();
  missing_.partitions.clear();
  missing_.gradients.clear();
  missing_.outs.clear();
}

absl::Status TableLane::LoadMissing() {
  const size_t count = missing_.keys.size();
  const size_t bytes = context_->layout.spilled_bytes();
  found_.assign(count, ColdFound::kNo);
  cold_at_.assign(count, 0);
  cold_keys_.clear();
  for (size_t i = 0; i < count; ++i) {
    if (!missing_.partitions[i]->has_cold_rows()) continue;
    cold_at_[i] = cold_keys_.size();
    found_[i] = ColdFound::kYes;
    cold_keys_.push_back({missing_.partitions[i]->id(), missing_.keys[i]});
  }
  if (cold_keys_.empty()) return absl::OkStatus();
  cold_rows_.resize(cold_keys_.size() * bytes);
  cold_found_.resize(cold_keys_.size());
  const absl::Status status =
      context_->cold->Get(cold_keys_, cold_rows_.data(), cold_found_.data());
  for (size_t i = 0; i < count; ++i) {
    if (found_[i] == ColdFound::kNo) continue;
    found_[i] = cold_found_[cold_at_[i]];
    if (found_[i] == ColdFound::kUnreadable) ++counts_.unreadable_rows;
    cold_at_[i] *= bytes;
  }
  return status;
}

absl::Status TableLane::PushMissing(const RowStep& step) {
  absl::Status status = LoadMissing();
  for (size_t i = 0; i < missing_.keys.size(); ++i) {
    TablePartition* const partition = missing_.partitions[i];
    // Not known to be absent: a row must not be made twice.
    if (found_[i] == ColdFound::kUnreadable) continue;
    uint32_t row = RowPartition::kNone;
    Keep(partition->Enter(missing_.keys[i], missing_.hashes[i],
                          Clock32(step.clock), SpilledOf(i), &row),
         &status);
    if (row == RowPartition::kNone) {
      hot_keys_.CountRefused(missing_.keys[i]);
      continue;
    }
    char* const at = Record(partition, row, Clock32(step.clock));
    // At once: the next may send this one to disk.
    group_.gradients[0] = missing_.gradients.data() + i * dim_;
    group_.values[0] = RowLayout::Values(at);
    Apply(step, 1);
  }
  ClearMissing();
  return status;
}

void TableLane::SquaredNorms(absl::Span<const GradientRows> ranks,
                             const RowStep& step, absl::Span<double> by_slot) {
  merge_.Start(ranks);
  double* slot = nullptr;
  while (NextGroup(step)) {
    for (size_t i = 0; i < group_.size; ++i) {
      const uint64_t hash = RowPartition::Hash(group_.keys[i]);
      double* const of_key = &by_slot[partition_of_->SlotIndex(hash)];
      if (of_key != slot) *of_key = 0;
      slot = of_key;
      *slot = AddSquares(*slot, gradients_.data() + i * dim_,
                         step.gradient_scale, dim_);
    }
  }
}

// --- Read ---

absl::Status TableLane::Read(absl::Span<const int64_t> keys, int64_t clock,
                             float* out) {
  absl::Status status;
  for (size_t begin = 0; begin < keys.size(); begin += kGroupRows) {
    group_.size = std::min(kGroupRows, keys.size() - begin);
    std::copy_n(keys.begin() + begin, group_.size, group_.keys);
    Keep(ReadGroup(Clock32(clock), out + begin * dim_), &status);
  }
  Keep(ReadMissing(Clock32(clock)), &status);
  return status;
}

absl::Status TableLane::ReadGroup(uint32_t clock, float* out) {
  absl::Status status;
  Locate();
  for (size_t i = 0; i < group_.size; ++i) {
    TablePartition* const partition = group_.partitions[i];
    const uint32_t row = group_.rows[i];
    if (row == RowPartition::kNone) continue;
    float* const values = out + i * dim_;
    const char* const at = partition->rows().At(row);
    if (partition->Expired(at, clock)) {
      ++counts_.read_absent;
      context_->options.initializer.Fill(group_.keys[i], values, dim_);
      continue;
    }
    ++counts_.read_from_memory;
    partition->SetRead(row);
    std::copy_n(RowLayout::Values(at), dim_, values);
  }
  // After the loop: taking rows in may move others of the group to disk.
  for (size_t i = 0; i < group_.size; ++i) {
    if (group_.rows[i] != RowPartition::kNone) continue;
    if (missing_.keys.size() == missing_limit_) {
      Keep(ReadMissing(clock), &status);
    }
    PutAside(i);
    missing_.outs.push_back(out + i * dim_);
  }
  return status;
}

absl::Status TableLane::ReadMissing(uint32_t clock) {
  absl::Status status = LoadMissing();
  for (size_t i = 0; i < missing_.keys.size(); ++i) {
    TablePartition* const partition = missing_.partitions[i];
    if (found_[i] == ColdFound::kUnreadable) continue;
    const char* const spilled = SpilledOf(i);
    if (spilled == nullptr || !partition->LivesOnDisk(spilled, clock)) {
      ++counts_.read_absent;
      context_->options.initializer.Fill(missing_.keys[i], missing_.outs[i],
                                         dim_);
      continue;
    }
    ++counts_.read_from_disk;
    std::copy_n(RowLayout::SpilledValues(spilled), dim_, missing_.outs[i]);
    partition->Promote(missing_.keys[i], missing_.hashes[i], clock, spilled);
  }
  ClearMissing();
  return status;
}

// --- Upkeep ---

absl::Status TableLane::Maintain(int64_t clock, absl::Time now) {
  history_.Observe(Clock32(clock), now);
  absl::Status status;
  UpkeepBudget budget = kUpkeep;
  for (const auto& partition : partitions_) {
    partition->SetTooOld(history_.too_old());
    // One without room holds up the pushes of the whole table.
    partition->Recover(Clock32(clock));
  }
  bool round = true;
  for (size_t i = 0; i < partitions_.size() && budget.left() && round; ++i) {
    Keep(partitions_[maintained_]->Maintain(Clock32(clock), &budget, &round),
         &status);
    if (round) maintained_ = (maintained_ + 1) % partitions_.size();
  }
  return status;
}

absl::Status TableLane::Scan(uint32_t partition, int64_t clock, size_t limit,
                             uint64_t* from, bool* more,
                             std::vector<int64_t>* keys,
                             std::vector<float>* values) {
  return partitions_[partition - first_partition_]->Scan(
      Clock32(clock), limit, from, more, keys, values);
}

TableStats TableLane::Stats() const {
  TableStats stats = counts_;
  for (const auto& partition : partitions_) partition->AddSizes(&stats);
  stats.memory_limit_bytes = context_->options.memory_bytes;
  if (context_->cold != nullptr) {
    stats.disk_bytes = context_->cold->disk_bytes();
    stats.disk_limit_bytes = context_->cold->disk_limit_bytes();
  }
  stats.hot_keys = hot_keys_.Sorted();
  return stats;
}

}  // namespace syncline::ps
