#include "server/spill/spill_segment.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace syncline::ps {
namespace {

constexpr size_t kDiskPageBytes = 4096;
constexpr size_t kChunkBytesMost = 64 << 10;
// Reading less is hardly faster, and a fence for each costs memory.
constexpr size_t kPageBytes = 1 << 10;
// 128 KiB of rows are merged with at most eight times as many: a row that is
// written moves some six others, and the lane stands still for a millisecond.
constexpr size_t kLogBytesMost = 128 << 10;
constexpr size_t kLogEntriesLeast = 8;
constexpr size_t kBaseToLog = 8;
// A partition's share of the disk is for so many chunks, logs at least.
constexpr uint64_t kPartsOfShare = 16;
constexpr uint64_t kLastPosition = std::numeric_limits<uint64_t>::max();
// The checksum of a deleted row is changed by this value.
constexpr uint32_t kDeleted = 0x5de1e7ed;

template <typename T>
T Load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

int64_t KeyOf(const char* entry) {
  return Load<int64_t>(entry + SpillLayout::kKeyOffset);
}

// The last of the first `end` tags that is `tag`; `end` if there is none.
size_t FindLast(const std::vector<uint16_t>& tags, size_t end, uint16_t tag) {
  constexpr size_t kBlock = 128;  // compared at once
  size_t i = end;
  while (i >= kBlock) {
    const uint16_t* const block = tags.data() + i - kBlock;
    uint16_t any = 0;
    for (size_t j = 0; j < kBlock; ++j) {
      any = static_cast<uint16_t>(any | (block[j] == tag ? 1 : 0));
    }
    if (any != 0) break;
    i -= kBlock;
  }
  while (i > 0) {
    if (tags[--i] == tag) return i;
  }
  return end;
}

}  // namespace

SpillLayout SpillLayout::For(size_t row_bytes, uint64_t partition_disk_bytes,
                             uint64_t partition_memory_bytes) {
  SpillLayout layout;
  layout.entry_bytes = kRowOffset + row_bytes;
  const uint64_t part = partition_disk_bytes / kPartsOfShare;
  layout.chunk_bytes = std::max<uint64_t>(
      std::clamp<uint64_t>(part, kDiskPageBytes, kChunkBytesMost),
      4 * layout.entry_bytes);
  layout.chunk_bytes = (layout.chunk_bytes + kDiskPageBytes - 1) /
                       kDiskPageBytes * kDiskPageBytes;
  layout.page_entries = std::max<size_t>(1, kPageBytes / layout.entry_bytes);
  layout.chunk_entries = layout.chunk_bytes / layout.entry_bytes /
                         layout.page_entries * layout.page_entries;
  const uint64_t log_bytes = std::min<uint64_t>(part, kLogBytesMost);
  // Half of its memory is for the tags of its logs.
  const uint64_t tags = partition_memory_bytes / 2 / sizeof(uint16_t);
  layout.log_entries = std::max<uint64_t>(
      std::min(log_bytes / layout.entry_bytes, tags), kLogEntriesLeast);
  if (layout.log_entries > layout.chunk_entries) {  // no chunk half used
    layout.log_entries -= layout.log_entries % layout.chunk_entries;
  }
  layout.split_entries = kBaseToLog * layout.log_entries;
  return layout;
}

// Writes entries in order, from new chunks, which it gives back if it is not
// released.
class SpillSegment::BaseWriter {
 public:
  BaseWriter(SpillFile* file, const SpillLayout* layout, int depth)
      : file_(file), layout_(layout), depth_(depth) {}
  ~BaseWriter() { file_->Give(base_.chunks); }
  BaseWriter(const BaseWriter&) = delete;
  BaseWriter& operator=(const BaseWriter&) = delete;

