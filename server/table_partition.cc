#include "server/table_partition.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

// Rows are written to disk by the batch: a sixteenth of the partition at a time
// lets rows that warm up again stay, 256 make a batch cheap.
constexpr uint32_t kSpillBatchMost = 256;
constexpr uint32_t kSpillBatchShare = 16;
// What is left of the disk's bytes for rows that were accepted already.
constexpr double kDiskReserve = 0.1;
constexpr size_t kDiskSweepBatch = 1024;

constexpr uint64_t kAdmissionStream = 0x61646d6974;  // "admit"

// From [0, 1): the same for a key and clock wherever they are looked at.
double Draw(uint64_t seed, uint64_t hash, uint32_t clock) {
  const uint64_t bits = SeedFor(SeedFor(seed, kAdmissionStream) ^ hash, clock);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

std::string TableName(const TableOptions& options) {
  return absl::StrCat("table ", options.name);
}

}  // namespace

absl::Status TableRoom::Check() const {
  if (starved_.load(std::memory_order_relaxed) == 0 &&
      !disk_low_.load(std::memory_order_relaxed)) {
    return absl::OkStatus();
  }
  MutexLock lock(&mu_);
  return why_;
}

void TableRoom::Starved(const absl::Status& why) {
  MutexLock lock(&mu_);
  why_ = why;
  starved_.fetch_add(1, std::memory_order_relaxed);
}

void TableRoom::SetDisk(const absl::Status& why) {
  if (why.ok() && !disk_low_.load(std::memory_order_relaxed)) return;
  MutexLock lock(&mu_);
  if (!why.ok()) why_ = why;
  disk_low_.store(!why.ok(), std::memory_order_relaxed);
}

TableContext::TableContext(const TableOptions& table_options, size_t slab_bytes,
                           bool huge_pages,
                           std::unique_ptr<ColdStore> cold_store)
    : options(table_options),
      optimizer(table_options.optimizer, table_options.dim),
      layout(table_options.dim, optimizer.state_floats()),
      expiry(table_options.expiry),
      cold(std::move(cold_store)),
      pool(slab_bytes, huge_pages) {}

TablePartition::TablePartition(TableContext* context, TableStats* counts,
                               uint32_t id, uint32_t rows_per_slab,
                               uint32_t rows_max, size_t filter_bytes)
    : context_(context),
      counts_(counts),
      id_(id),
      rows_(context->layout, &context->pool, rows_per_slab, rows_max),
      filter_(filter_bytes) {}

TablePartition::~TablePartition() = default;

// --- Expiry ---

void TablePartition::CountExpired(RowExpiry::Verdict verdict) {
  if (verdict == RowExpiry::Verdict::kTooOld) ++counts_->expired_by_age;
  if (verdict == RowExpiry::Verdict::kTooLowScore) ++counts_->expired_by_score;
}

absl::Status TablePartition::Expire(uint32_t row, uint32_t clock) {
  return RemoveExpired(clock, row, row + 1);
}

// Copies on disk go first: a row whose copy stays must stay too, or the copy
// would count.
absl::Status TablePartition::RemoveExpired(uint32_t clock, uint32_t begin,
                                           uint32_t end) {
  victims_.clear();
  cold_keys_.clear();
  for (uint32_t row = begin; row < end; ++row) {
    if (rows_.mark(row) == 0 || !Expired(rows_.At(row), clock)) continue;
    victims_.push_back(row);
    if (rows_.mark(row) & kOnDisk) {
      cold_keys_.push_back({id_, RowLayout::Key(rows_.At(row))});
    }
  }
  if (!cold_keys_.empty()) {
    SYNCLINE_RETURN_IF_ERROR(context_->cold->Delete(cold_keys_));
  }
  for (const uint32_t row : victims_) {
    CountExpired(Judge(rows_.At(row), clock));
    rows_.Remove(row);
  }
  return absl::OkStatus();
}

