// Goal: rows come back from disk as they went, the folder keeps to its bytes
// and goes with its process, and a disk that is full, small, broken or not
// there is a clear error that loses nothing that was acknowledged and passes
// with its cause. Method: seeded rows; a file size limit and a small tmpfs for
// full disks; bytes flipped in the file for broken ones.

#include "server/spill/row_spill.h"

#include <sys/mount.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "common/base/random.h"
#include "common/wire/table_map.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tables/table_shard.h"
#include "tests/testing/fakes/payloads.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ps {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr size_t kRowBytes = 76;

RowSpill::Options Options(const std::string& folder) {
  return {.folder = folder,
          .row_bytes = kRowBytes,
          .partitions = 256,
          .memory_bytes = 4 << 20,
          .disk_bytes = 64 << 20};
}

std::unique_ptr<ColdStore> MustOpen(const RowSpill::Options& options) {
  absl::StatusOr<std::unique_ptr<ColdStore>> store = RowSpill::Open(options);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

// The row of a key in its n-th version.
std::vector<char> RowOf(ColdKey key, int version) {
  Random random(SeedFor(key.partition, key.key) + version);
  std::vector<char> row(kRowBytes);
  for (char& byte : row) byte = static_cast<char>(random.Next());
  return row;
}

absl::Status PutRows(ColdStore* store, const std::vector<ColdKey>& keys,
                     int version) {
  std::vector<char> rows;
  for (const ColdKey& key : keys) {
    const std::vector<char> row = RowOf(key, version);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return store->Put(keys, rows.data());
}

std::vector<ColdKey> KeysOf(uint32_t partition, int64_t first, int64_t count) {
  std::vector<ColdKey> keys;
  for (int64_t i = 0; i < count; ++i) keys.push_back({partition, first + i});
  return keys;
}

// Gets a row; an absent one is empty.
absl::StatusOr<std::vector<char>> GetRow(ColdStore* store, ColdKey key) {
  std::vector<char> row(kRowBytes);
  ColdFound found = ColdFound::kYes;
  const absl::Status status = store->Get({key}, row.data(), &found);
  EXPECT_EQ(found == ColdFound::kUnreadable, !status.ok());
  if (!status.ok()) return status;
  if (found == ColdFound::kNo) row.clear();
  return row;
}

uint64_t BytesIn(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    std::error_code gone;  // files come and go
    const uint64_t size =
        entry.is_regular_file(gone) ? entry.file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

TEST(RowSpillTest, RowsComeBackAsTheyWere) {
  const TempDir temp;
  const auto store = MustOpen(Options(temp.File("rows")));
  // More than the write buffers hold, twice, in two partitions.
  for (int version = 0; version < 2; ++version) {
    for (int64_t first = -10000; first < 10000; first += 500) {
      for (const uint32_t partition : {3u, 200u}) {
        ASSERT_TRUE(
            PutRows(store.get(), KeysOf(partition, first, 500), version).ok());
      }
    }
  }
  EXPECT_GT(store->disk_bytes(), 0u);
  size_t gone = 0;
  ASSERT_TRUE(store->Delete(KeysOf(3, 100, 10), &gone).ok());
  EXPECT_EQ(gone, 10u);
  ASSERT_TRUE(store->Delete({}, &gone).ok());
  EXPECT_EQ(gone, 0u);

  std::vector<ColdKey> keys = KeysOf(3, 95, 20);
  keys.push_back({4, 95});
  keys.push_back({200, -10000});
  keys.push_back({200, std::numeric_limits<int64_t>::min()});
  std::vector<char> rows(keys.size() * kRowBytes);
  std::vector<ColdFound> found(keys.size());
  ASSERT_TRUE(store->Get(keys, rows.data(), found.data()).ok());
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool there = i < 20 ? i < 5 || i >= 15 : i == 21;
    ASSERT_EQ(found[i], there ? ColdFound::kYes : ColdFound::kNo) << i;
    if (!there) continue;
    const std::vector<char> row = RowOf(keys[i], 1);
    EXPECT_EQ(std::memcmp(row.data(), &rows[i * kRowBytes], kRowBytes), 0);
  }
}

TEST(RowSpillTest, ScansOnePartitionByPosition) {
  const TempDir temp;
  const auto store = MustOpen(Options(temp.File("rows")));
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ASSERT_TRUE(PutRows(store.get(),
                      {{1, kMost},
                       {2, 5},
                       {2, kLeast},
                       {2, -1},
                       {2, kMost},
                       {2, 0},
                       {3, kLeast}},
                      0)
                  .ok());
  std::vector<int64_t> keys;
  std::vector<char> rows;
  ASSERT_TRUE(
      store->Scan(2, 0, 3, ColdStore::Damaged::kFails, &keys, &rows).ok());
  ASSERT_EQ(keys.size(), 3u);
  ASSERT_TRUE(store
                  ->Scan(2, ColdPosition(keys[2]) + 1, 10,
                         ColdStore::Damaged::kFails, &keys, &rows)
                  .ok());
  ASSERT_EQ(keys.size(), 5u);
  EXPECT_THAT(keys, ::testing::UnorderedElementsAre(kLeast, -1, 0, 5, kMost));
  EXPECT_TRUE(std::is_sorted(
      keys.begin(), keys.end(),
      [](int64_t a, int64_t b) { return ColdPosition(a) < ColdPosition(b); }));
  ASSERT_EQ(rows.size(), 5 * kRowBytes);
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_TRUE(std::equal(rows.begin() + i * kRowBytes,
                           rows.begin() + (i + 1) * kRowBytes,
                           RowOf({2, keys[i]}, 0).begin()));
  }
}

TEST(RowSpillTest, TheFolderGoesWithTheStore) {
  const TempDir temp;
  const std::string folder = temp.File("a/b/rows");
  {
    const auto store = MustOpen(Options(folder));
    ASSERT_TRUE(PutRows(store.get(), KeysOf(0, 0, 100), 0).ok());
    EXPECT_TRUE(fs::exists(folder));
  }
  EXPECT_FALSE(fs::exists(folder));
  // An earlier store's leftovers do not count.
  temp.Write("a/b/rows/CURRENT", "rubbish");
  const auto store = MustOpen(Options(folder));
  EXPECT_TRUE(GetRow(store.get(), {0, 5})->empty());
}

TEST(RowSpillTest, KeepsToItsBytesAndToWhatItHas) {
  const TempDir temp;
  RowSpill::Options options = Options(temp.File("rows"));
  options.disk_bytes = 8 << 20;
  options.partitions = 16;
  options.memory_bytes = 1 << 20;
  const auto store = MustOpen(options);
  absl::Status status;
  int64_t rows = 0;
  for (; status.ok(); rows += 500) {
    ASSERT_LT(rows, 1000000);
    status = PutRows(store.get(), KeysOf(0, rows, 500), 0);
    ASSERT_LE(BytesIn(options.folder), options.disk_bytes + (1 << 20));
  }
  rows -= 500;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(options.folder));
  EXPECT_GT(rows * kRowBytes, options.disk_bytes / 2);
  for (int64_t key = 0; key < rows; key += 97) {
    ASSERT_EQ(*GetRow(store.get(), {0, key}), RowOf({0, key}, 0));
  }
}

