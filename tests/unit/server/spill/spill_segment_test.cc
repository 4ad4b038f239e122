// Goal: a segment is a map from key to row, ordered by position, through any
// puts, deletions, merges and splits; a merge that finds no room changes
// nothing; a damaged row is noticed and costs no other. Method: seeded runs
// against std::map, small sizes; bytes flipped in the file.

#include "server/spill/spill_segment.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ps {
namespace {

constexpr size_t kRowBytes = 20;

// Several pages a chunk, several chunks a log.
SpillLayout Small() {
  SpillLayout layout;
  layout.entry_bytes = SpillLayout::kRowOffset + kRowBytes;
  layout.chunk_bytes = 4096;
  layout.page_entries = 4;
  layout.chunk_entries = 24;
  layout.log_entries = 60;
  layout.split_entries = 300;
  return layout;
}

constexpr uint32_t kSeed = 77;

std::string RowOf(int64_t key, int version) {
  Random random(SeedFor(static_cast<uint64_t>(key), version));
  std::string row(kRowBytes, ' ');
  for (char& byte : row) byte = static_cast<char>(random.Next());
  return row;
}

// Segments that split as their store would split them, and what is in them.
class Segments {
 public:
  Segments(const std::string& folder, uint64_t bytes_max)
      : file_(*SpillFile::Create(folder, layout_.chunk_bytes, bytes_max)) {
    segments_.push_back(
        std::make_unique<SpillSegment>(file_.get(), &layout_, kSeed, 0, 0));
  }

  // A row; empty: it is deleted.
  absl::Status Put(int64_t key, const std::string& row) {
    const uint64_t position = ColdPosition(key);
    SpillSegment* segment = Of(position);
    if (segment->log_room() == 0) {
      const absl::Status merged = Merge(segment);
      if (!merged.ok()) return merged;
      segment = Of(position);
    }
    std::vector<char> entry(layout_.entry_bytes);
    if (row.empty()) {
      segment->MakeDeletion(key, entry.data());
    } else {
      segment->MakeEntry(key, row.data(), entry.data());
    }
    const absl::Status appended = segment->Append({position}, entry);
    if (!appended.ok()) return appended;
    if (row.empty()) {
      model_.erase(position);
    } else {
      model_[position] = row;
    }
    return absl::OkStatus();
  }

  SpillSegment::Answer Get(int64_t key, std::string* row) {
    row->assign(kRowBytes, ' ');
    std::vector<char> page(layout_.entry_bytes * layout_.page_entries);
    const uint64_t position = ColdPosition(key);
    return Of(position)->Get(position, /*may_wait=*/true, page.data(),
                             row->data());
  }

  void ExpectLikeTheModel(int64_t keys) {
    std::string row;
    for (int64_t key = 0; key < keys; ++key) {
      const SpillSegment::Answer answer = Get(key, &row);
      ASSERT_OK(answer.status);
      ASSERT_FALSE(answer.pending);
      const auto expected = model_.find(ColdPosition(key));
      ASSERT_EQ(answer.found == ColdFound::kYes, expected != model_.end());
      if (expected != model_.end()) {
        ASSERT_EQ(row, expected->second);
      }
    }
  }

  void ExpectScanned(uint64_t from, size_t limit) {
    std::vector<int64_t> keys;
    std::vector<char> rows;
    size_t left = limit;
    for (const auto& segment : segments_) {
      ASSERT_OK(segment->Scan(from, &left, &keys, &rows));
    }
    auto expected = model_.lower_bound(from);
    for (size_t i = 0; i < keys.size(); ++i, ++expected) {
      ASSERT_NE(expected, model_.end());
      ASSERT_EQ(ColdPosition(keys[i]), expected->first);
      ASSERT_EQ(std::string(&rows[i * kRowBytes], kRowBytes), expected->second);
    }
    EXPECT_TRUE(keys.size() == limit || expected == model_.end());
  }

  absl::Status Merge(SpillSegment* segment) {
    std::unique_ptr<SpillSegment> next;
    const bool splits = segment->entries_most() > layout_.split_entries;
    const absl::Status merged = segment->Merge(splits ? &next : nullptr);
    if (next != nullptr) segments_.push_back(std::move(next));
    std::sort(
        segments_.begin(), segments_.end(),
        [](const auto& a, const auto& b) { return a->begin() < b->begin(); });
    return merged;
  }

  SpillSegment* Of(uint64_t position) {
    SpillSegment* of = nullptr;
    for (const auto& segment : segments_) {
      if (segment->begin() <= position) of = segment.get();
    }
    return of;
  }
  size_t size() const { return segments_.size(); }
  SpillFile& file() { return *file_; }
  const SpillLayout& layout() const { return layout_; }