absl::Status TablePartition::RemoveExpiredOnDisk(uint32_t clock,
                                                 size_t* budget) {
  const size_t limit = std::min(*budget, kDiskSweepBatch);
  keys_.clear();
  cold_bytes_.clear();
  SYNCLINE_RETURN_IF_ERROR(
      context_->cold->Scan({id_, sweep_key_}, limit, &keys_, &cold_bytes_));
  *budget -= keys_.size();
  cold_keys_.clear();
  std::vector<RowExpiry::Verdict> verdicts;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const char* const spilled =
        cold_bytes_.data() + i * context_->layout.spilled_bytes();
    const RowExpiry::Verdict verdict = context_->expiry.Judge(
        RowLayout::SpilledScore(spilled), RowLayout::SpilledClock(spilled),
        clock, too_old_);
    if (verdict == RowExpiry::Verdict::kLives) continue;
    // A row in memory is newer; its copy may be old.
    const uint64_t hash = RowPartition::Hash(keys_[i]);
    if (rows_.Find(keys_[i], hash) != kNone) continue;
    cold_keys_.push_back({id_, keys_[i]});
    verdicts.push_back(verdict);
  }
  SYNCLINE_RETURN_IF_ERROR(context_->cold->Delete(cold_keys_));
  cold_rows_ -= cold_keys_.size();
  for (const RowExpiry::Verdict verdict : verdicts) CountExpired(verdict);
  if (keys_.size() < limit ||
      keys_.back() == std::numeric_limits<int64_t>::max()) {
    sweeps_disk_ = false;
  } else {
    sweep_key_ = keys_.back() + 1;
  }
  return absl::OkStatus();
}

absl::Status TablePartition::Maintain(uint32_t clock, size_t* budget,
                                      bool* round) {
  *round = true;
  if (context_->cold != nullptr) WatchDisk();
  if (!context_->expiry.enabled()) return absl::OkStatus();
  if (!sweeps_disk_) {
    const uint32_t end = static_cast<uint32_t>(
        std::min<uint64_t>(rows_.row_limit(), uint64_t{sweep_} + *budget));
    *budget -= end - sweep_;
    SYNCLINE_RETURN_IF_ERROR(RemoveExpired(clock, sweep_, end));
    sweep_ = end;
    *round = sweep_ == rows_.row_limit();
    if (!*round) return absl::OkStatus();
    sweep_ = 0;
    if (cold_rows_ == 0) return absl::OkStatus();
    sweeps_disk_ = true;
    sweep_key_ = std::numeric_limits<int64_t>::min();
  }
  while (sweeps_disk_ && *budget > 0) {
    SYNCLINE_RETURN_IF_ERROR(RemoveExpiredOnDisk(clock, budget));
  }
  *round = !sweeps_disk_;
  return absl::OkStatus();
}

// --- Admission ---

bool TablePartition::Admitted(int64_t key, uint64_t hash, uint32_t clock) {
  const AdmissionOptions& rule = context_->options.admission;
  const bool tight =
      uint64_t{rows_.size()} + rows_.size() / 8 >= rows_.rows_max();
  if (rule.min_sightings > 1) {
    const uint32_t seen = filter_.Sight(hash);
    const uint32_t needed =
        std::min(rule.min_sightings * (tight ? 2 : 1),
                 std::max(rule.min_sightings, AdmissionFilter::kCountMax));
    if (seen < rule.min_sightings) ++counts_->refused_by_sightings;
    if (seen >= rule.min_sightings && seen < needed) {
      ++counts_->refused_by_budget;
    }
    return seen >= needed;
  }
  if (rule.probability < 1) {
    const double draw = Draw(context_->options.seed, hash, clock);
    const double chance = rule.probability * (tight ? 0.5 : 1);
    if (draw >= rule.probability) ++counts_->refused_by_probability;
    if (draw < rule.probability && draw >= chance) {
      ++counts_->refused_by_budget;
    }
    return draw < chance;
  }
  return true;
}

