// Goal: a batch's keys come once each, in the order of messages, and every id
// finds its row. Method: random batches, with duplicates, padding and keys of
// all sizes, against what the ids say; the same object from batch to batch.

#include "worker/embedding/row_batch.h"

#include <limits>
#include <memory>
#include <set>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int64_t kPadding = -1;

std::unique_ptr<RowBatch> MakeRows(uint32_t shards, bool padded = true) {
  RowBatch::Options options;
  options.name = "t";
  options.dim = 2;
  options.samples_max = 40;
  options.lookups = {{.feed = 1, .ids_per_sample = 3},
                     {.feed = 0, .ids_per_sample = 1}};
  if (padded) options.lookups[0].padding = kPadding;
  options.with_gradients = true;
  return std::make_unique<RowBatch>(options, *TableMap::Create(256, shards));
}

Batch RandomBatch(int64_t size, Random* random) {
  Batch batch;
  batch.size = size;
  batch.int_feeds.resize(2);
  for (int64_t i = 0; i < 3 * size; ++i) {
    const uint64_t kind = random->Below(10);
    batch.int_feeds[1].push_back(
        kind == 0   ? kPadding
        : kind == 1 ? std::numeric_limits<int64_t>::min()
        : kind == 2 ? static_cast<int64_t>(random->Below(~uint64_t{0}))
                    : static_cast<int64_t>(random->Below(30)));
  }
  for (int64_t i = 0; i < size; ++i) {
    batch.int_feeds[0].push_back(static_cast<int64_t>(random->Below(5)) - 2);
  }
  return batch;
}

TEST(RowBatchTest, EveryIdFindsItsRow) {
  Random random(3);
  const auto rows = MakeRows(3);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const Batch batch =
        RandomBatch(static_cast<int64_t>(random.Below(41)), &random);
    rows->Collect(batch);
    const auto keys = rows->keys();
    std::set<int64_t> want;
    for (const int64_t id : batch.int_feeds[0]) want.insert(id);
    for (const int64_t id : batch.int_feeds[1]) {
      if (id != kPadding) want.insert(id);
    }
    EXPECT_EQ(std::set<int64_t>(keys.begin(), keys.end()), want);
    ASSERT_EQ(keys.size(), want.size());
    ASSERT_LT(static_cast<int64_t>(keys.size()), rows->capacity());
    for (size_t i = 1; i < keys.size(); ++i) {
      ASSERT_TRUE(rows->map().Before(keys[i - 1], keys[i]));
    }
    for (size_t lookup = 0; lookup < 2; ++lookup) {
      const auto& ids = batch.int_feeds[lookup == 0 ? 1 : 0];
      const auto positions = rows->positions(lookup);
      ASSERT_EQ(positions.size(), ids.size());
      for (size_t i = 0; i < ids.size(); ++i) {
        if (lookup == 0 && ids[i] == kPadding) {
          EXPECT_EQ(positions[i], 0);
        } else {
          EXPECT_EQ(keys[positions[i] - 1], ids[i]);
        }
      }
    }
  }
}

// By shard: the slots of its runs.
std::vector<std::vector<uint32_t>> SlotsByShard(const RowBatch& rows) {
  std::vector<std::vector<uint32_t>> slots(rows.map().shard_count());
  for (uint32_t shard = 0; shard < slots.size(); ++shard) {
    for (const SlotRun& run : rows.ShardSlots(shard)) {
      slots[shard].push_back(run.slot);
    }
  }
  return slots;
}

TEST(RowBatchTest, RowsGoToTheShardsOfAnotherPlacement) {
  Random random(5);
  const Batch batch = RandomBatch(40, &random);
  const auto moved = MakeRows(2);
  const auto made = MakeRows(5);
  moved->UseMap(made->map());
  moved->Collect(batch);
  made->Collect(batch);
  EXPECT_EQ(SlotsByShard(*moved), SlotsByShard(*made));
  // Those of a batch that is under way, too; keys keep their places.
  const std::vector<int64_t> keys(made->keys().begin(), made->keys().end());
  made->UseMap(MakeRows(3)->map());
  const auto again = MakeRows(3);
  again->Collect(batch);
  EXPECT_EQ(SlotsByShard(*made), SlotsByShard(*again));
  EXPECT_EQ(std::vector<int64_t>(made->keys().begin(), made->keys().end()),
            keys);
}

