// Goal: memory on huge pages is what AlignedFloats is: zeroed, aligned, as
// large as was asked for, resident when it is touched, and given back.
// Method: sizes around those where it changes; the kernel's count of resident
// pages.

#include "common/system/huge_floats.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace syncline {
namespace {

constexpr size_t kFromFloats = HugeFloats::kHugeFrom / sizeof(float);

TEST(HugeFloatsTest, IsZeroedAlignedAndWritable) {
  for (const size_t count :
       {size_t{1}, size_t{1000}, kFromFloats - 1, kFromFloats, kFromFloats + 1,
        kFromFloats + 700'000}) {
    HugeFloats floats(count);
    ASSERT_EQ(floats.size(), count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(floats.data()) % kCacheLineBytes, 0u);
    const absl::Span<float> all = floats.span();
    EXPECT_TRUE(std::all_of(all.begin(), all.end(),
                            [](float value) { return value == 0; }));
    std::fill(all.begin(), all.end(), 3.0f);
    EXPECT_EQ(std::as_const(floats).data()[count - 1], 3.0f);
  }
}

TEST(HugeFloatsTest, NoneHasNoMemory) {
  HugeFloats none;
  EXPECT_EQ(none.size(), 0u);
  EXPECT_EQ(HugeFloats(0).size(), 0u);
}

TEST(HugeFloatsTest, MovesWithItsAddress) {
  HugeFloats from(kFromFloats);
  float* const data = from.data();
  data[kFromFloats - 1] = 7;
  HugeFloats to = std::move(from);
  EXPECT_EQ(to.data(), data);
  EXPECT_EQ(to.data()[kFromFloats - 1], 7);
}

// A job's memory is promised before it is taken.
TEST(HugeFloatsTest, TakesNoMemoryBeforeItIsTouched) {
  constexpr size_t kPageBytes = 4096;
  HugeFloats floats(kFromFloats);
  std::vector<unsigned char> pages(HugeFloats::kHugeFrom / kPageBytes);
  ASSERT_EQ(mincore(floats.data(), HugeFloats::kHugeFrom, pages.data()), 0);
  const auto resident = [&] {
    return std::count_if(pages.begin(), pages.end(),
                         [](unsigned char page) { return (page & 1) != 0; });
  };
  EXPECT_EQ(resident(), 0);
  floats.data()[0] = 1;
  ASSERT_EQ(mincore(floats.data(), HugeFloats::kHugeFrom, pages.data()), 0);
  // A small page, or the huge one that it is on.
  EXPECT_GE(resident(), 1);
  EXPECT_LE(resident(), 512);
}

}  // namespace
}  // namespace syncline