uint32_t TablePartition::AddRow(int64_t key, uint64_t hash, const char* spilled,
                                bool stale_copy) {
  const bool loads = spilled != nullptr && !stale_copy;
  const uint8_t mark = loads
                           ? HeatOf(RowLayout::SpilledScore(spilled)) | kOnDisk
                           : uint8_t{1} | kChanged | (stale_copy ? kOnDisk : 0);
  const uint32_t row = rows_.Add(key, hash, mark);
  if (row == kNone) return kNone;
  watches_use_ |= rows_.size() > rows_.rows_max() / 2;
  char* const at = rows_.At(row);
  if (spilled != nullptr) --cold_rows_;
  if (loads) {
    std::copy_n(spilled, context_->layout.spilled_bytes(),
                RowLayout::Spilled(at));
    ++counts_->loaded_rows;
    return row;
  }
  RowLayout::SetPast(at, 0, 0);
  context_->options.initializer.Fill(key, RowLayout::Values(at),
                                     context_->layout.dim());
  context_->optimizer.InitState(context_->layout.State(at));
  return row;
}

bool TablePartition::LivesOnDisk(const char* spilled, uint32_t clock) const {
  return context_->expiry.Judge(RowLayout::SpilledScore(spilled),
                                RowLayout::SpilledClock(spilled), clock,
                                too_old_) == RowExpiry::Verdict::kLives;
}

absl::Status TablePartition::Enter(int64_t key, uint64_t hash, uint32_t clock,
                                   const char* spilled, uint32_t* row) {
  *row = kNone;
  const bool lives = spilled != nullptr && LivesOnDisk(spilled, clock);
  if (!lives && !Admitted(key, hash, clock)) return absl::OkStatus();
  absl::Status room = MakeRoom(clock);
  if (room.ok()) {
    *row = AddRow(key, hash, spilled, spilled != nullptr && !lives);
    if (*row == kNone) {
      room = absl::ResourceExhaustedError(
          absl::StrCat(TableName(context_->options),
                       ": the system has no memory left for rows"));
    }
  }
  if (!room.ok()) ++counts_->refused_by_budget;
  return room;
}

void TablePartition::Promote(int64_t key, uint64_t hash, uint32_t clock,
                             const char* spilled) {
  if (MakeRoom(clock).ok()) AddRow(key, hash, spilled, false);
}

// --- Room ---

absl::Status TablePartition::MakeRoom(uint32_t clock) {
  if (!rows_.full()) {
    Relieve();
    return absl::OkStatus();
  }
  if (context_->expiry.enabled() && clock >= next_sweep_clock_) {
    next_sweep_clock_ = clock + context_->expiry.SweepClocks();
    const absl::Status swept = RemoveExpired(clock, 0, rows_.row_limit());
    if (!swept.ok()) return Starve(swept);
    if (!rows_.full()) {
      Relieve();
      return absl::OkStatus();
    }
  }
  if (context_->cold == nullptr) {
    return Starve(absl::ResourceExhaustedError(absl::StrCat(
        TableName(context_->options), " is full: its ",
        context_->options.memory_bytes,
        " bytes of memory hold no more rows, and it has no disk to spill to")));
  }
  const absl::Status spilled = Spill();
  if (!spilled.ok()) return Starve(spilled);
  Relieve();
  return absl::OkStatus();
}

absl::Status TablePartition::Starve(const absl::Status& why) {
  if (!starved_) context_->room.Starved(why);
  starved_ = true;
  return why;
}

void TablePartition::Relieve() {
  if (starved_) context_->room.Relieved();
  starved_ = false;
}

// The hand cools warm rows and takes those that are cold already.
void TablePartition::ChooseVictims(size_t count) {
  victims_.clear();
  while (victims_.size() < count) {
    if (hand_ >= rows_.row_limit()) hand_ = 0;
    const uint32_t row = hand_++;
    uint8_t& mark = rows_.mark(row);
    if (mark == 0) continue;
    if ((mark & RowPartition::kHeatBits) > 1) {
      --mark;
      continue;
    }
    // Once around within one batch it comes by those it chose.
    if (!victims_.empty() && row == victims_.front()) return;
    victims_.push_back(row);
    rows_.PrefetchRow(row);
  }
}

