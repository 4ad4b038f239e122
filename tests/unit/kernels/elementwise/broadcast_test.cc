// Goal: broadcasting visits the right elements in as few loops as possible.
// Method: the offsets of every row against the reference's index arithmetic,
// over shapes that repeat either side, whole and in parts; the number of loops
// of the common cases.

#include "kernels/elementwise/broadcast.h"

#include <tuple>

#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using reference::Dims;

TEST(BroadcastTest, OffsetsAreTheReferences) {
  const std::vector<std::pair<Dims, Dims>> shapes = {
      {{2, 3}, {2, 3}},
      {{4, 3}, {3}},
      {{3}, {4, 3}},
      {{2, 3}, {}},
      {{}, {}},
      {{2, 1, 3}, {4, 1}},
      {{5, 1}, {1, 4}},
      {{2, 3, 4}, {3, 1}},
      {{1}, {1, 1}},
      {{2, 3, 4, 5}, {3, 1, 5}},
      {{2, 1, 4, 1}, {1, 3, 1, 5}},
      {{2, 2, 2, 2}, {2, 1, 2, 1}}};
  for (const auto& shape : shapes) {
    const Dims& a = shape.first;
    const Dims& b = shape.second;
    const auto s = MakeBroadcast(a, b);
    ASSERT_TRUE(s.ok()) << s.status();
    const Dims out = reference::BroadcastTo(a, b);
    EXPECT_EQ(*BroadcastDims(a, b), out);
    EXPECT_EQ(s->count, reference::Product(out));
    EXPECT_EQ(s->a_count, reference::Product(a));
    EXPECT_EQ(s->b_count, reference::Product(b));
    int64_t visited = 0;
    ForEachRow(*s, [&](auto sa, auto sb, int64_t o, int64_t ia, int64_t ib) {
      for (int64_t i = 0; i < s->inner; ++i, ++visited) {
        ASSERT_EQ(o + i, visited);
        ASSERT_EQ(ia + i * sa, reference::BroadcastOffset(visited, out, a));
        ASSERT_EQ(ib + i * sb, reference::BroadcastOffset(visited, out, b));
      }
    });
    EXPECT_EQ(visited, s->count);
    visited = 0;
    for (int64_t p = 0; p < OutermostCount(*s); ++p) {
      const BroadcastPart part = PartOf(*s, p, p + 1);
      ForEachRow(part.shape,
                 [&](auto sa, auto sb, int64_t o, int64_t ia, int64_t ib) {
                   for (int64_t i = 0; i < part.shape.inner; ++i, ++visited) {
                     ASSERT_EQ(part.result + o + i, visited);
                     ASSERT_EQ(part.a + ia + i * sa,
                               reference::BroadcastOffset(visited, out, a));
                     ASSERT_EQ(part.b + ib + i * sb,
                               reference::BroadcastOffset(visited, out, b));
                   }
                 });
    }
    EXPECT_EQ(visited, s->count);
  }
}

TEST(BroadcastTest, AResultMayBeLargerThanBoth) {
  const Dims out = {2, 3, 4, 5};
  for (const auto& pair :
       std::vector<std::pair<Dims, Dims>>{{{}, {}},
                                          {{1, 4, 1}, {4, 1}},
                                          {{5}, {3, 1, 5}},
                                          {{2, 1, 1, 1}, {1, 5}},
                                          {{2, 3, 4, 5}, {}},
                                          {{3, 4, 1}, {2, 1, 1, 1}}}) {
    const Dims& a = pair.first;
    const Dims& b = pair.second;
    const Broadcast s = MakeBroadcastUnder(a, b, out);
    EXPECT_EQ(s.count, reference::Product(out));
    EXPECT_EQ(s.a_count, reference::Product(a));
    EXPECT_EQ(s.b_count, reference::Product(b));
    int64_t visited = 0;
    ForEachRow(s, [&](auto sa, auto sb, int64_t o, int64_t ia, int64_t ib) {
      for (int64_t i = 0; i < s.inner; ++i, ++visited) {
        ASSERT_EQ(o + i, visited);
        ASSERT_EQ(ia + i * sa, reference::BroadcastOffset(visited, out, a));
        ASSERT_EQ(ib + i * sb, reference::BroadcastOffset(visited, out, b));
      }
    });
    EXPECT_EQ(visited, s.count);
  }
}

TEST(BroadcastTest, CommonCasesAreFewLoops) {
  const std::vector<std::tuple<Dims, Dims, size_t>> cases = {
      {{2, 3, 4}, {2, 3, 4}, 0},  // same shape
      {{2, 3, 4}, {}, 0},         // scalar
      {{8, 2, 3}, {2, 3}, 1},     // bias
      {{8, 3}, {8, 1}, 1},        // column
  };
  for (const auto& [a, b, loops] : cases) {
    EXPECT_EQ(MakeBroadcast(a, b)->outer.size(), loops);
  }
}

TEST(BroadcastTest, NothingIsVisitedInAnEmptyResult) {
  const auto s = MakeBroadcast({0, 3}, {3});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->count, 0);
  ForEachRow(*s, [&](auto, auto, int64_t, int64_t, int64_t) { FAIL(); });
}

TEST(BroadcastTest, ShapesThatDoNotFitAreNamed) {
  const auto s = MakeBroadcast({4, 3}, {4});
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(s.status().message(), "shapes [4,3] and [4] do not broadcast");
}

}  // namespace
}  // namespace syncline
