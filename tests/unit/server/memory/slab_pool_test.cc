// Goal: slabs do not overlap, are zeroed and aligned, of any size.
// Method: fill each with its number, look at all at the end.

#include "server/memory/slab_pool.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

TEST(SlabPoolTest, SlabsAreZeroedAlignedAndApart) {
  for (const bool huge : {false, true}) {
    for (const size_t bytes : {size_t{1}, size_t{100}, size_t{16384},
                               size_t{300000}, size_t{3} << 20}) {
      SlabPool pool(bytes, huge);
      EXPECT_GE(pool.slab_bytes(), bytes);
      std::vector<char*> slabs;
      for (int i = 0; i < 20; ++i) {
        char* const slab = pool.Take();
        ASSERT_NE(slab, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(slab) % 64, 0u);
        ASSERT_EQ(std::count(slab, slab + pool.slab_bytes(), 0),
                  static_cast<std::ptrdiff_t>(pool.slab_bytes()));
        std::memset(slab, i + 1, pool.slab_bytes());
        slabs.push_back(slab);
      }
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(slabs[i][0], i + 1);
        EXPECT_EQ(slabs[i][pool.slab_bytes() - 1], i + 1);
      }
    }
  }
}

}  // namespace
}  // namespace syncline::ps