absl::Status TablePartition::WriteVictims() {
  const size_t bytes = context_->layout.spilled_bytes();
  cold_keys_.clear();
  cold_bytes_.clear();
  for (const uint32_t row : victims_) {
    if (!(rows_.mark(row) & kChanged)) continue;
    char* const at = rows_.At(row);
    cold_keys_.push_back({id_, RowLayout::Key(at)});
    const char* const spilled = RowLayout::Spilled(at);
    cold_bytes_.insert(cold_bytes_.end(), spilled, spilled + bytes);
  }
  if (cold_keys_.empty()) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(context_->cold->Put(cold_keys_, cold_bytes_.data()));
  counts_->spilled_rows += cold_keys_.size();
  return absl::OkStatus();
}

absl::Status TablePartition::Spill() {
  ChooseVictims(std::clamp(rows_.rows_max() / kSpillBatchShare, uint32_t{1},
                           kSpillBatchMost));
  const absl::Status written = WriteVictims();
  WatchDisk();
  // Those that are on disk as they are can go whatever the disk says.
  bool room = false;
  for (const uint32_t row : victims_) {
    if (!written.ok() && (rows_.mark(row) & kChanged)) continue;
    rows_.Remove(row);
    ++cold_rows_;
    room = true;
  }
  if (written.ok() || room) return absl::OkStatus();
  return Annotate(written,
                  absl::StrCat(TableName(context_->options), " is full: its ",
                               context_->options.memory_bytes,
                               " bytes of memory hold no more rows"));
}

void TablePartition::WatchDisk() {
  const uint64_t used = context_->cold->disk_bytes();
  const uint64_t limit = context_->cold->disk_limit_bytes();
  if (static_cast<double>(used) <
      (1 - kDiskReserve) * static_cast<double>(limit)) {
    return context_->room.SetDisk(absl::OkStatus());
  }
  context_->room.SetDisk(absl::ResourceExhaustedError(absl::StrCat(
      TableName(context_->options), " is full: its ",
      context_->options.memory_bytes, " bytes of memory are taken, and ", used,
      " of its ", limit, " bytes on disk")));
}

// --- Scan ---

absl::Status TablePartition::Scan(uint32_t clock, size_t limit, int64_t* from,
                                  bool* more, std::vector<int64_t>* keys,
                                  std::vector<float>* values) {
  using Found = std::pair<int64_t, const float*>;
  std::vector<Found> found;
  for (uint32_t row = 0; row < rows_.row_limit(); ++row) {
    const char* const at = rows_.At(row);
    if (rows_.mark(row) == 0 || RowLayout::Key(at) < *from) continue;
    if (!Expired(at, clock)) {
      found.push_back({RowLayout::Key(at), RowLayout::Values(at)});
    }
  }
  keys_.clear();
  cold_bytes_.clear();
  if (cold_rows_ > 0) {
    SYNCLINE_RETURN_IF_ERROR(
        context_->cold->Scan({id_, *from}, limit, &keys_, &cold_bytes_));
  }
  // Beyond the last key of a full answer the disk has more to say.
  const bool cut = cold_rows_ > 0 && keys_.size() == limit;
  const int64_t known =
      cut ? keys_.back() : std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < keys_.size(); ++i) {
    const char* const spilled =
        cold_bytes_.data() + i * context_->layout.spilled_bytes();
    const uint64_t hash = RowPartition::Hash(keys_[i]);
    if (rows_.Find(keys_[i], hash) != kNone) continue;  // newer in memory
    if (LivesOnDisk(spilled, clock)) {
      found.push_back({keys_[i], RowLayout::SpilledValues(spilled)});
    }
  }
  std::sort(found.begin(), found.end());

  size_t taken = 0;
  while (taken < found.size() && taken < limit && found[taken].first <= known) {
    keys->push_back(found[taken].first);
    values->insert(values->end(), found[taken].second,
                   found[taken].second + context_->layout.dim());
    ++taken;
  }
  const int64_t last = taken == limit ? keys->back() : known;
  *more = (cut || taken < found.size()) &&
          last < std::numeric_limits<int64_t>::max();
  if (*more) *from = last + 1;
  return absl::OkStatus();
}

void TablePartition::AddSizes(TableStats* stats) const {
  stats->rows_in_memory += rows_.size();
  stats->rows_on_disk += cold_rows_;
  stats->memory_bytes +=
      rows_.memory_bytes() + filter_.memory_bytes() + sizeof(*this);
}

}  // namespace syncline
