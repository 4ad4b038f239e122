#include "server/tables/table_partition.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace syncline::ps {
namespace {

// Rows are written to disk by the batch: a sixteenth of the partition at a time
// lets rows that warm up again stay, 256 make a batch cheap.
constexpr uint32_t kSpillBatchMost = 256;
constexpr uint32_t kSpillBatchShare = 16;
// Of so many rows one goes: with more, those that came for one use go sooner
// and take less room from others, and looking takes longer.
constexpr size_t kLooksPerVictim = 8;
// Share of the disk's bytes that is kept for rows that were accepted already.
constexpr double kDiskReserve = 0.1;
constexpr size_t kDiskSweepBatch = 4096;
constexpr size_t kDiskSweepBytes = 1 << 20;

constexpr uint64_t kLastPosition = std::numeric_limits<uint64_t>::max();

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
                               PartitionScratch* scratch, uint32_t id,
                               uint32_t rows_per_slab, uint32_t rows_max,
                               size_t filter_bytes)
    : context_(context),
      counts_(counts),
      scratch_(scratch),
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
  scratch_->victims.clear();
  scratch_->cold_keys.clear();
  for (uint32_t row = begin; row < end; ++row) {
    if (rows_.mark(row) == 0 || !Expired(rows_.At(row), clock)) continue;
    scratch_->victims.push_back(row);
    if (rows_.mark(row) & kOnDisk) {
      scratch_->cold_keys.push_back({id_, RowLayout::Key(rows_.At(row))});
    }
  }
  absl::Status deleted;
  if (!scratch_->cold_keys.empty()) {
    size_t gone = 0;
    deleted = context_->cold->Delete(scratch_->cold_keys, &gone);
  }
  for (const uint32_t row : scratch_->victims) {
    if (!deleted.ok() && (rows_.mark(row) & kOnDisk)) {
      rows_.mark(row) |= kChanged;  // its copy may be gone
      continue;
    }
    CountExpired(Judge(rows_.At(row), clock));
    changes_.Note(RowLayout::Key(rows_.At(row)));
    rows_.Remove(row);
  }
  return deleted;
}

absl::Status TablePartition::RemoveExpiredOnDisk(uint32_t clock,
                                                 UpkeepBudget* budget) {
  const size_t row_bytes = context_->layout.spilled_bytes();
  const size_t limit = std::min(
      {budget->rows, kDiskSweepBatch,
       std::max<size_t>(
           1, std::min(kDiskSweepBytes, budget->disk_bytes) / row_bytes)});
  scratch_->keys.clear();
  scratch_->cold_bytes.clear();
  SYNCLINE_RETURN_IF_ERROR(context_->cold->Scan(
      // A row that cannot be read must not keep the others from expiring.
      id_, sweep_position_, limit, ColdStore::Damaged::kLeftOut,
      &scratch_->keys, &scratch_->cold_bytes));
  budget->rows -= scratch_->keys.size();
  budget->disk_bytes -=
      std::min(budget->disk_bytes,
               std::max<size_t>(1, scratch_->keys.size()) * row_bytes);
  scratch_->cold_keys.clear();
  std::vector<RowExpiry::Verdict> verdicts;
  for (size_t i = 0; i < scratch_->keys.size(); ++i) {
    const char* const spilled =
        scratch_->cold_bytes.data() + i * context_->layout.spilled_bytes();
    const RowExpiry::Verdict verdict = context_->expiry.Judge(
        RowLayout::SpilledScore(spilled), RowLayout::SpilledClock(spilled),
        clock, too_old_);
    if (verdict == RowExpiry::Verdict::kLives) continue;
    // A row in memory is newer; its copy may be old.
    const uint64_t hash = RowPartition::Hash(scratch_->keys[i]);
    if (rows_.Find(scratch_->keys[i], hash) != kNone) continue;
    scratch_->cold_keys.push_back({id_, scratch_->keys[i]});
    changes_.Note(scratch_->keys[i]);
    verdicts.push_back(verdict);
  }
  size_t gone = 0;
  const absl::Status deleted =
      context_->cold->Delete(scratch_->cold_keys, &gone);
  cold_rows_ -= gone;
  SYNCLINE_RETURN_IF_ERROR(deleted);
  for (const RowExpiry::Verdict verdict : verdicts) CountExpired(verdict);
  if (scratch_->keys.size() < limit ||
      ColdPosition(scratch_->keys.back()) == kLastPosition) {
    sweeps_disk_ = false;
  } else {
    sweep_position_ = ColdPosition(scratch_->keys.back()) + 1;
  }
  return absl::OkStatus();
}

