// Goal: every key has one slot and every slot one shard, evenly and the same
// everywhere; a message's keys are believed only in their order and place.
// Method: properties over seeded keys, plus fixed keys that pin the hash.

#include "common/wire/table_map.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TableMap MustCreate(uint32_t slots, uint32_t shards) {
  absl::StatusOr<TableMap> map = TableMap::Create(slots, shards);
  EXPECT_TRUE(map.ok()) << map.status();
  return *std::move(map);
}

std::vector<int64_t> SortedKeys(const TableMap& map, uint64_t seed,
                                size_t count) {
  Random random(seed);
  std::vector<int64_t> keys(count);
  for (int64_t& key : keys) key = static_cast<int64_t>(random.Next());
  std::sort(keys.begin(), keys.end(),
            [&](int64_t a, int64_t b) { return map.Before(a, b); });
  return keys;
}

TEST(TableMapTest, SlotsOfFixedKeysNeverChange) {
  // Checkpoints and other builds depend on them.
  const TableMap map = MustCreate(256, 1);
  EXPECT_EQ(map.SlotOf(0), 226u);
  EXPECT_EQ(map.SlotOf(1), 145u);
  EXPECT_EQ(map.SlotOf(-1), 228u);
  EXPECT_EQ(map.SlotOf(std::numeric_limits<int64_t>::min()), 72u);
  EXPECT_EQ(map.SlotOf(std::numeric_limits<int64_t>::max()), 42u);
}

TEST(TableMapTest, DefaultSlotsGrowWithTheShards) {
  EXPECT_EQ(TableMap::DefaultSlots(1), 256u);
  EXPECT_EQ(TableMap::DefaultSlots(8), 256u);
  EXPECT_EQ(TableMap::DefaultSlots(9), 512u);
  EXPECT_EQ(TableMap::DefaultSlots(1024), 32768u);
}

TEST(TableMapTest, RangesCoverEverySlotOnceAndDifferByOne) {
  for (const uint32_t slots : {2u, 256u, 1024u}) {
    for (uint32_t shards = 1; shards <= std::min(slots, 70u); ++shards) {
      SCOPED_TRACE(absl::StrCat("slots=", slots, " shards=", shards));
      const TableMap map = MustCreate(slots, shards);
      uint32_t next = 0;
      for (uint32_t shard = 0; shard < shards; ++shard) {
        ASSERT_GE(map.SlotCount(shard), slots / shards);
        ASSERT_LE(map.SlotCount(shard), slots / shards + 1);
        for (const uint32_t slot : map.shard_slots(shard)) {
          ASSERT_EQ(slot, next++);
          ASSERT_EQ(map.ShardOfSlot(slot), shard);
          ASSERT_EQ(map.SlotIndex(slot), slot - map.shard_slots(shard)[0]);
        }
      }
      ASSERT_EQ(next, slots);
    }
  }
}

TEST(TableMapTest, SlotsAreWhereARoutingPutsThem) {
  const std::vector<uint32_t> shards = {2, 0, 2, 1, 0, 2, 2, 1};
  const auto map = TableMap::Create(8, 3, shards);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_THAT(map->shard_slots(0), ElementsAre(1, 4));
  EXPECT_THAT(map->shard_slots(1), ElementsAre(3, 7));
  EXPECT_THAT(map->shard_slots(2), ElementsAre(0, 2, 5, 6));
  for (uint32_t slot = 0; slot < 8; ++slot) {
    EXPECT_EQ(map->ShardOfSlot(slot), shards[slot]);
    EXPECT_EQ(map->shard_slots(shards[slot])[map->SlotIndex(slot)], slot);
  }
  std::vector<int64_t> keys;
  for (const int64_t key : SortedKeys(*map, 5, 100)) {
    if (map->ShardOf(key) == 2) keys.push_back(key);
  }
  std::vector<SlotRun> runs;
  ASSERT_TRUE(map->CutBySlot(keys, 2, &runs).ok());
  EXPECT_EQ(runs.size(), 4u);
  EXPECT_FALSE(map->CutBySlot(keys, 0, &runs).ok());
}