 private:
  const SpillLayout layout_ = Small();
  const std::unique_ptr<SpillFile> file_;
  std::vector<std::unique_ptr<SpillSegment>> segments_;
  std::map<uint64_t, std::string> model_;  // by position
};

TEST(SpillSegmentTest, IsAMap) {
  constexpr int64_t kKeys = 1500;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    const TempDir temp;
    Segments segments(temp.path(), 16 << 20);
    Random random(seed);
    for (int i = 0; i < 6000; ++i) {
      const int64_t key = static_cast<int64_t>(random.Below(kKeys));
      ASSERT_OK(segments.Put(
          key, random.Below(5) == 0 ? std::string() : RowOf(key, i)));
      if (i % 1999 == 0) {
        segments.ExpectLikeTheModel(kKeys);
        segments.ExpectScanned(random.Next(), 1 + random.Below(50));
      }
    }
    EXPECT_GT(segments.size(), 3u);
    segments.ExpectLikeTheModel(kKeys);
    segments.ExpectScanned(0, 10);
    segments.ExpectScanned(0, 100000);
  }
}

// A partition may be one slot, whose keys share the hash's upper bits: what the
// log is searched by must tell them apart all the same.
TEST(SpillSegmentTest, KeysOfOneSlotAreToldApart) {
  const TempDir temp;
  Segments segments(temp.path(), 16 << 20);
  std::vector<int64_t> keys;
  for (int64_t key = 0; keys.size() < 400; ++key) {
    if ((ColdPosition(key) >> 8 & 0xff) == 7) keys.push_back(key);
  }
  for (const int64_t key : keys) ASSERT_OK(segments.Put(key, RowOf(key, 0)));
  std::set<uint16_t> tags;
  for (const int64_t key : keys)
    tags.insert(SpillSegment::Tag(ColdPosition(key)));
  EXPECT_GT(tags.size(), keys.size() * 9 / 10);
}