absl::Status TablePartition::Maintain(uint32_t clock, UpkeepBudget* budget,
                                      bool* round) {
  *round = true;
  if (context_->cold != nullptr) WatchDisk();
  if (!context_->expiry.enabled()) return absl::OkStatus();
  if (!sweeps_disk_) {
    const uint32_t end = static_cast<uint32_t>(
        std::min<uint64_t>(rows_.row_limit(), uint64_t{sweep_} + budget->rows));
    budget->rows -= end - sweep_;
    SYNCLINE_RETURN_IF_ERROR(RemoveExpired(clock, sweep_, end));
    sweep_ = end;
    *round = sweep_ == rows_.row_limit();
    if (!*round) return absl::OkStatus();
    sweep_ = 0;
    if (cold_rows_ == 0) return absl::OkStatus();
    sweeps_disk_ = true;
    sweep_position_ = 0;
  }
  while (sweeps_disk_ && budget->left()) {
    const absl::Status removed = RemoveExpiredOnDisk(clock, budget);
    // An error of the disk must not end the expiry of rows in memory.
    if (!removed.ok()) sweeps_disk_ = false;
    SYNCLINE_RETURN_IF_ERROR(removed);
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
  const uint8_t mark =
      kThere | (loads ? kOnDisk : kChanged | (stale_copy ? kOnDisk : 0));
  const uint32_t row = rows_.Add(key, hash, mark);
  if (row == kNone) return kNone;
  changes_.Note(key);
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
  // After a failed attempt Recover tries again, not each read.
  if (starved_ && rows_.full()) return;
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
    if (!swept.ok() && context_->cold == nullptr) return Starve(swept);
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
  const absl::Status spilled = Spill(clock);
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

// A row that was not pushed for a while is pushed at most a few times in as
// long, whatever its score says of earlier times.
float TablePartition::Worth(const char* row, uint32_t clock) const {
  constexpr float kUnseenMost = 3;  // pushes expected in that time, 95%
  const uint32_t last = RowLayout::Clock(row);
  const float score =
      context_->expiry.ScoreAt(RowLayout::Score(row), last, clock);
  if (clock <= last) return score;
  return std::min(score, kUnseenMost * static_cast<float>(clock) /
                             static_cast<float>(clock - last));
}

void TablePartition::ChooseVictims(size_t count, uint32_t clock) {
  const size_t wanted = kLooksPerVictim * count;
  // If all rows were read since the last search, the first round clears their
  // read marks, and the second one finds candidates.
  for (int round = 0; round < 2; ++round) {
    scratch_->candidates.clear();
    for (uint32_t looks = rows_.row_limit();
         looks > 0 && scratch_->candidates.size() < wanted; --looks) {
      if (hand_ >= rows_.row_limit()) hand_ = 0;
      const uint32_t row = hand_++;
      uint8_t& mark = rows_.mark(row);
      if (mark == 0) continue;
      if (mark & kRead) {
        mark = static_cast<uint8_t>(mark & ~kRead);
      } else {
        scratch_->candidates.push_back({Worth(rows_.At(row), clock), row});
      }
    }
    if (scratch_->candidates.size() >= count) break;
  }
  count = std::min(count, scratch_->candidates.size());
  std::nth_element(scratch_->candidates.begin(),
                   scratch_->candidates.begin() + count,
                   scratch_->candidates.end());
  scratch_->victims.clear();
  for (size_t i = 0; i < count; ++i) {
    scratch_->victims.push_back(scratch_->candidates[i].second);
    rows_.PrefetchRow(scratch_->victims.back());
  }
}

absl::Status TablePartition::WriteVictims() {
  const size_t bytes = context_->layout.spilled_bytes();
  scratch_->cold_keys.clear();
  scratch_->cold_bytes.clear();
  for (const uint32_t row : scratch_->victims) {
    if (!(rows_.mark(row) & kChanged)) continue;
    char* const at = rows_.At(row);
    scratch_->cold_keys.push_back({id_, RowLayout::Key(at)});
    const char* const spilled = RowLayout::Spilled(at);
    scratch_->cold_bytes.insert(scratch_->cold_bytes.end(), spilled,
                                spilled + bytes);
  }
  if (scratch_->cold_keys.empty()) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(
      context_->cold->Put(scratch_->cold_keys, scratch_->cold_bytes.data()));
  counts_->spilled_rows += scratch_->cold_keys.size();
  return absl::OkStatus();
}

absl::Status TablePartition::Spill(uint32_t clock) {
  ChooseVictims(std::clamp(rows_.rows_max() / kSpillBatchShare, uint32_t{1},
                           kSpillBatchMost),
                clock);
  const absl::Status written = WriteVictims();
  WatchDisk();
  // Rows that are on disk unchanged can go even if the disk fails.
  bool room = false;
  for (const uint32_t row : scratch_->victims) {
    if (!written.ok() && (rows_.mark(row) & kChanged)) {
      rows_.mark(row) |= kOnDisk;  // perhaps: some of them may be there
      continue;
    }
    changes_.Note(RowLayout::Key(rows_.At(row)));
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
    return context_->room.SetDisk(
        Annotate(context_->cold->CheckRoom(), TableName(context_->options)));
  }
  context_->room.SetDisk(absl::ResourceExhaustedError(absl::StrCat(
      TableName(context_->options), " is full: its ",
      context_->options.memory_bytes, " bytes of memory are taken, and ", used,
      " of its ", limit, " bytes on disk")));
}

// --- Scan ---

absl::Status TablePartition::Scan(uint32_t clock, size_t limit, uint64_t* from,
                                  bool* more, std::vector<int64_t>* keys,
                                  std::vector<float>* values) {
  struct Found {
    uint64_t position;
    int64_t key;
    const float* values;
  };
  std::vector<Found> found;
  for (uint32_t row = 0; row < rows_.row_limit(); ++row) {
    if (rows_.mark(row) == 0) continue;
    const char* const at = rows_.At(row);
    const int64_t key = RowLayout::Key(at);
    const uint64_t position = ColdPosition(key);
    if (position < *from || Expired(at, clock)) continue;
    found.push_back({position, key, RowLayout::Values(at)});
  }
  scratch_->keys.clear();
  scratch_->cold_bytes.clear();
  if (cold_rows_ > 0) {
    SYNCLINE_RETURN_IF_ERROR(
        context_->cold->Scan(id_, *from, limit, ColdStore::Damaged::kFails,
                             &scratch_->keys, &scratch_->cold_bytes));
  }
  // Beyond the last row of a full answer the disk has more to say.
  const bool cut = cold_rows_ > 0 && scratch_->keys.size() == limit;
  const uint64_t known =
      cut ? ColdPosition(scratch_->keys.back()) : kLastPosition;
  for (size_t i = 0; i < scratch_->keys.size(); ++i) {
    const char* const spilled =
        scratch_->cold_bytes.data() + i * context_->layout.spilled_bytes();
    const uint64_t hash = RowPartition::Hash(scratch_->keys[i]);
    if (rows_.Find(scratch_->keys[i], hash) != kNone)
      continue;  // newer in memory
    if (LivesOnDisk(spilled, clock)) {
      found.push_back({ColdPosition(scratch_->keys[i]), scratch_->keys[i],
                       RowLayout::SpilledValues(spilled)});
    }
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.position < b.position;
  });

  size_t taken = 0;
  while (taken < found.size() && taken < limit &&
         found[taken].position <= known) {
    keys->push_back(found[taken].key);
    values->insert(values->end(), found[taken].values,
                   found[taken].values + context_->layout.dim());
    ++taken;
  }
  const uint64_t last = taken == limit ? ColdPosition(keys->back()) : known;
  *more = (cut || taken < found.size()) && last < kLastPosition;
  if (*more) *from = last + 1;
  return absl::OkStatus();
}

void TablePartition::AddSizes(TableStats* stats) const {
  stats->rows_in_memory += rows_.size();
  stats->rows_on_disk += cold_rows_;
  stats->memory_bytes += rows_.memory_bytes() + filter_.memory_bytes() +
                         changes_.memory_bytes() + sizeof(*this);
}

}  // namespace syncline::ps
