// Goal: changes since a committed cut, and never fewer.
// Method: cuts by hand. tests/simulation/checkpoint_chain_test.cc has
// histories.

#include "server/tables/changed_keys.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tables/cold_store.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(ChangedKeysTest, AllHasChangedUntilACheckpointIsCommitted) {
  ChangedKeys keys;
  keys.Note(1);
  EXPECT_EQ(keys.memory_bytes(), 0u);
  EXPECT_TRUE(keys.Close(0, 10, 100).all);
  keys.Note(2);
  EXPECT_TRUE(keys.Close(0, 20, 100).all) << "the first one was not committed";
  keys.Note(3);
  const auto changes = keys.Close(20, 30, 100);
  EXPECT_FALSE(changes.all);
  EXPECT_THAT(changes.keys, ElementsAre(3));
}

TEST(ChangedKeysTest, WhatAFailedCheckpointHadComesAgain) {
  ChangedKeys keys;
  keys.Close(0, 10, 100);
  keys.Note(1);
  keys.Note(2);
  EXPECT_THAT(keys.Close(10, 20, 100).keys, UnorderedElementsAre(1, 2));
  keys.Note(2);
  keys.Note(3);
  EXPECT_THAT(keys.Close(10, 30, 100).keys, UnorderedElementsAre(1, 2, 3));
  keys.Note(4);
  EXPECT_THAT(keys.Close(30, 40, 100).keys, ElementsAre(4));
  EXPECT_THAT(keys.Close(40, 50, 100).keys, IsEmpty());
}

TEST(ChangedKeysTest, MoreKeysThanTheLimitAreAll) {
  ChangedKeys keys;
  keys.Close(0, 10, 3);
  for (int64_t key = 0; key < 3; ++key) keys.Note(key);
  EXPECT_FALSE(keys.Close(10, 20, 3).all);
  keys.Note(3);
  EXPECT_TRUE(keys.Close(10, 30, 3).all) << "together with the failed one's";
  for (int64_t key = 0; key < 4; ++key) keys.Note(key);
  EXPECT_TRUE(keys.Close(30, 40, 3).all);
  keys.Note(7);
  EXPECT_THAT(keys.Close(40, 50, 3).keys, ElementsAre(7));
}

TEST(ChangedKeysTest, KeysComeByPosition) {
  ChangedKeys keys;
  keys.Close(0, 10, 1000);
  for (int64_t key = -200; key < 200; ++key) keys.Note(key);
  const std::vector<int64_t> changed = keys.Close(10, 20, 1000).keys;
  ASSERT_EQ(changed.size(), 400u);
  EXPECT_TRUE(std::is_sorted(
      changed.begin(), changed.end(),
      [](int64_t a, int64_t b) { return ColdPosition(a) < ColdPosition(b); }));
}

}  // namespace
}  // namespace syncline::ps