TEST(RowBatchTest, KeysOfAnotherBatchAreReadInItsOrder) {
  Random random(6);
  const auto late = MakeRows(3);
  const auto again = MakeRows(3);
  for (int round = 0; round < 50; ++round) {
    const Batch batch =
        RandomBatch(static_cast<int64_t>(random.Below(41)), &random);
    late->Collect(batch);
    again->Collect(RandomBatch(40, &random));
    again->SetAsOf(0, 5);
    again->WantOnly([](size_t) { return false; });
    again->CollectKeysOf(*late);
    EXPECT_EQ(again->keys(), late->keys());
    EXPECT_EQ(again->wanted_keys(), late->keys());
    EXPECT_EQ(again->early_count(), 0u);
    EXPECT_EQ(SlotsByShard(*again), SlotsByShard(*late));
    for (const int64_t key : late->keys()) EXPECT_TRUE(again->Reads(key));
    EXPECT_FALSE(again->Reads(1'000'000));
    EXPECT_EQ(again->values().size(), 2 * late->keys().size());
    EXPECT_EQ(again->gradients().size(), again->values().size());
    if (!late->keys().empty()) {
      EXPECT_EQ(again->as_of(0), 0);
      EXPECT_EQ(again->values().data(), again->value(0));
      EXPECT_EQ(again->gradients().data(), again->gradient(0));
    }
    EXPECT_THAT(again->positions(0), IsEmpty());
    // A batch of its own follows, as ever.
    again->Collect(batch);
    EXPECT_EQ(again->keys(), late->keys());
    EXPECT_EQ(again->positions(0), late->positions(0));
  }
}

TEST(RowBatchTest, ShardsHaveTheirSlotsAndThoseTheirKeys) {
  Random random(4);
  for (const uint32_t shards : {1u, 2u, 5u}) {
    const auto rows = MakeRows(shards);
    rows->Collect(RandomBatch(40, &random));
    size_t next = 0;
    for (uint32_t shard = 0; shard < shards; ++shard) {
      for (const SlotRun& run : rows->ShardSlots(shard)) {
        EXPECT_EQ(run.first, next);
        next += run.count;
        for (uint32_t i = 0; i < run.count; ++i) {
          EXPECT_EQ(rows->map().SlotOf(rows->keys()[run.first + i]), run.slot);
          EXPECT_EQ(rows->map().ShardOf(rows->keys()[run.first + i]), shard);
        }
      }
    }
    EXPECT_EQ(next, rows->keys().size());
  }
}

