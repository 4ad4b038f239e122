#include "server/spill/row_spill.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "server/spill/spill_file.h"
#include "server/spill/spill_segment.h"

namespace syncline::ps {
namespace {

// A part of the disk's bytes is for rewriting: a merge writes a new base before
// it gives back the old one.
uint64_t RowsOnDiskMost(uint64_t disk_bytes) {
  return disk_bytes - disk_bytes / 8;
}

// The segments of one partition, by position.
using Segments = std::vector<std::unique_ptr<SpillSegment>>;

size_t SegmentOf(const Segments& segments, uint64_t position) {
  const auto behind = std::upper_bound(
      segments.begin(), segments.end(), position,
      [](uint64_t p, const auto& segment) { return p < segment->begin(); });
  return static_cast<size_t>(behind - segments.begin()) - 1;
}

class SegmentStore final : public ColdStore {
 public:
  SegmentStore(const RowSpill::Options& options, const SpillLayout& layout,
               std::unique_ptr<SpillFile> file)
      : options_(options),
        layout_(layout),
        file_(std::move(file)),
        partitions_(options.partitions) {}

  ~SegmentStore() override {
    partitions_.clear();
    RemoveTree(options_.folder).IgnoreError();
  }

  absl::Status Put(absl::Span<const ColdKey> keys, const char* rows) override {
    if (disk_bytes() > disk_limit_bytes()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "spilled rows in ", options_.folder, " take ", disk_bytes(), " of ",
          options_.disk_bytes, " bytes; the rest is needed to rewrite them"));
    }
    size_t written = 0;
    return Log(keys, rows, &written);
  }

  absl::Status Delete(absl::Span<const ColdKey> keys, size_t* gone) override {
    return Log(keys, nullptr, gone);
  }