  absl::Status Add(uint64_t position, const char* entry) {
    if (buffer_ == nullptr) {
      buffer_.reset(new char[layout_->chunk_entries * layout_->entry_bytes]);
    }
    if (base_.entries % layout_->page_entries == 0) {
      base_.fences.push_back(static_cast<uint16_t>((position << depth_) >> 48));
    }
    std::memcpy(buffer_.get() + buffered_ * layout_->entry_bytes, entry,
                layout_->entry_bytes);
    ++base_.entries;
    return ++buffered_ == layout_->chunk_entries ? Flush() : absl::OkStatus();
  }

  absl::Status Flush() {
    if (buffered_ == 0) return absl::OkStatus();
    SYNCLINE_ASSIGN_OR_RETURN(const uint32_t chunk, file_->Take());
    base_.chunks.push_back(chunk);
    SYNCLINE_RETURN_IF_ERROR(file_->Write(
        chunk, 0, {buffer_.get(), buffered_ * layout_->entry_bytes}));
    buffered_ = 0;
    return absl::OkStatus();
  }

  Base Release() {
    base_.fences.shrink_to_fit();
    base_.chunks.shrink_to_fit();
    return std::exchange(base_, {});
  }

 private:
  SpillFile* const file_;
  const SpillLayout* const layout_;
  const int depth_;
  Base base_;
  std::unique_ptr<char[]> buffer_;
  size_t buffered_ = 0;
};

SpillSegment::SpillSegment(SpillFile* file, const SpillLayout* layout,
                           uint32_t seed, uint64_t begin, int depth)
    : file_(file), layout_(layout), seed_(seed), begin_(begin), depth_(depth) {}

SpillSegment::~SpillSegment() {
  file_->Give(log_chunks_);
  file_->Give(base_.chunks);
}

size_t SpillSegment::memory_bytes() const {
  return sizeof(*this) + sizeof(Gap) * lost_.gaps.capacity() +
         sizeof(uint16_t) * (tags_.capacity() + base_.fences.capacity() +
                             lost_.tags.capacity()) +
         sizeof(uint32_t) * (log_chunks_.capacity() + base_.chunks.capacity());
}

absl::Status SpillSegment::Lost() const {
  return absl::DataLossError(
      absl::StrCat("spilled rows in ", file_->folder(),
                   ": a row does not read back as it was written"));
}

// --- Entries ---

uint32_t SpillSegment::ChecksumOf(const char* entry) const {
  return ExtendCrc32c(seed_, {entry + SpillLayout::kKeyOffset,
                              layout_->entry_bytes - SpillLayout::kKeyOffset});
}

bool SpillSegment::IsRow(const char* entry) const {
  return Load<uint32_t>(entry) == ChecksumOf(entry);
}

bool SpillSegment::IsDeletion(const char* entry) const {
  return Load<uint32_t>(entry) == (ChecksumOf(entry) ^ kDeleted);
}

void SpillSegment::MakeEntry(int64_t key, const char* row, char* entry) const {
  std::memcpy(entry + SpillLayout::kKeyOffset, &key, sizeof(key));
  std::memcpy(entry + SpillLayout::kRowOffset, row,
              layout_->entry_bytes - SpillLayout::kRowOffset);
  const uint32_t checksum = ChecksumOf(entry);
  std::memcpy(entry, &checksum, sizeof(checksum));
}

void SpillSegment::CopyRow(const char* entry, char* row) const {
  std::memcpy(row, entry + SpillLayout::kRowOffset,
              layout_->entry_bytes - SpillLayout::kRowOffset);
}

void SpillSegment::MakeDeletion(int64_t key, char* entry) const {
  std::memset(entry, 0, layout_->entry_bytes);
  std::memcpy(entry + SpillLayout::kKeyOffset, &key, sizeof(key));
  const uint32_t checksum = ChecksumOf(entry) ^ kDeleted;
  std::memcpy(entry, &checksum, sizeof(checksum));
}

// --- The log ---