TEST(RowSpillTest, FlippedBytesAreDataLossOfTheirRowsAlone) {
  const TempDir temp;
  RowSpill::Options options = Options(temp.File("rows"));
  options.partitions = 1;
  const auto store = MustOpen(options);
  constexpr int64_t kRows = 40000;
  for (int64_t first = 0; first < kRows; first += 500) {
    ASSERT_TRUE(PutRows(store.get(), KeysOf(0, first, 500), 0).ok());
  }
  // Behind the store's back, here and there.
  int flipped = 0;
  {
    const std::string path = options.folder + "/rows";
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    for (uint64_t at = 30000; at < fs::file_size(path); at += 50001) {
      file.seekg(static_cast<std::streamoff>(at));
      char byte = 0;
      file.get(byte);
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(byte ^ 0x40));
      ++flipped;
    }
  }
  int lost = 0;
  for (int64_t key = 0; key < kRows; ++key) {
    const absl::StatusOr<std::vector<char>> row = GetRow(store.get(), {0, key});
    if (row.ok()) {
      ASSERT_EQ(*row, RowOf({0, key}, 0)) << "a wrong row, unnoticed";
      continue;
    }
    EXPECT_EQ(row.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(row.status().message()), HasSubstr(options.folder));
    ++lost;
  }
  EXPECT_GT(lost, flipped / 4);  // the others were in free chunks
  EXPECT_LE(lost, flipped);

  // Among others, only they are unreadable.
  const std::vector<ColdKey> keys = KeysOf(0, 0, kRows);
  std::vector<char> rows(keys.size() * kRowBytes);
  std::vector<ColdFound> found(keys.size());
  EXPECT_EQ(store->Get(keys, rows.data(), found.data()).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(std::count(found.begin(), found.end(), ColdFound::kUnreadable),
            lost);
  EXPECT_EQ(std::count(found.begin(), found.end(), ColdFound::kYes),
            kRows - lost);

  // A scan that needs all rows fails. A sweep goes on behind the damage.
  std::vector<int64_t> scanned;
  std::vector<char> bytes;
  EXPECT_EQ(
      store->Scan(0, 0, kRows, ColdStore::Damaged::kFails, &scanned, &bytes)
          .code(),
      absl::StatusCode::kDataLoss);
  scanned.clear();
  bytes.clear();
  for (uint64_t from = 0;;) {
    const size_t before = scanned.size();
    ASSERT_TRUE(store
                    ->Scan(0, from, 1000, ColdStore::Damaged::kLeftOut,
                           &scanned, &bytes)
                    .ok());
    if (scanned.size() < before + 1000) break;
    from = ColdPosition(scanned.back()) + 1;
  }
  EXPECT_EQ(scanned.size(), static_cast<size_t>(kRows - lost));
}