TEST(RowBatchTest, RowZeroIsZerosAndGradientsAreCleared) {
  const auto rows = MakeRows(1);
  Batch batch;
  batch.size = 1;
  batch.int_feeds = {{7}, {kPadding, 7, 8}};
  rows->Collect(batch);
  EXPECT_THAT(absl::MakeSpan(rows->rows(), 2), ElementsAre(0, 0));
  for (size_t i = 0; i < 6; ++i) rows->row_gradients()[i] = 5;
  rows->ClearGradients();
  EXPECT_THAT(absl::MakeSpan(rows->row_gradients(), 6),
              ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_EQ(rows->FindNonFinite(), -1);
  rows->value(1)[1] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(rows->FindNonFinite(), 1);
}

TEST(RowBatchTest, WantedAreSubsequencesEarlyOnesFirst) {
  const auto rows = MakeRows(1, /*padded=*/false);
  Batch batch;
  batch.size = 1;
  batch.int_feeds = {{4}, {1, 2, 3}};
  rows->Collect(batch);
  EXPECT_THAT(rows->wanted(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(rows->early_count(), 0u);
  rows->WantOnly([](size_t i) { return i != 1; });
  EXPECT_THAT(rows->wanted(), ElementsAre(0, 2, 3));
  EXPECT_THAT(rows->wanted_keys(),
              ElementsAre(rows->keys()[0], rows->keys()[2], rows->keys()[3]));
  const int64_t early = rows->keys()[2];
  rows->WantEarly([&](int64_t key) { return key == early; });
  EXPECT_THAT(rows->wanted(), ElementsAre(2, 0, 1, 3));
  EXPECT_EQ(rows->wanted_keys()[0], early);
  EXPECT_EQ(rows->early_count(), 1u);
  EXPECT_TRUE(rows->Reads(early));
  EXPECT_FALSE(rows->Reads(99));
}

// Padding is looked at first, and what Gather would refuse is a key.
TEST(RowBatchTest, NegativeIdsCountFromTheEndOfAFixedTable) {
  RowBatch::Options options;
  options.dim = 1;
  options.samples_max = 1;
  options.lookups = {{.feed = 0, .ids_per_sample = 7, .padding = -3}};
  Batch batch;
  batch.size = 1;
  batch.int_feeds = {{-1, 9, -10, 0, -3, -11, 10}};
  RowBatch open(options, *TableMap::Create(256, 1));
  open.Collect(batch);
  EXPECT_THAT(open.keys(), UnorderedElementsAre(-11, -10, -1, 0, 9, 10));
  options.rows = 10;
  RowBatch fixed(options, *TableMap::Create(256, 1));
  fixed.Collect(batch);
  EXPECT_THAT(fixed.keys(), UnorderedElementsAre(-11, 0, 9, 10));
  const auto positions = fixed.positions(0);
  EXPECT_EQ(positions[0], positions[1]);
  EXPECT_EQ(positions[2], positions[3]);
  EXPECT_EQ(positions[4], 0);
}

// Gather would read the same row for both, and that is exported as zeros.
TEST(RowBatchTest, AnIdThatCountsToTheRowOfPaddingIsPadding) {
  RowBatch::Options options;
  options.dim = 1;
  options.samples_max = 1;
  options.lookups = {{.feed = 0, .ids_per_sample = 4, .padding = 3}};
  Batch batch;
  batch.size = 1;
  batch.int_feeds = {{3, -7, 7, -3}};
  RowBatch open(options, *TableMap::Create(256, 1));
  open.Collect(batch);
  EXPECT_THAT(open.keys(), UnorderedElementsAre(-7, 7, -3));
  options.rows = 10;
  RowBatch fixed(options, *TableMap::Create(256, 1));
  fixed.Collect(batch);
  EXPECT_THAT(fixed.keys(), ElementsAre(7));
  EXPECT_THAT(fixed.positions(0), ElementsAre(0, 0, 1, 1));
}

TEST(RowBatchTest, PaddingMayBeARowOfAFixedTable) {
  RowBatch::Options options;
  options.dim = 1;
  options.samples_max = 1;
  options.lookups = {{.feed = 0, .ids_per_sample = 7, .padding = 3},
                     {.feed = 1, .ids_per_sample = 1},
                     {.feed = 2, .ids_per_sample = 2, .padding = -1},
                     {.feed = 3, .ids_per_sample = 2, .padding = 10}};
  EXPECT_THAT(RowBatch(options, *TableMap::Create(256, 1)).PaddingRows(),
              IsEmpty());
  options.rows = 10;
  EXPECT_THAT(RowBatch(options, *TableMap::Create(256, 1)).PaddingRows(),
              ElementsAre(3));
}

TEST(RowBatchTest, ABatchWithoutSamplesHasNoKeys) {
  const auto rows = MakeRows(2);
  Random random(1);
  rows->Collect(RandomBatch(10, &random));
  Batch none;
  rows->Collect(none);
  EXPECT_THAT(rows->keys(), IsEmpty());
  EXPECT_THAT(rows->slots(), IsEmpty());
  EXPECT_THAT(rows->wanted(), IsEmpty());
}

}  // namespace
}  // namespace syncline::worker
