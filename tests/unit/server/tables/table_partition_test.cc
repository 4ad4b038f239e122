// Goal: one partition decides which row enters, which is spilled, which expires
// and which is read from where, in the order that its header names.
// Method: a partition of 32 rows over a cold store in memory, called as a lane
// calls it; rows are looked at one by one, with their marks' effects: what is
// written to disk, and what is not.

#include "server/tables/table_partition.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/memory_cold_store.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kId = 7;
constexpr uint32_t kDim = 3;
constexpr uint32_t kRowsPerSlab = 16;
constexpr uint32_t kRowsMax = 32;
// A spill writes a sixteenth of the rows.
constexpr uint32_t kSpillBatch = kRowsMax / 16;
constexpr float kInitial = 0.25f;

TableOptions Options() {
  TableOptions options;
  options.name = "users";
  options.dim = kDim;
  options.initializer = {RowInitializer::Scheme::kConstant, kInitial, 1,
                         "users"};
  options.optimizer.kind = OptimizerKind::kSgd;
  options.memory_bytes = 1 << 20;
  return options;
}

// A partition, and what its lane and its table lend it.
class Partition {
 public:
  explicit Partition(const TableOptions& options, bool has_disk = true,
                     size_t filter_bytes = 0)
      : layout_(options.dim, 0) {
    auto cold = std::make_unique<MemoryColdStore>(layout_.spilled_bytes());
    if (has_disk) cold_ = cold.get();
    context_ = std::make_unique<TableContext>(
        options, kRowsPerSlab * layout_.bytes(), /*huge_pages=*/false,
        has_disk ? std::move(cold) : nullptr);
    partition_ = std::make_unique<TablePartition>(context_.get(), &counts_,
                                                  &scratch_, kId, kRowsPerSlab,
                                                  kRowsMax, filter_bytes);
  }

  TablePartition* operator->() { return partition_.get(); }
  TableStats& counts() { return counts_; }
  MemoryColdStore& cold() { return *cold_; }
  absl::Status Room() const { return context_->room.Check(); }

  uint32_t Find(int64_t key) const {
    return partition_->rows().Find(key, RowPartition::Hash(key));
  }
  bool IsInMemory(int64_t key) const {
    return Find(key) != TablePartition::kNone;
  }

  // The row of the key on disk; empty: none.
  std::vector<char> Spilled(int64_t key) {
    std::vector<char> bytes(layout_.spilled_bytes());
    ColdFound found = ColdFound::kNo;
    const ColdKey cold_key{kId, key};
    if (cold_ != nullptr) {
      EXPECT_TRUE(cold_->Get({&cold_key, 1}, bytes.data(), &found).ok());
    }
    if (found != ColdFound::kYes) bytes.clear();
    return bytes;
  }