absl::Status SpillSegment::Append(const std::vector<uint64_t>& positions,
                                  const std::vector<char>& entries) {
  const size_t bytes = layout_->entry_bytes;
  size_t written = 0;
  while (written < positions.size()) {
    const size_t slot = log_size();
    const size_t chunk = slot / layout_->chunk_entries;
    const size_t offset = slot % layout_->chunk_entries;
    if (chunk == log_chunks_.size()) {
      SYNCLINE_ASSIGN_OR_RETURN(const uint32_t taken, file_->Take());
      log_chunks_.push_back(taken);
    }
    const size_t count =
        std::min(positions.size() - written, layout_->chunk_entries - offset);
    SYNCLINE_RETURN_IF_ERROR(
        file_->Write(log_chunks_[chunk], offset * bytes,
                     {entries.data() + written * bytes, count * bytes}));
    tags_.reserve(layout_->log_entries);
    for (size_t i = 0; i < count; ++i) {
      tags_.push_back(Tag(positions[written + i]));
    }
    written += count;
  }
  return absl::OkStatus();
}

absl::Status SpillSegment::GetFromLog(uint64_t position, bool may_wait,
                                      char* page, char* row, Answer* answer,
                                      bool* decided) const {
  *decided = true;
  for (size_t end = log_size();;) {
    const size_t slot = FindLast(tags_, end, Tag(position));
    if (slot == end) break;
    SYNCLINE_RETURN_IF_ERROR(
        ReadEntries(log_chunks_, slot, 1, may_wait, page, &answer->pending));
    if (answer->pending) return absl::OkStatus();
    const bool deleted = IsDeletion(page);
    if (!deleted && !IsRow(page)) return Lost();
    if (ColdPosition(KeyOf(page)) == position) {
      answer->found = deleted ? ColdFound::kNo : ColdFound::kYes;
      CopyRow(page, row);
      return absl::OkStatus();
    }
    end = slot;
  }
  *decided = false;
  return absl::OkStatus();
}

// The newest entries only: of two in one place the later, and none that is
// older than a damaged one of its tag, which may have been a later one.
std::vector<SpillSegment::LogEntry> SpillSegment::SortLog(
    const std::vector<char>& log, std::vector<uint16_t>* lost_tags) const {
  std::vector<LogEntry> sorted;
  std::vector<Damaged> damaged;
  for (uint32_t slot = 0; slot < log_size(); ++slot) {
    const char* const entry = log.data() + slot * layout_->entry_bytes;
    if (IsRow(entry) || IsDeletion(entry)) {
      sorted.push_back({ColdPosition(KeyOf(entry)), slot});
      continue;
    }
    damaged.push_back({tags_[slot], slot});
    if (std::find(lost_tags->begin(), lost_tags->end(), tags_[slot]) ==
        lost_tags->end()) {
      lost_tags->push_back(tags_[slot]);
    }
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const LogEntry& a, const LogEntry& b) {
              return a.position != b.position ? a.position < b.position
                                              : a.slot > b.slot;
            });
  const auto last = std::unique(sorted.begin(), sorted.end(),
                                [](const LogEntry& a, const LogEntry& b) {
                                  return a.position == b.position;
                                });
  sorted.erase(last, sorted.end());
  const auto outdated = [&](const LogEntry& entry) {
    return std::any_of(
        damaged.begin(), damaged.end(), [&](const Damaged& lost) {
          return lost.tag == Tag(entry.position) && lost.slot > entry.slot;
        });
  };
  sorted.erase(std::remove_if(sorted.begin(), sorted.end(), outdated),
               sorted.end());
  return sorted;
}

// --- The base ---

absl::Status SpillSegment::ReadEntries(const std::vector<uint32_t>& chunks,
                                       size_t first, size_t count,
                                       bool may_wait, char* out,
                                       bool* pending) const {
  const uint32_t chunk = chunks[first / layout_->chunk_entries];
  const size_t offset = first % layout_->chunk_entries * layout_->entry_bytes;
  const size_t bytes = count * layout_->entry_bytes;
  *pending = false;
  if (may_wait) return file_->Read(chunk, offset, bytes, out);
  bool there = false;
  SYNCLINE_RETURN_IF_ERROR(file_->TryRead(chunk, offset, bytes, out, &there));
  *pending = !there;
  return absl::OkStatus();
}