TEST(TableMapTest, APlacementThatIsNotWholeIsRefused) {
  const auto refused = [](uint32_t shards, std::vector<uint32_t> slot_shards) {
    return std::string(
        TableMap::Create(4, shards, slot_shards).status().message());
  };
  EXPECT_THAT(refused(2, {0, 1, 0}), HasSubstr("3 virtual slots are placed"));
  EXPECT_THAT(refused(2, {0, 1, 2, 0}),
              HasSubstr("virtual slot 2 is placed on shard 2, there are 2"));
  EXPECT_THAT(refused(3, {0, 1, 1, 0}),
              HasSubstr("shard 2 has no virtual slot"));
}

TEST(TableMapTest, KeysInARowSpreadEvenly) {
  const TableMap map = MustCreate(256, 2);
  std::vector<int> count(256);
  constexpr int kKeys = 256 * 1000;
  for (int64_t key = 0; key < kKeys; ++key) ++count[map.SlotOf(key)];
  const auto [least, most] = std::minmax_element(count.begin(), count.end());
  EXPECT_GT(*least, 850);  // five standard deviations
  EXPECT_LT(*most, 1150);
}

TEST(TableMapTest, RunsAreTheSlotsOfTheKeys) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    const TableMap map = MustCreate(256, 3);
    std::vector<int64_t> all = SortedKeys(map, seed, 500);
    size_t keys_seen = 0;
    for (uint32_t shard = 0; shard < 3; ++shard) {
      std::vector<int64_t> keys;
      std::copy_if(all.begin(), all.end(), std::back_inserter(keys),
                   [&](int64_t key) { return map.ShardOf(key) == shard; });
      std::vector<SlotRun> runs;
      ASSERT_TRUE(map.CutBySlot(keys, shard, &runs).ok());
      uint32_t next = 0;
      for (const SlotRun& run : runs) {
        ASSERT_EQ(run.first, next);
        ASSERT_GT(run.count, 0u);
        for (uint32_t i = 0; i < run.count; ++i) {
          ASSERT_EQ(map.SlotOf(keys[run.first + i]), run.slot);
        }
        next += run.count;
      }
      ASSERT_EQ(next, keys.size());
      keys_seen += keys.size();
    }
    ASSERT_EQ(keys_seen, all.size());
  }
}

TEST(TableMapTest, KeysOutOfOrderOrPlaceAreNamed) {
  const TableMap map = MustCreate(256, 2);
  std::vector<SlotRun> runs;
  std::vector<int64_t> keys;
  for (const int64_t key : SortedKeys(map, 3, 50)) {
    if (map.ShardOf(key) == 1) keys.push_back(key);
  }
  EXPECT_TRUE(map.CutBySlot({}, 1, &runs).ok());
  EXPECT_TRUE(map.CutBySlot(keys, 1, &runs).ok());

  std::vector<int64_t> twice = keys;
  twice.insert(twice.begin() + 5, twice[5]);
  absl::Status status = map.CutBySlot(twice, 1, &runs);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("key ", keys[5], " at position 6")));

  std::vector<int64_t> swapped = keys;
  std::swap(swapped[7], swapped[8]);
  EXPECT_FALSE(map.CutBySlot(swapped, 1, &runs).ok());

  status = map.CutBySlot(keys, 0, &runs);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("belongs to shard 1, not to shard 0"));
}

TEST(TableMapTest, RefusesWhatCannotBePlaced) {
  for (const uint32_t slots : {0u, 1u, 3u, 300u, 131072u}) {
    EXPECT_FALSE(TableMap::Create(slots, 1).ok()) << slots;
  }
  EXPECT_FALSE(TableMap::Create(256, 0).ok());
  EXPECT_FALSE(TableMap::Create(256, 257).ok());
  EXPECT_TRUE(TableMap::Create(65536, 1024).ok());
}

}  // namespace
}  // namespace syncline