  // A push as a lane does it: the row gets the clock and a score of one more,
  // and `value` where there is one. False: the key gets no row.
  bool Push(int64_t key, uint32_t clock, float value = 0,
            absl::Status* status = nullptr) {
    uint32_t row = Find(key);
    if (row == TablePartition::kNone) {
      const std::vector<char> spilled = Spilled(key);
      const absl::Status entered =
          partition_->Enter(key, RowPartition::Hash(key), clock,
                            spilled.empty() ? nullptr : spilled.data(), &row);
      if (status != nullptr) *status = entered;
      EXPECT_TRUE(entered.ok() || row == TablePartition::kNone);
    }
    if (row == TablePartition::kNone) return false;
    char* const at = partition_->rows().At(row);
    RowLayout::SetPast(at, RowLayout::Score(at) + 1, clock);
    if (value != 0) std::fill_n(RowLayout::Values(at), kDim, value);
    partition_->SetChanged(row);
    return true;
  }
  void Change(int64_t key, float value) {
    const uint32_t row = Find(key);
    ASSERT_NE(row, TablePartition::kNone);
    std::fill_n(RowLayout::Values(partition_->rows().At(row)), kDim, value);
    partition_->SetChanged(row);
  }
  // Keys first, first + 1, ...
  void PushRange(int64_t first, size_t count, uint32_t clock) {
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(Push(first + static_cast<int64_t>(i), clock));
    }
  }
  // A pull of a row that is not in memory.
  void Promote(int64_t key, uint32_t clock) {
    const std::vector<char> spilled = Spilled(key);
    ASSERT_FALSE(spilled.empty());
    partition_->Promote(key, RowPartition::Hash(key), clock, spilled.data());
  }
  float Value(int64_t key) const {
    const uint32_t row = Find(key);
    EXPECT_NE(row, TablePartition::kNone);
    return RowLayout::Values(partition_->rows().At(row))[kDim - 1];
  }
  TableStats Sizes() const {
    TableStats stats;
    partition_->AddSizes(&stats);
    return stats;
  }
  // Keys of [first, first + count) that are on disk alone.
  std::set<int64_t> OnDiskAlone(int64_t first, int64_t count) {
    std::set<int64_t> keys;
    for (int64_t key = first; key < first + count; ++key) {
      if (!IsInMemory(key) && !Spilled(key).empty()) keys.insert(key);
    }
    return keys;
  }

 private:
  const RowLayout layout_;
  MemoryColdStore* cold_ = nullptr;  // the context's
  std::unique_ptr<TableContext> context_;
  TableStats counts_;
  PartitionScratch scratch_;
  std::unique_ptr<TablePartition> partition_;
};

TEST(TablePartitionTest, ANewRowHasItsInitialValuesAndNoPast) {
  Partition partition(Options());
  uint32_t row = TablePartition::kNone;
  ASSERT_TRUE(
      partition->Enter(5, RowPartition::Hash(5), 9, nullptr, &row).ok());
  ASSERT_NE(row, TablePartition::kNone);
  const char* const at = partition->rows().At(row);
  EXPECT_EQ(RowLayout::Key(at), 5);
  EXPECT_EQ(RowLayout::Score(at), 0);
  EXPECT_EQ(RowLayout::Clock(at), 0u);
  for (uint32_t i = 0; i < kDim; ++i) {
    EXPECT_EQ(RowLayout::Values(at)[i], kInitial);
  }
  EXPECT_FALSE(partition->has_cold_rows());
}

TEST(TablePartitionTest, ASpilledRowComesBackWithItsPastAndValues) {
  Partition partition(Options());
  ASSERT_TRUE(partition.Push(100, 4, /*value=*/8));
  partition.PushRange(0, kRowsMax, 5);
  const std::set<int64_t> spilled = partition.OnDiskAlone(0, 101);
  ASSERT_THAT(spilled, SizeIs(kSpillBatch));
  ASSERT_TRUE(spilled.contains(100)) << "its last push is the oldest";
  EXPECT_TRUE(partition->has_cold_rows());
  EXPECT_EQ(partition.Sizes().rows_on_disk, kSpillBatch);

  ASSERT_TRUE(partition.Push(100, 6));
  EXPECT_EQ(partition.Value(100), 8);
  const char* const at = partition->rows().At(partition.Find(100));
  EXPECT_EQ(RowLayout::Score(at), 2) << "one push before it was spilled";
  EXPECT_EQ(partition.counts().loaded_rows, 1u);
  EXPECT_EQ(partition.Sizes().rows_in_memory + partition.Sizes().rows_on_disk,
            kRowsMax + 1);
}

