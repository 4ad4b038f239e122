// Goal: with all bytes every block has a place of its own; with fewer there are
// as many as fit, and no more.
// Method: both kinds, and the sizes between.

#include "common/update/copy_reserve.h"

#include <set>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(CopyReserveTest, UnlimitedHasAPlaceForEachBlock) {
  CopyReserve reserve({10, 30, 20}, {});
  EXPECT_EQ(reserve.bytes(), 240u);
  EXPECT_TRUE(reserve.MakeResident(nullptr).ok());
  float* const first = reserve.Take(0);
  EXPECT_EQ(reserve.Take(1), first + 10);
  EXPECT_EQ(reserve.Take(2), first + 40);
  reserve.Free(first);
  EXPECT_EQ(reserve.Take(0), first);
}

TEST(CopyReserveTest, AsManyBytesAsTheBlocksAreUnlimited) {
  EXPECT_EQ(CopyReserve::BytesFor({10, 30, 20}, 240), 240u);
  CopyReserve reserve({10, 30, 20}, 240);
  for (uint32_t block = 0; block < 3; ++block) {
    EXPECT_NE(reserve.Take(block), nullptr);
  }
}

TEST(CopyReserveTest, FewerBytesArePlacesOfTheLargestBlock) {
  // 239 bytes are one place of 120.
  EXPECT_EQ(CopyReserve::BytesFor({10, 30, 20}, 239), 120u);
  CopyReserve reserve({10, 30, 20}, 239);
  float* const place = reserve.Take(2);
  ASSERT_NE(place, nullptr);
  EXPECT_EQ(reserve.Take(0), nullptr);
  reserve.Free(place);
  EXPECT_EQ(reserve.Take(1), place);
}

TEST(CopyReserveTest, TooFewBytesAreNone) {
  EXPECT_EQ(CopyReserve::BytesFor({10, 30, 20}, 119), 0u);
  CopyReserve reserve({10, 30, 20}, 0);
  EXPECT_EQ(reserve.Take(0), nullptr);
  EXPECT_TRUE(reserve.MakeResident(nullptr).ok());
}

TEST(CopyReserveTest, AShardWithoutBlocksNeedsNone) {
  EXPECT_EQ(CopyReserve::BytesFor({}, {}), 0u);
  EXPECT_EQ(CopyReserve::BytesFor({}, 1000), 0u);
}

}  // namespace
}  // namespace syncline
