// Goal: areas in use never overlap, and nothing of the range is lost.
// Method: seeded histories of allocations and returns against a map of bytes.

#include "common/base/area_allocator.h"

#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

constexpr size_t kPage = AreaAllocator::kAlignment;

TEST(AreaAllocatorTest, TakesTheLowestPlaceThatFits) {
  AreaAllocator areas(10 * kPage);
  EXPECT_EQ(areas.Allocate(2 * kPage), 0u);
  EXPECT_EQ(areas.Allocate(1), 2 * kPage);
  EXPECT_EQ(areas.Allocate(kPage + 1), 3 * kPage);
  areas.Free(0);
  EXPECT_EQ(areas.Allocate(3 * kPage), 5 * kPage);
  EXPECT_EQ(areas.Allocate(kPage), 0u);
  EXPECT_EQ(areas.used_bytes(), 7 * kPage);
}

TEST(AreaAllocatorTest, RefusesWhatDoesNotFit) {
  AreaAllocator areas(4 * kPage + 17);
  EXPECT_EQ(areas.Allocate(4 * kPage + 1), std::nullopt);
  EXPECT_EQ(areas.Allocate(~size_t{0}), std::nullopt);
  EXPECT_EQ(areas.Allocate(4 * kPage), 0u);
  EXPECT_EQ(areas.Allocate(1), std::nullopt);
  EXPECT_EQ(AreaAllocator(kPage - 1).Allocate(1), std::nullopt);
}

struct Area {
  size_t offset = 0;
  size_t bytes = 0;
};

// Marks every page of `area`; none may have been marked already.
void Mark(std::vector<bool>* pages, const Area& area, bool used) {
  for (size_t at = area.offset; at < area.offset + area.bytes; at += kPage) {
    ASSERT_LT(at / kPage, pages->size());
    ASSERT_NE((*pages)[at / kPage], used) << "page " << at / kPage;
    (*pages)[at / kPage] = used;
  }
}

size_t LongestGap(const std::vector<bool>& pages) {
  size_t longest = 0;
  size_t gap = 0;
  for (const bool used : pages) {
    gap = used ? 0 : gap + 1;
    longest = std::max(longest, gap);
  }
  return longest * kPage;
}

TEST(AreaAllocatorPropertyTest, AreasNeverOverlapAndGapsAreFound) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    Random random(seed);
    const size_t page_count = 1 + random.Below(64);
    AreaAllocator areas(page_count * kPage);
    std::vector<bool> pages(page_count, false);
    std::vector<Area> in_use;
    for (int step = 0; step < 500; ++step) {
      if (in_use.empty() || random.Below(2) == 0) {
        Area area;
        area.bytes = 1 + random.Below(8 * kPage);
        const auto offset = areas.Allocate(area.bytes);
        ASSERT_EQ(offset.has_value(), area.bytes <= LongestGap(pages));
        if (!offset.has_value()) continue;
        ASSERT_EQ(*offset % kPage, 0u);
        area.offset = *offset;
        ASSERT_NO_FATAL_FAILURE(Mark(&pages, area, true));
        in_use.push_back(area);
      } else {
        const size_t i = random.Below(in_use.size());
        areas.Free(in_use[i].offset);
        ASSERT_NO_FATAL_FAILURE(Mark(&pages, in_use[i], false));
        in_use.erase(in_use.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    for (const Area& area : in_use) areas.Free(area.offset);
    EXPECT_EQ(areas.used_bytes(), 0u);
    EXPECT_EQ(areas.Allocate(page_count * kPage), 0u);
  }
}

}  // namespace
}  // namespace syncline