TEST(TablePartitionTest, ReadRowsStayAndTheHandGivesThemOneRound) {
  Partition partition(Options());
  partition.PushRange(0, kRowsMax, 1);
  // Rows are watched once half of them are there.
  for (int64_t key = 0; key < 16; ++key) {
    partition->SetRead(partition.Find(key));
  }
  ASSERT_TRUE(partition.Push(1000, 1));
  EXPECT_THAT(partition.OnDiskAlone(0, 16), IsEmpty());
  EXPECT_THAT(partition.OnDiskAlone(16, 16), SizeIs(kSpillBatch));
  // The next batch finds the first sixteen unread since.
  partition.PushRange(1001, kSpillBatch, 1);
  EXPECT_THAT(partition.OnDiskAlone(0, 16), SizeIs(kSpillBatch));
}

TEST(TablePartitionTest, WhereAllRowsWereReadSomeAreSpilledAllTheSame) {
  Partition partition(Options());
  partition.PushRange(0, kRowsMax, 1);
  for (int64_t key = 0; key < kRowsMax; ++key) {
    partition->SetRead(partition.Find(key));
  }
  ASSERT_TRUE(partition.Push(1000, 1));
  EXPECT_THAT(partition.OnDiskAlone(0, kRowsMax), SizeIs(kSpillBatch));
}

TEST(TablePartitionTest, RowsThatArePushedSeldomAreSpilledFirst) {
  Partition partition(Options());
  partition.PushRange(0, kRowsMax, 1);
  for (uint32_t clock = 2; clock < 6; ++clock) {
    for (int64_t key = 0; key < kRowsMax; ++key) {
      if (key != 3 && key != 11) partition.Push(key, clock);
    }
  }
  // A batch looks at the sixteen rows that the hand passes next.
  ASSERT_TRUE(partition.Push(1000, 6));
  EXPECT_THAT(partition.OnDiskAlone(0, kRowsMax), ElementsAre(3, 11));
}

// A row that was read back keeps its copy on disk.
TEST(TablePartitionTest, AnUnchangedRowIsSpilledWithoutAWrite) {
  Partition partition(Options());
  partition.PushRange(0, kRowsMax + 1, 1);
  const std::set<int64_t> first = partition.OnDiskAlone(0, kRowsMax + 1);
  ASSERT_THAT(first, SizeIs(kSpillBatch));
  // Pulls take rows in and send others out, until no changed row is left.
  std::set<int64_t> on_disk = first;
  for (int round = 0; round < 200; ++round) {
    partition.Promote(*on_disk.begin(), 1);
    on_disk = partition.OnDiskAlone(0, kRowsMax + 1);
    ASSERT_FALSE(on_disk.empty());
  }
  EXPECT_LE(partition.counts().spilled_rows, kRowsMax + 1)
      << "no row was written twice";
  const int64_t changed = *on_disk.begin();
  partition.Promote(changed, 1);
  partition.Change(changed, /*value=*/4);
  const uint64_t before = partition.counts().spilled_rows;
  for (int round = 0; round < 200 && partition.IsInMemory(changed); ++round) {
    on_disk = partition.OnDiskAlone(0, kRowsMax + 1);
    partition.Promote(*on_disk.begin(), 1);
  }
  ASSERT_FALSE(partition.IsInMemory(changed));
  EXPECT_EQ(partition.counts().spilled_rows, before + 1);
  ASSERT_TRUE(partition.Push(changed, 2));
  EXPECT_EQ(partition.Value(changed), 4) << "the newest copy counts";
}

TEST(TablePartitionTest, ExpiredRowsMakeRoomBeforeTheDiskDoes) {
  TableOptions options = Options();
  options.expiry.unseen_clocks = 10;
  Partition partition(options);
  partition.PushRange(0, 4, 1);
  partition.PushRange(100, kRowsMax - 4, 20);
  ASSERT_TRUE(partition.Push(1000, 21));
  EXPECT_EQ(partition.cold().puts, 0);
  EXPECT_EQ(partition.counts().expired_by_age, 4u);
  EXPECT_EQ(partition.Sizes().rows_in_memory, kRowsMax - 4 + 1);
}