// Puts rows until that fails; all that it took are there. Returns how many.
int64_t FillUp(ColdStore* store, absl::Status* status) {
  int64_t rows = 0;
  for (*status = absl::OkStatus(); status->ok() && rows < 2000000;) {
    *status = PutRows(store, KeysOf(0, rows, 500), 0);
    if (status->ok()) rows += 500;
  }
  for (int64_t key = 0; key < rows; key += 97) {
    const absl::StatusOr<std::vector<char>> row = GetRow(store, {0, key});
    EXPECT_TRUE(row.ok() && *row == RowOf({0, key}, 0)) << row.status();
  }
  return rows;
}

TEST(RowSpillTest, AFullDiskLosesNothingAndIsTriedAgain) {
  const TempDir temp;
  const std::string disk = temp.File("disk");
  fs::create_directories(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=6m") != 0) {
    GTEST_SKIP() << "may not mount a small disk: " << std::strerror(errno);
  }
  const absl::Cleanup unmount = [&] { EXPECT_EQ(umount(disk.c_str()), 0); };
  {
    RowSpill::Options options = Options(disk + "/rows");
    options.memory_bytes = 1 << 20;
    const auto store = MustOpen(options);
    absl::Status status;
    EXPECT_GT(FillUp(store.get(), &status), 1000);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr(options.folder));
    ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
    // The store takes rows again once there is room, without a new Open.
    status = PutRows(store.get(), KeysOf(1, 0, 5000), 0);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(*GetRow(store.get(), {1, 3}), RowOf({1, 3}, 0));
    EXPECT_EQ(*GetRow(store.get(), {0, 3}), RowOf({0, 3}, 0));
  }
}

TEST(RowSpillTest, AFileThatMayNotGrowIsAClearErrorThatPasses) {
  const TempDir temp;
  RowSpill::Options options = Options(temp.File("rows"));
  options.memory_bytes = 1 << 20;
  const auto store = MustOpen(options);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 600 << 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  absl::Status status;
  EXPECT_GT(FillUp(store.get(), &status), 500);
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("File too large"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(options.folder));
  EXPECT_TRUE(PutRows(store.get(), KeysOf(0, 0, 5000), 1).ok());
  EXPECT_EQ(*GetRow(store.get(), {0, 3}), RowOf({0, 3}, 1));
}

