// Goal: an AlignedFloats begins at a cache line, is zeroed, and moves with its
// values. Method: sizes around a cache line.

#include "common/base/aligned_buffer.h"

#include <cstdint>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

TEST(AlignedFloatsTest, BeginsAtACacheLineAndIsZeroed) {
  for (const size_t count : {1u, 15u, 16u, 17u, 100'000u}) {
    const AlignedFloats floats(count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(floats.data()) % kCacheLineBytes, 0u);
    ASSERT_THAT(floats.span(), SizeIs(count));
    EXPECT_THAT(floats.span(), Each(0.0f));
  }
}

TEST(AlignedFloatsTest, AnEmptyOneHasNoMemory) {
  const AlignedFloats none;
  const AlignedFloats empty(0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(empty.data(), nullptr);
  EXPECT_EQ(empty.size(), 0u);
}

TEST(AlignedFloatsTest, MovesWithItsValues) {
  AlignedFloats from(2);
  from.span()[1] = 5;
  const float* const where = from.data();
  const AlignedFloats to = std::move(from);
  EXPECT_EQ(to.data(), where);
  EXPECT_EQ(to.span()[1], 5);
}

}  // namespace
}  // namespace syncline