TEST(TablePartitionTest, AnExpiredCopyOnDiskGivesAFreshRow) {
  TableOptions options = Options();
  options.expiry.unseen_clocks = 10;
  Partition partition(options);
  ASSERT_TRUE(partition.Push(100, 1, /*value=*/8));
  partition.PushRange(0, kRowsMax, 2);
  const std::vector<char> spilled = partition.Spilled(100);
  ASSERT_FALSE(spilled.empty());
  EXPECT_TRUE(partition->LivesOnDisk(spilled.data(), 11));
  EXPECT_FALSE(partition->LivesOnDisk(spilled.data(), 12));

  ASSERT_TRUE(partition.Push(100, 12));
  EXPECT_EQ(partition.Value(100), kInitial);
  EXPECT_EQ(partition.counts().loaded_rows, 0u);
  // Its stale copy goes with it.
  ASSERT_TRUE(partition->Expire(partition.Find(100), 40).ok());
  EXPECT_FALSE(partition.IsInMemory(100));
  EXPECT_THAT(partition.Spilled(100), IsEmpty());
}

// A row must not vanish before its copy, or the copy would count again.
TEST(TablePartitionTest, ARowWhoseCopyCannotBeDeletedStays) {
  TableOptions options = Options();
  options.expiry.unseen_clocks = 10;
  Partition partition(options);
  partition.PushRange(0, kRowsMax + 1, 1);
  const int64_t key = *partition.OnDiskAlone(0, kRowsMax + 1).begin();
  partition.Promote(key, 1);
  ASSERT_TRUE(partition.IsInMemory(key));
  partition.cold().put_error = absl::UnavailableError("the disk is away");
  const uint32_t row = partition.Find(key);
  EXPECT_EQ(partition->Expire(row, 40), partition.cold().put_error);
  EXPECT_TRUE(partition.IsInMemory(key));
  EXPECT_EQ(partition.counts().expired_by_age, 0u);
  partition.cold().put_error = absl::OkStatus();
  EXPECT_TRUE(partition->Expire(row, 40).ok());
  EXPECT_FALSE(partition.IsInMemory(key));
  EXPECT_EQ(partition.counts().expired_by_age, 1u);
}

TEST(TablePartitionTest, WithoutDiskAFullPartitionRefusesUntilItRecovers) {
  TableOptions options = Options();
  options.expiry.unseen_clocks = 10;
  Partition partition(options, /*has_disk=*/false);
  partition.PushRange(0, kRowsMax, 1);
  EXPECT_TRUE(partition.Room().ok());
  absl::Status refused;
  EXPECT_FALSE(partition.Push(1000, 2, 0, &refused));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("table users is full"));
  EXPECT_EQ(partition.counts().refused_by_budget, 1u);
  EXPECT_EQ(partition.Room(), refused) << "the table knows";
  EXPECT_TRUE(partition.Push(3, 2)) << "a row that is there is pushed";

  partition->Recover(3);
  EXPECT_FALSE(partition.Room().ok()) << "nothing has expired";
  partition->Recover(40);
  EXPECT_TRUE(partition.Room().ok());
  EXPECT_TRUE(partition.Push(1000, 40));
}

// Where the last attempt to make room failed, reads do not try again.
TEST(TablePartitionTest, AReadTakesNoRowInWhileThereIsNoRoom) {
  Partition partition(Options());
  partition.PushRange(0, kRowsMax + 1, 1);
  const int64_t key = *partition.OnDiskAlone(0, kRowsMax + 1).begin();
  partition.PushRange(1000, kSpillBatch - 1, 1);  // full again
  partition.cold().put_error = absl::ResourceExhaustedError("no space left");
  absl::Status refused;
  EXPECT_FALSE(partition.Push(2000, 1, 0, &refused));
  EXPECT_THAT(refused.message(), HasSubstr("no space left"));
  partition.cold().put_error = absl::OkStatus();
  const int puts = partition.cold().puts;
  partition.Promote(key, 1);
  EXPECT_FALSE(partition.IsInMemory(key));
  EXPECT_EQ(partition.cold().puts, puts);
  partition->Recover(2);
  partition.Promote(key, 2);
  EXPECT_TRUE(partition.IsInMemory(key));
}