TEST(RowSpillTest, LimitsHaveALeast) {
  const TempDir temp;
  RowSpill::Options options = Options(temp.File("rows"));
  options.disk_bytes = 1000;
  EXPECT_EQ(RowSpill::Open(options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options = Options(temp.File("rows"));
  options.memory_bytes = 1000;
  EXPECT_EQ(RowSpill::Open(options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SpillDirectoryTest, BelongsToOneProcessAndIsEmptyAtFirst) {
  const TempDir temp;
  temp.Write("syncline-spill-0/job-7/table-0/000012.sst", "left over");
  temp.Write("syncline-spill-syncline-ps-3/job-7.shard-0.table-0/rows",
             "of 0.1.0");
  temp.Write("syncline-spill-syncline-ps-3.lock", "");
  {
    const auto folder = SpillDirectory::Open(temp.path());
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_TRUE(fs::is_empty((*folder)->path()));
    EXPECT_FALSE(fs::exists(temp.File("syncline-spill-syncline-ps-3")));
    EXPECT_FALSE(fs::exists(temp.File("syncline-spill-syncline-ps-3.lock")));
    EXPECT_NE((*folder)->PathFor("j-1", 0, 0), (*folder)->PathFor("j-1", 0, 1));
    EXPECT_NE((*folder)->PathFor("j-1", 0, 0), (*folder)->PathFor("j-1", 1, 0));
    EXPECT_NE((*folder)->PathFor("j-1", 0, 0), (*folder)->PathFor("j-2", 0, 0));
    RowSpill::Options options = Options((*folder)->PathFor("j-1", 0, 0));
    ASSERT_TRUE(RowSpill::Open(options).ok());
    EXPECT_EQ(fs::path(options.folder).parent_path(), (*folder)->path());
    EXPECT_FALSE(fs::exists(options.folder)) << "the store is gone";
    const auto second = SpillDirectory::Open(temp.path());
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_NE((*second)->path(), (*folder)->path());
  }
  EXPECT_TRUE(fs::is_empty(temp.path()));
}

TEST(SpillDirectoryTest, APathThatCannotBeWrittenIsNamed) {
  const TempDir temp;
  const std::string file = temp.Write("file", "not a folder");
  const auto below_file = SpillDirectory::Open(file);
  EXPECT_FALSE(below_file.ok());
  EXPECT_THAT(std::string(below_file.status().message()), HasSubstr(file));
  EXPECT_FALSE(SpillDirectory::Open("/proc/nowhere").ok());
}

// The table above, with its real store.
TEST(RowSpillTest, ATableLargerThanMemoryKeepsEveryRow) {
  const TempDir temp;
  TableOptions options;
  options.name = "users";
  options.dim = 16;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.memory_bytes = 256 << 10;
  RowSpill::Options spill = Options(temp.File("rows"));
  spill.row_bytes = TableShard::SpilledRowBytes(options);
  const TableMap map = *TableMap::Create(256, 1);
  TableShard table(options, map, 0, 1, MustOpen(spill));
  Random random(4);
  const OnesFloats ones;
  std::map<int64_t, int> pushes;
  for (int i = 0; i < 60; ++i) {
    std::vector<int64_t> keys;
    for (int k = 0; k < 1000; ++k) {
      keys.push_back(static_cast<int64_t>(random.Below(20000)));
    }
    std::sort(keys.begin(), keys.end(),
              [&](int64_t a, int64_t b) { return map.Before(a, b); });
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    for (const int64_t key : keys) ++pushes[key];
    const GradientRows rows = {.keys = keys, .values = &ones};
    ASSERT_TRUE(table.Push(0, {rows}, {.learning_rate = 1}).ok());
  }
  EXPECT_GT(table.Stats(0).rows_on_disk, 8 * table.Stats(0).rows_in_memory / 2);
  EXPECT_LE(table.Stats(0).memory_bytes, options.memory_bytes);

  size_t rows_seen = 0;
  ScanCursor cursor;
  while (!table.ScanDone(cursor)) {
    std::vector<int64_t> keys;
    std::vector<float> values;
    ASSERT_TRUE(table.Scan(0, 300, &cursor, &keys, &values).ok());
    rows_seen += keys.size();
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(values[i * 16], -pushes[keys[i]]) << "key " << keys[i];
    }
  }
  EXPECT_EQ(rows_seen, pushes.size());
}

}  // namespace
}  // namespace syncline::ps
