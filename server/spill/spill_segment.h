#ifndef SYNCLINE_SERVER_SPILL_SPILL_SEGMENT_H_
#define SYNCLINE_SERVER_SPILL_SPILL_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/spill/spill_file.h"
#include "server/tables/cold_store.h"

namespace syncline::ps {

// Sizes that all segments of a store share.
struct SpillLayout {
  // A row on disk: checksum uint32 | key int64 | row. The checksum is of what
  // follows it, on from the segment's seed, so that another partition's row, or
  // another table's, is none; its bits are flipped for the mark of a deleted
  // row. The row's position is that of its key.
  static constexpr size_t kKeyOffset = sizeof(uint32_t);
  static constexpr size_t kRowOffset = kKeyOffset + sizeof(int64_t);

  // Sizes for rows of `row_bytes` where each partition may expect so much of
  // the disk, and of memory.
  static SpillLayout For(size_t row_bytes, uint64_t partition_disk_bytes,
                         uint64_t partition_memory_bytes);

  // Bytes of disk that one merge needs before it frees any: in whole chunks,
  // two bases.
  uint64_t merge_bytes() const {
    return ((split_entries + log_entries) / chunk_entries + 2) * chunk_bytes;
  }

  size_t entry_bytes = 0;
  size_t chunk_bytes = 0;
  size_t chunk_entries = 0;  // whole pages
  size_t page_entries = 0;   // read at a time
  size_t log_entries = 0;
  size_t split_entries = 0;  // a segment with so many becomes two
};

// The spilled rows of one range of positions in one partition:
//
//   log    what was put or deleted since the last merge, as it came; 16 bits of
//          each row's position are in memory, newest last
//   base   what was there before, by position, in pages of a few rows; 16 bits
//          of each page's first position are in memory
//
// A row is looked for in the log, and then read with the one page that can have
// it: one read, of what the system most likely has in memory. A full log is
// merged with the base into a new base, all of it in sequence.
// Thread-compatible.
class SpillSegment {
 public:
  // Has the positions whose first `depth` bits are those of `begin`. `seed`: of
  // checksums, the partition's own.
  SpillSegment(SpillFile* file, const SpillLayout* layout, uint32_t seed,
               uint64_t begin, int depth);
  // Frees the segment's part of the file.
  ~SpillSegment();
  SpillSegment(const SpillSegment&) = delete;
  SpillSegment& operator=(const SpillSegment&) = delete;

  uint64_t begin() const { return begin_; }
  // With all of the log; rows that were replaced or deleted count.
  size_t entries_most() const { return base_.entries + log_size(); }
  size_t memory_bytes() const;

  // Appends entries to the log, made by MakeEntry. REQUIRES: they fit.
  size_t log_room() const { return layout_->log_entries - log_size(); }
  absl::Status Append(const std::vector<uint64_t>& positions,
                      const std::vector<char>& entries);
  void MakeEntry(int64_t key, const char* row, char* entry) const;
  void MakeDeletion(int64_t key, char* entry) const;

  struct Answer {
    ColdFound found = ColdFound::kNo;
    // Nothing is known yet: it is being fetched from the disk.
    bool pending = false;
    absl::Status status;  // OK unless it is kUnreadable
  };
  // Looks for a row. Only with `may_wait` it waits for the disk where the
  // system does not have it in memory. `page` has room for a page.
  Answer Get(uint64_t position, bool may_wait, char* page, char* row) const;

  // Empties the log into a new base; with `next` into two, of which *next gets
  // the upper half of the positions. After an error all is as it was.
  absl::Status Merge(std::unique_ptr<SpillSegment>* next);

  // Appends rows with positions of at least `from`, in order, until *limit is
  // used up. DataLoss: there is a row among them, or behind the last of them,
  // that cannot be read; the others are there all the same.
  absl::Status Scan(uint64_t from, size_t* limit, std::vector<int64_t>* keys,
                    std::vector<char>* rows) const;

  // The bits of a position by which the log is searched. Neither the slot (the
  // lowest bits of a position) nor the fence contains them.
  static uint16_t Tag(uint64_t position) {
    return static_cast<uint16_t>(position >> 16);
  }

 private:
  struct Base {
    size_t entries = 0;
    std::vector<uint32_t> chunks;
    std::vector<uint16_t> fences;  // of each page's first entry
  };
  // The newest entry of each key in the log, by position.
  struct LogEntry {
    uint64_t position;
    uint32_t slot;
  };
  class BaseWriter;
  // Between two rows, where some were that could not be read.
  struct Gap {
    uint64_t from;
    uint64_t to;
  };
  // An entry of the log that cannot be read: of its key the tag is known. What
  // is older than it and has its tag may be an older version of its row.
  struct Damaged {
    uint16_t tag;
    uint32_t slot;
  };
  // Rows that were lost: a search for a key there fails.
  struct Losses {
    bool Has(uint64_t position) const;

    std::vector<Gap> gaps;       // of the base
    std::vector<uint16_t> tags;  // of the log
  };
  using OnEntry = std::function<absl::Status(uint64_t position,
                                             const char* entry, bool* more)>;

  size_t log_size() const { return tags_.size(); }
  uint16_t Fence(uint64_t position) const {
    return static_cast<uint16_t>((position << depth_) >> 48);
  }
  // Entries that lie in one chunk.
  absl::Status ReadEntries(const std::vector<uint32_t>& chunks, size_t first,
                           size_t count, bool may_wait, char* out,
                           bool* pending) const;
  // *decided: the log knows the row, if only as deleted.
  absl::Status GetFromLog(uint64_t position, bool may_wait, char* page,
                          char* row, Answer* answer, bool* decided) const;
  absl::Status GetFromBase(uint64_t position, bool may_wait, char* page,
                           char* row, Answer* answer) const;
  // The pages that can have it: [first, second).
  std::pair<size_t, size_t> PagesOf(uint64_t position) const;
  void CopyRow(const char* entry, char* row) const;
  std::vector<LogEntry> SortLog(const std::vector<char>& log,
                                std::vector<uint16_t>* lost_tags) const;
  // All entries in order from a page on, without deleted rows and those that
  // cannot be read: these are added to *losses.
  absl::Status Walk(size_t first_page, Losses* losses,
                    const OnEntry& on_entry) const;
  absl::Status Lost() const;
  uint32_t ChecksumOf(const char* entry) const;
  bool IsRow(const char* entry) const;
  bool IsDeletion(const char* entry) const;

  SpillFile* const file_;
  const SpillLayout* const layout_;
  const uint32_t seed_;
  const uint64_t begin_;
  int depth_;
  std::vector<uint32_t> log_chunks_;
  std::vector<uint16_t> tags_;
  Base base_;
  Losses lost_;  // in merges
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SPILL_SPILL_SEGMENT_H_