  absl::Status Get(absl::Span<const ColdKey> keys, char* rows,
                   ColdFound* found) override {
    std::vector<char> page(layout_.page_entries * layout_.entry_bytes);
    std::vector<size_t> waiting;
    absl::Status status;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!GetOne(keys[i], /*may_wait=*/false, page.data(),
                  rows + i * options_.row_bytes, &found[i], &status)) {
        waiting.push_back(i);
      }
    }
    // By now the disk is about to fetch all of them.
    for (const size_t i : waiting) {
      GetOne(keys[i], /*may_wait=*/true, page.data(),
             rows + i * options_.row_bytes, &found[i], &status);
    }
    return status;
  }

  absl::Status Scan(uint32_t partition, uint64_t from, size_t limit,
                    Damaged damaged, std::vector<int64_t>* keys,
                    std::vector<char>* rows) override {
    const Segments& segments = partitions_[partition];
    if (segments.empty()) return absl::OkStatus();
    for (size_t i = SegmentOf(segments, from); i < segments.size() && limit > 0;
         ++i) {
      const absl::Status scanned = segments[i]->Scan(from, &limit, keys, rows);
      // The readable rows were appended, and *limit is what they left.
      if (damaged == Damaged::kLeftOut && absl::IsDataLoss(scanned)) continue;
      SYNCLINE_RETURN_IF_ERROR(scanned);
    }
    return absl::OkStatus();
  }

  absl::Status CheckRoom() override {
    SYNCLINE_RETURN_IF_ERROR(CheckMemory(options_.memory_bytes / 16));
    return file_->CheckRoom();
  }

  uint64_t disk_bytes() const override { return file_->bytes_taken(); }
  uint64_t disk_limit_bytes() const override {
    return RowsOnDiskMost(options_.disk_bytes);
  }

 private:
  struct Change {
    uint32_t partition;
    uint64_t position;
    size_t index;
  };

  bool GetOne(ColdKey key, bool may_wait, char* page, char* row,
              ColdFound* found, absl::Status* status) {
    const Segments& segments = partitions_[key.partition];
    *found = ColdFound::kNo;
    if (segments.empty()) return true;
    const uint64_t position = ColdPosition(key.key);
    SpillSegment::Answer answer = segments[SegmentOf(segments, position)]->Get(
        position, may_wait, page, row);
    if (answer.pending) return false;
    *found = answer.found;
    status->Update(std::move(answer.status));
    return true;
  }

  // Rows, or null: deletions; *written of them have come into the log.
  absl::Status Log(absl::Span<const ColdKey> keys, const char* rows,
                   size_t* written) {
    *written = 0;
    std::vector<Change> changes;
    changes.reserve(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      changes.push_back({keys[i].partition, ColdPosition(keys[i].key), i});
    }
    std::sort(changes.begin(), changes.end(),
              [](const Change& a, const Change& b) {
                return a.partition != b.partition ? a.partition < b.partition
                                                  : a.position < b.position;
              });
    std::vector<uint64_t> positions;
    std::vector<char> entries;
    for (size_t i = 0; i < changes.size(); i += positions.size()) {
      SpillSegment* segment = nullptr;
      SYNCLINE_RETURN_IF_ERROR(
          SegmentWithRoom(changes[i].partition, changes[i].position,
                          /*grows=*/rows != nullptr, &segment));
      const Segments& segments = partitions_[changes[i].partition];
      positions.clear();
      size_t end = i;
      for (; end < changes.size() && positions.size() < segment->log_room() &&
             changes[end].partition == changes[i].partition &&
             segments[SegmentOf(segments, changes[end].position)].get() ==
                 segment;
           ++end) {
        positions.push_back(changes[end].position);
      }
      entries.resize(positions.size() * layout_.entry_bytes);
      for (size_t j = i; j < end; ++j) {
        const size_t index = changes[j].index;
        char* const entry = entries.data() + (j - i) * layout_.entry_bytes;
        if (rows == nullptr) {
          segment->MakeDeletion(keys[index].key, entry);
        } else {
          segment->MakeEntry(keys[index].key, rows + index * options_.row_bytes,
                             entry);
        }
      }
      const size_t room = segment->log_room();
      const absl::Status appended =
          Counted(segment, [&] { return segment->Append(positions, entries); });
      *written += room - segment->log_room();
      SYNCLINE_RETURN_IF_ERROR(appended);
    }
    return absl::OkStatus();
  }

  // Deletions are let through without room in memory: they make some.
  absl::Status SegmentWithRoom(uint32_t partition, uint64_t position,
                               bool grows, SpillSegment** segment) {
    Segments& segments = partitions_[partition];
    if (segments.empty()) {
      SYNCLINE_RETURN_IF_ERROR(CheckMemory(SegmentMemory()));
      segments.push_back(std::make_unique<SpillSegment>(
          file_.get(), &layout_, ChecksumSeed(partition), 0, 0));
      memory_.fetch_add(segments[0]->memory_bytes(), std::memory_order_relaxed);
    }
    size_t i = SegmentOf(segments, position);
    if (segments[i]->log_room() == 0) {
      if (grows) SYNCLINE_RETURN_IF_ERROR(CheckMemory(0));
      SYNCLINE_RETURN_IF_ERROR(Merge(&segments, i));
      i = SegmentOf(segments, position);
    }
    *segment = segments[i].get();
    return absl::OkStatus();
  }

  absl::Status Merge(Segments* segments, size_t i) {
    SpillSegment* const segment = (*segments)[i].get();
    // Half of the memory is for fences. With none left for more segments they
    // grow, and merging gets slower.
    const bool splits =
        segment->entries_most() > layout_.split_entries &&
        CheckMemory(SegmentMemory() + options_.memory_bytes / 2).ok();
    std::unique_ptr<SpillSegment> next;
    SYNCLINE_RETURN_IF_ERROR(Counted(
        segment, [&] { return segment->Merge(splits ? &next : nullptr); }));
    if (next == nullptr) return absl::OkStatus();
    memory_.fetch_add(next->memory_bytes(), std::memory_order_relaxed);
    segments->insert(segments->begin() + static_cast<ptrdiff_t>(i) + 1,
                     std::move(next));
    return absl::OkStatus();
  }

  // Runs `change` and counts what it does to the segment's memory.
  template <typename Run>
  absl::Status Counted(SpillSegment* segment, Run change) {
    const size_t before = segment->memory_bytes();
    absl::Status status = change();
    memory_.fetch_add(segment->memory_bytes() - before,
                      std::memory_order_relaxed);
    return status;
  }

  uint32_t ChecksumSeed(uint32_t partition) const {
    return static_cast<uint32_t>(SeedFor(seed_, partition));
  }

  uint64_t SegmentMemory() const {
    return sizeof(SpillSegment) + sizeof(Segments::value_type) +
           layout_.log_entries * sizeof(uint16_t) +
           layout_.split_entries / layout_.page_entries * sizeof(uint16_t);
  }

  absl::Status CheckMemory(uint64_t more) const {
    const uint64_t used = memory_.load(std::memory_order_relaxed);
    if (used + more <= options_.memory_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "spilled rows in ", options_.folder, ": to find them takes ", used,
        " bytes of memory, allowed are ", options_.memory_bytes));
  }

  const RowSpill::Options options_;
  const SpillLayout layout_;
  const uint64_t seed_ = EntropySeed();  // this store's alone
  const std::unique_ptr<SpillFile> file_;
  std::atomic<uint64_t> memory_{0};
  std::vector<Segments> partitions_;  // each its lane's
};

}  // namespace