TEST(TablePartitionTest, AKeyNeedsTwiceTheSightingsWhenRowsRunOut) {
  TableOptions options = Options();
  options.admission.min_sightings = 3;
  options.admission.filter_bytes = 4096;
  Partition partition(options, /*has_disk=*/true, /*filter_bytes=*/4096);
  const auto sightings = [&](int64_t key) {
    int seen = 1;
    while (!partition.Push(key, 1)) ++seen;
    return seen;
  };
  EXPECT_EQ(sightings(0), 3);
  // Eight ninths of 32 rows are 28.4.
  for (int64_t key = 1; key < 28; ++key) sightings(key);
  EXPECT_EQ(partition.counts().refused_by_budget, 0u);
  sightings(28);  // the 29th row
  EXPECT_EQ(sightings(1000), 6);
  EXPECT_EQ(partition.counts().refused_by_budget, 3u);
}

TEST(TablePartitionTest, AnUpkeepGoesOnWhereItsBudgetEnded) {
  TableOptions options = Options();
  options.expiry.unseen_clocks = 10;
  Partition partition(options);
  partition.PushRange(0, kRowsMax + 4 * kSpillBatch, 1);
  const size_t on_disk = partition.Sizes().rows_on_disk;
  ASSERT_GT(on_disk, 0u);
  int upkeeps = 0;
  for (bool round = false; !round; ++upkeeps) {
    ASSERT_LT(upkeeps, 1000);
    UpkeepBudget budget{.rows = 5, .disk_bytes = 1};
    ASSERT_TRUE(partition->Maintain(40, &budget, &round).ok());
  }
  // Five rows of memory at a time, then one of the disk.
  EXPECT_GE(upkeeps, static_cast<int>(kRowsMax / 5 + on_disk));
  EXPECT_EQ(partition.Sizes().rows_in_memory, 0u);
  EXPECT_EQ(partition.Sizes().rows_on_disk, 0u);
  EXPECT_FALSE(partition->has_cold_rows());
  EXPECT_EQ(partition.counts().expired_by_age, kRowsMax + 4 * kSpillBatch);
}

TEST(TablePartitionTest, AScanMergesMemoryAndDiskByPosition) {
  Partition partition(Options());
  constexpr int64_t kKeys = 100;
  std::vector<std::pair<uint64_t, int64_t>> order;
  for (int64_t key = 0; key < kKeys; ++key) {
    ASSERT_TRUE(partition.Push(key, 1, static_cast<float>(key + 1)));
    order.push_back({ColdPosition(key), key});
  }
  // One that is in memory and, older, on disk.
  const int64_t newer = *partition.OnDiskAlone(0, kKeys).begin();
  ASSERT_TRUE(partition.Push(newer, 2, /*value=*/1000));
  std::sort(order.begin(), order.end());

  for (const size_t limit : {1, 7, 1000}) {
    std::vector<int64_t> keys;
    std::vector<float> values;
    uint64_t from = 0;
    for (bool more = true; more;) {
      const size_t before = keys.size();
      ASSERT_TRUE(partition->Scan(2, limit, &from, &more, &keys, &values).ok());
      ASSERT_LE(keys.size() - before, limit);
    }
    ASSERT_EQ(keys.size(), order.size());
    ASSERT_EQ(values.size(), keys.size() * kDim);
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(keys[i], order[i].second);
      const float expected =
          keys[i] == newer ? 1000 : static_cast<float>(keys[i] + 1);
      EXPECT_EQ(values[i * kDim], expected) << "key " << keys[i];
    }
  }
}

}  // namespace
}  // namespace syncline::ps
