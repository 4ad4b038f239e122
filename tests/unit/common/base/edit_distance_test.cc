// Goal: the distance is the least number of changes. Method: a few words.

#include "common/base/edit_distance.h"

#include <gtest/gtest.h>

namespace syncline {
namespace {

TEST(EditDistanceTest, CountsChanges) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("Gelo", "Gelu"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("sitting", "kitten"), 3u);
}

}  // namespace
}  // namespace syncline
