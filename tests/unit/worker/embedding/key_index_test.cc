// Goal: keys are numbered as they appear, and emptying forgets all of them.
// Method: random rounds of keys that collide, against a map.

#include "worker/embedding/key_index.h"

#include <map>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

TEST(KeyIndexTest, NumbersAreThoseOfFirstAppearance) {
  constexpr size_t kKeys = 50;
  KeyIndex index(kKeys);
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    index.Clear();
    std::map<int64_t, uint32_t> want;
    for (int i = 0; i < 300; ++i) {
      const int64_t key = static_cast<int64_t>(random.Below(kKeys)) - 25;
      const auto [it, inserted] =
          want.emplace(key, static_cast<uint32_t>(want.size()));
      bool is_new = false;
      EXPECT_EQ(
          index.Insert(key, static_cast<uint32_t>(want.size() - 1), &is_new),
          it->second);
      EXPECT_EQ(is_new, inserted);
    }
    for (int64_t key = -25; key < 25; ++key) {
      const auto it = want.find(key);
      EXPECT_EQ(index.Find(key),
                it == want.end() ? KeyIndex::kAbsent : it->second);
    }
  }
}

}  // namespace
}  // namespace syncline::worker