uint64_t RowSpill::MemoryFor(uint64_t table_memory_bytes, uint64_t disk_bytes) {
  // Ratio of disk to memory for rows of a few values; wider rows need less
  // memory.
  constexpr uint64_t kDiskPerMemory = 160;
  constexpr uint64_t kShare = 10;
  return std::max(kMemoryMin, std::min(table_memory_bytes / kShare,
                                       disk_bytes / kDiskPerMemory));
}

absl::StatusOr<std::unique_ptr<ColdStore>> RowSpill::Open(
    const Options& options) {
  if (options.memory_bytes < kMemoryMin || options.disk_bytes < kDiskMin) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spilled rows in ", options.folder, ": ", options.memory_bytes,
        " bytes of memory and ", options.disk_bytes,
        " on disk, expected at least ", kMemoryMin, " and ", kDiskMin));
  }
  SYNCLINE_RETURN_IF_ERROR(RemoveTree(options.folder));
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(options.folder));
  const SpillLayout layout = SpillLayout::For(
      options.row_bytes, options.disk_bytes / options.partitions,
      options.memory_bytes / options.partitions);
  // Every lane may be merging, and needs the new base beside the old.
  const uint64_t reserve = std::min<uint64_t>(
      options.lanes * layout.merge_bytes(), options.disk_bytes / 16);
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<SpillFile> file,
      SpillFile::Create(options.folder, layout.chunk_bytes, options.disk_bytes,
                        reserve));
  return std::make_unique<SegmentStore>(options, layout, std::move(file));
}

// --- The folder ---

namespace {
constexpr char kFolderPrefix[] = "syncline-spill-";
}  // namespace

absl::StatusOr<std::unique_ptr<SpillDirectory>> SpillDirectory::Open(
    const std::string& root) {
  LockedFolder::RemoveLeftovers(root, kFolderPrefix);
  SYNCLINE_ASSIGN_OR_RETURN(auto folder,
                            LockedFolder::OpenFirst(root, kFolderPrefix));
  return absl::WrapUnique(new SpillDirectory(std::move(folder)));
}

std::string SpillDirectory::PathFor(absl::string_view job, uint32_t shard,
                                    uint32_t table) const {
  return absl::StrCat(path(), "/", job, ".shard-", shard, ".table-", table);
}

}  // namespace syncline::ps