absl::Status SpillSegment::GetFromBase(uint64_t position, bool may_wait,
                                       char* page, char* row,
                                       Answer* answer) const {
  const auto [begin, end] = PagesOf(position);
  bool readable = true;
  for (size_t at = begin; at < end; ++at) {
    const size_t first = at * layout_->page_entries;
    const size_t count = std::min(layout_->page_entries, base_.entries - first);
    SYNCLINE_RETURN_IF_ERROR(ReadEntries(base_.chunks, first, count, may_wait,
                                         page, &answer->pending));
    if (answer->pending) return absl::OkStatus();
    for (size_t i = 0; i < count; ++i) {
      const char* const entry = page + i * layout_->entry_bytes;
      if (ColdPosition(KeyOf(entry)) != position) continue;
      if (!IsRow(entry)) return Lost();
      answer->found = ColdFound::kYes;
      CopyRow(entry, row);
      return absl::OkStatus();
    }
    for (size_t i = 0; i < count && readable; ++i) {
      readable = IsRow(page + i * layout_->entry_bytes);
    }
  }
  // Absent, unless it is one whose key cannot be read, or could not be when
  // the rows were merged.
  if (!readable || lost_.Has(position)) return Lost();
  answer->found = ColdFound::kNo;
  return absl::OkStatus();
}

bool SpillSegment::Losses::Has(uint64_t position) const {
  return std::find(tags.begin(), tags.end(), Tag(position)) != tags.end() ||
         std::any_of(gaps.begin(), gaps.end(), [&](const Gap& gap) {
           return gap.from < position && position < gap.to;
         });
}

// Of equal fences the position may be behind any, or before the first.
std::pair<size_t, size_t> SpillSegment::PagesOf(uint64_t position) const {
  const std::vector<uint16_t>& fences = base_.fences;
  const auto [first, last] =
      std::equal_range(fences.begin(), fences.end(), Fence(position));
  const size_t begin = static_cast<size_t>(first - fences.begin());
  const size_t end = static_cast<size_t>(last - fences.begin());
  return {begin > 0 ? begin - 1 : 0, end};
}

SpillSegment::Answer SpillSegment::Get(uint64_t position, bool may_wait,
                                       char* page, char* row) const {
  Answer answer;
  bool decided = false;
  answer.status = GetFromLog(position, may_wait, page, row, &answer, &decided);
  if (!decided) {
    answer.status = GetFromBase(position, may_wait, page, row, &answer);
  }
  if (!answer.status.ok()) answer.found = ColdFound::kUnreadable;
  return answer;
}

