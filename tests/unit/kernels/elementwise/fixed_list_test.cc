#include "kernels/elementwise/fixed_list.h"

#include <type_traits>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(FixedListTest, ElementsAreAtBothEnds) {
  FixedList<int, 4> list;
  EXPECT_TRUE(list.empty());
  list.push_back(2);
  list.push_back(3);
  list.push_front(1);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0], 1);
  EXPECT_EQ(list[1], 2);
  EXPECT_EQ(list.back(), 3);
  int sum = 0;
  for (const int element : list) sum += element;
  EXPECT_EQ(sum, 6);
}

TEST(FixedListTest, CanBeCopiedByteByByte) {
  EXPECT_TRUE((std::is_trivially_copyable_v<FixedList<double, 8>>));
}

TEST(FixedListDeathTest, IsNeverLongerThanItsCapacity) {
  FixedList<int, 1> list;
  list.push_back(1);
  EXPECT_DEATH(list.push_back(2), "size_");
}

}  // namespace
}  // namespace syncline