TEST(SpillSegmentTest, AMergeWithoutRoomChangesNothing) {
  const TempDir temp;
  Segments segments(temp.path(), 40 * 4096);
  absl::Status status;
  int64_t rows = 0;
  while (status.ok()) {
    ASSERT_LT(rows, 5000);
    status = segments.Put(rows, RowOf(rows, 0));
    if (status.ok()) ++rows;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(rows, 200);
  segments.ExpectLikeTheModel(rows + 10);
  segments.ExpectScanned(0, 100000);
}

// Everything is given back: a store that shrinks has room again.
TEST(SpillSegmentTest, DeletedRowsTakeNoRoomAfterAMerge) {
  const TempDir temp;
  Segments segments(temp.path(), 16 << 20);
  for (int64_t key = 0; key < 1000; ++key) {
    ASSERT_OK(segments.Put(key, RowOf(key, 0)));
  }
  const uint64_t full = segments.file().bytes_taken();
  for (int64_t key = 0; key < 1000; ++key) ASSERT_OK(segments.Put(key, ""));
  for (int i = 0; i < 16; ++i) {
    ASSERT_OK(segments.Merge(segments.Of(uint64_t(i) << 60)));
  }
  EXPECT_LT(segments.file().bytes_taken(), full / 2);
  segments.ExpectScanned(0, 10);
}

TEST(SpillSegmentTest, ADamagedRowCostsNoOther) {
  constexpr int64_t kRows = 250;
  const SpillLayout layout = Small();
  int noticed = 0;
  // Each byte of a row and a few whole rows of zeros, in the base.
  for (size_t at = 0; at < 2 * layout.entry_bytes; at += 3) {
    SCOPED_TRACE(absl::StrCat("at=", at));
    const TempDir temp;
    Segments segments(temp.path(), 1 << 20);
    for (int64_t key = 0; key < kRows; ++key) {
      ASSERT_OK(segments.Put(key, RowOf(key, 0)));
    }
    ASSERT_OK(segments.Merge(segments.Of(0)));
    std::fstream file(temp.File("rows"),
                      std::ios::in | std::ios::out | std::ios::binary);
    // Wherever the base is: the same place in every chunk.
    for (uint64_t chunk = 0; chunk < 20; ++chunk) {
      file.seekp(static_cast<std::streamoff>(chunk * layout.chunk_bytes +
                                             5 * layout.entry_bytes + at));
      file.write("\x5a\x5a", 2);
    }
    file.close();
    const auto count_lost = [&] {
      int lost = 0;
      std::string row;
      for (int64_t key = 0; key < kRows; ++key) {
        const SpillSegment::Answer answer = segments.Get(key, &row);
        if (answer.found == ColdFound::kUnreadable) {
          EXPECT_EQ(answer.status.code(), absl::StatusCode::kDataLoss);
          ++lost;
          continue;
        }
        EXPECT_EQ(answer.found, ColdFound::kYes) << "lost and not said";
        EXPECT_EQ(row, RowOf(key, 0));
      }
      return lost;
    };
    const int lost = count_lost();
    noticed += lost;
    EXPECT_LE(lost, 22);  // two rows at most in each of 11 chunks
    // Later rows change no row that is there.
    for (int64_t key = kRows; key < kRows + 55; ++key) {
      ASSERT_OK(segments.Put(key, RowOf(key, 0)));
    }
    ASSERT_OK(segments.Merge(segments.Of(0)));
    EXPECT_EQ(count_lost(), lost);
    std::vector<int64_t> keys;
    std::vector<char> rows;
    size_t limit = 1000;
    EXPECT_EQ(segments.Of(0)->Scan(0, &limit, &keys, &rows).code(),
              absl::StatusCode::kDataLoss);
  }
  EXPECT_GT(noticed, 100);
}

// Of a key in the log that cannot be read an older row in the base must not
// pass for it, and merges go on.
TEST(SpillSegmentTest, ADamagedLogCostsItsOwnRowsAlone) {
  constexpr int64_t kRows = 40;
  constexpr int kDamaged = 3;
  const SpillLayout layout = Small();
  for (const bool deleted : {false, true}) {
    const TempDir temp;
    Segments segments(temp.path(), 1 << 20);
    for (int64_t key = 0; key < kRows; ++key) {
      ASSERT_OK(segments.Put(key, RowOf(key, 0)));
    }
    ASSERT_OK(segments.Merge(segments.Of(0)));
    for (int64_t key = 0; key < 20; ++key) {
      ASSERT_OK(segments.Put(key, deleted ? "" : RowOf(key, 1)));
    }
    ASSERT_OK(segments.Put(7, RowOf(7, 2)));  // behind the damage
    std::string content;
    {
      std::ifstream in(temp.File("rows"), std::ios::binary);
      content.assign(std::istreambuf_iterator<char>(in), {});
    }
    // Entries 5 to 7 of the log: by what they hold of their keys.
    std::fstream file(temp.File("rows"),
                      std::ios::in | std::ios::out | std::ios::binary);
    for (int64_t key = 5; key < 5 + kDamaged; ++key) {
      std::vector<char> entry(layout.entry_bytes);
      if (deleted) {
        segments.Of(0)->MakeDeletion(key, entry.data());
      } else {
        segments.Of(0)->MakeEntry(key, RowOf(key, 1).data(), entry.data());
      }
      const size_t at = content.find(std::string(entry.data(), entry.size()));
      ASSERT_NE(at, std::string::npos);
      file.seekp(static_cast<std::streamoff>(at + 2));
      file.write("\x5a\x5a", 2);
    }
    file.close();
    const auto expect = [&] {
      std::string row;
      for (int64_t key = 0; key < kRows; ++key) {
        SCOPED_TRACE(key);
        const SpillSegment::Answer answer = segments.Get(key, &row);
        if (key == 5 || key == 6) {
          EXPECT_EQ(answer.found, ColdFound::kUnreadable);
          EXPECT_EQ(answer.status.code(), absl::StatusCode::kDataLoss);
        } else if (deleted && key < 20 && key != 7) {
          EXPECT_EQ(answer.found, ColdFound::kNo);
        } else {
          EXPECT_EQ(answer.found, ColdFound::kYes);
          EXPECT_EQ(row, RowOf(key, key == 7 ? 2 : key < 20 ? 1 : 0));
        }
      }
    };
    expect();
    ASSERT_OK(segments.Merge(segments.Of(0)));
    expect();
    std::vector<int64_t> keys;
    std::vector<char> rows;
    size_t limit = 1000;
    EXPECT_EQ(segments.Of(0)->Scan(0, &limit, &keys, &rows).code(),
              absl::StatusCode::kDataLoss);
    // A row that is written anew is there again.
    ASSERT_OK(segments.Put(5, RowOf(5, 3)));
    ASSERT_OK(segments.Merge(segments.Of(0)));
    std::string row;
    EXPECT_EQ(segments.Get(5, &row).found, ColdFound::kYes);
    EXPECT_EQ(row, RowOf(5, 3));
    EXPECT_EQ(segments.Get(6, &row).found, ColdFound::kUnreadable);
  }
}

TEST(SpillSegmentTest, ARowOfAnotherPartitionIsNone) {
  const TempDir temp;
  const SpillLayout layout = Small();
  ASSERT_OK_AND_ASSIGN(
      const auto file,
      SpillFile::Create(temp.path(), layout.chunk_bytes, 1 << 20));
  SpillSegment mine(file.get(), &layout, kSeed, 0, 0);
  const SpillSegment other(file.get(), &layout, kSeed + 1, 0, 0);
  const std::string row = RowOf(5, 0);
  std::vector<char> entry(layout.entry_bytes);
  std::vector<char> page(layout.entry_bytes * layout.page_entries);
  for (const SpillSegment* from :
       {static_cast<const SpillSegment*>(&mine), &other}) {
    from->MakeEntry(5, row.data(), entry.data());
    ASSERT_OK(mine.Append({ColdPosition(5)}, entry));
    std::string got(kRowBytes, ' ');
    EXPECT_EQ(mine.Get(ColdPosition(5), true, page.data(), got.data()).found,
              from == &mine ? ColdFound::kYes : ColdFound::kUnreadable);
  }
}

}  // namespace
}  // namespace syncline::ps