absl::Status SpillSegment::Walk(size_t first_page, Losses* losses,
                                const OnEntry& on_entry) const {
  const size_t bytes = layout_->entry_bytes;
  std::vector<char> log(log_size() * bytes);
  for (size_t first = 0; first < log_size(); first += layout_->chunk_entries) {
    bool pending = false;
    SYNCLINE_RETURN_IF_ERROR(
        ReadEntries(log_chunks_, first,
                    std::min(layout_->chunk_entries, log_size() - first),
                    /*may_wait=*/true, log.data() + first * bytes, &pending));
  }
  std::vector<uint16_t> lost_tags;
  const std::vector<LogEntry> sorted = SortLog(log, &lost_tags);
  losses->tags.insert(losses->tags.end(), lost_tags.begin(), lost_tags.end());
  std::vector<Gap>* const gaps = &losses->gaps;
  auto next = sorted.begin();
  bool more = true;
  // Visits the log's entries before `position`, or all that are left.
  const auto log_before = [&](uint64_t position, bool all) -> absl::Status {
    for (; more && next != sorted.end() && (all || next->position < position);
         ++next) {
      const char* const entry = log.data() + next->slot * bytes;
      if (IsDeletion(entry)) continue;
      SYNCLINE_RETURN_IF_ERROR(on_entry(next->position, entry, &more));
    }
    return absl::OkStatus();
  };

  std::vector<char> chunk(layout_->chunk_entries * bytes);
  uint64_t previous = begin_;
  bool in_gap = false;
  size_t count = 0;
  for (size_t first = first_page * layout_->page_entries;
       more && first < base_.entries; first += count) {
    count = std::min(base_.entries - first,
                     layout_->chunk_entries - first % layout_->chunk_entries);
    bool pending = false;
    SYNCLINE_RETURN_IF_ERROR(ReadEntries(base_.chunks, first, count,
                                         /*may_wait=*/true, chunk.data(),
                                         &pending));
    for (size_t i = 0; more && i < count; ++i) {
      const char* const entry = chunk.data() + i * bytes;
      if (!IsRow(entry)) {
        if (!in_gap) gaps->push_back({previous, kLastPosition});
        in_gap = true;
        continue;
      }
      previous = ColdPosition(KeyOf(entry));
      if (in_gap) gaps->back().to = previous;
      in_gap = false;
      SYNCLINE_RETURN_IF_ERROR(log_before(previous, /*all=*/false));
      if (!more) break;
      // One that was replaced or deleted: the log's comes with the next.
      if (next != sorted.end() && next->position == previous) continue;
      // One that the log may have replaced or deleted, where it is damaged.
      if (std::find(lost_tags.begin(), lost_tags.end(), Tag(previous)) !=
          lost_tags.end()) {
        continue;
      }
      SYNCLINE_RETURN_IF_ERROR(on_entry(previous, entry, &more));
    }
  }
  return log_before(0, /*all=*/true);
}

absl::Status SpillSegment::Merge(std::unique_ptr<SpillSegment>* next) {
  const int depth = depth_ + (next != nullptr ? 1 : 0);
  const uint64_t middle = begin_ | uint64_t{1} << (63 - depth_);
  BaseWriter lower(file_, layout_, depth);
  BaseWriter upper(file_, layout_, depth);
  Losses losses = lost_;
  SYNCLINE_RETURN_IF_ERROR(
      Walk(0, &losses, [&](uint64_t position, const char* entry, bool*) {
        const bool up = next != nullptr && position >= middle;
        return (up ? upper : lower).Add(position, entry);
      }));
  SYNCLINE_RETURN_IF_ERROR(lower.Flush());
  SYNCLINE_RETURN_IF_ERROR(upper.Flush());
  file_->Give(base_.chunks);
  base_ = lower.Release();
  depth_ = depth;
  tags_.clear();
  lost_ = {.gaps = {}, .tags = losses.tags};
  if (next != nullptr) {
    *next =
        std::make_unique<SpillSegment>(file_, layout_, seed_, middle, depth);
    (*next)->base_ = upper.Release();
    (*next)->lost_.tags = losses.tags;
  }
  for (const Gap& gap : losses.gaps) {
    if (next != nullptr && gap.to > middle) (*next)->lost_.gaps.push_back(gap);
    if (next == nullptr || gap.from < middle) lost_.gaps.push_back(gap);
  }
  return absl::OkStatus();
}

absl::Status SpillSegment::Scan(uint64_t from, size_t* limit,
                                std::vector<int64_t>* keys,
                                std::vector<char>* rows) const {
  const size_t first_page = from > begin_ ? PagesOf(from).first : 0;
  Losses losses = lost_;
  SYNCLINE_RETURN_IF_ERROR(
      Walk(first_page, &losses,
           [&](uint64_t position, const char* entry, bool* more) {
             if (position < from) return absl::OkStatus();
             *more = *limit > 0;
             if (!*more) return absl::OkStatus();
             --*limit;
             keys->push_back(KeyOf(entry));
             rows->insert(rows->end(), entry + SpillLayout::kRowOffset,
                          entry + layout_->entry_bytes);
             return absl::OkStatus();
           }));
  if (!losses.tags.empty()) return Lost();
  for (const Gap& gap : losses.gaps) {
    if (gap.to > from) return Lost();
  }
  return absl::OkStatus();
}

}  // namespace syncline::ps
