// Goal: a walk visits what index arithmetic says, in order, with as few loops
// as possible. Method: offsets of every element against a sum of index times
// stride, over shapes with repeats, steps backwards, ones and zeros.

#include "kernels/elementwise/strided.h"

#include "gtest/gtest.h"
#include "kernels/reference/reference.h"

namespace syncline {
namespace {

using Dims = std::vector<int64_t>;

void ExpectOffsets(const Dims& dims, const Dims& a, const Dims& b) {
  const Strided<2> walk(dims, {a, b}, {100, 7});
  std::vector<std::array<int64_t, 2>> got;
  walk.ForEachRow([&](int64_t y, const std::array<int64_t, 2>& at) {
    ASSERT_EQ(y, static_cast<int64_t>(got.size()));
    for (int64_t i = 0; i < walk.inner(); ++i) {
      got.push_back({at[0] + i * walk.inner_strides()[0],
                     at[1] + i * walk.inner_strides()[1]});
    }
  });
  ASSERT_EQ(static_cast<int64_t>(got.size()), reference::Product(dims));
  EXPECT_EQ(walk.count(), reference::Product(dims));
  for (size_t i = 0; i < got.size(); ++i) {
    const Dims index = reference::IndexOf(i, dims);
    std::array<int64_t, 2> want = {100, 7};
    for (size_t d = 0; d < dims.size(); ++d) {
      want[0] += index[d] * a[d];
      want[1] += index[d] * b[d];
    }
    EXPECT_EQ(got[i], want) << "element " << i;
  }
}

TEST(StridedTest, OffsetsAreThoseOfIndexArithmetic) {
  ExpectOffsets({}, {}, {});
  ExpectOffsets({5}, {1}, {0});
  ExpectOffsets({2, 3, 4}, {12, 4, 1}, {0, 1, 3});
  ExpectOffsets({2, 3, 4}, {-12, 4, -1}, {5, 0, 0});
  ExpectOffsets({3, 1, 2, 1, 2}, {9, 100, 2, 3, 1}, {4, 0, 2, 0, 1});
  ExpectOffsets({3, 0, 2}, {2, 2, 1}, {0, 0, 0});
  ExpectOffsets({1, 1}, {3, 4}, {5, 6});
}

TEST(StridedTest, PartsOfTheOutermostLoopAreTheWhole) {
  for (const Dims& dims : {Dims{5, 3, 4}, Dims{7}, Dims{}, Dims{4, 0, 2}}) {
    const Strided<1> walk(dims, {BroadcastStrides(dims, dims)}, {9});
    using Row = std::pair<int64_t, int64_t>;
    std::vector<Row> whole, parts;
    walk.ForEachRow([&](int64_t y, const auto& at) {
      whole.push_back({y, at[0]});
    });
    for (int64_t i = 0; i < walk.outermost(); ++i) {
      walk.ForEachRowIn(i, i + 1, [&](int64_t y, const auto& at) {
        parts.push_back({y, at[0]});
      });
    }
    EXPECT_EQ(parts, whole);
  }
  const Strided<1> turned({3, 2, 4}, {Dims{1, 12, 3}});
  EXPECT_EQ(turned.outermost(), 3);
  turned.ForEachRowIn(2, 3, [&](int64_t y, const auto& at) {
    EXPECT_EQ(at[0], 2 + (y - 16) / 4 * 12);
  });
}

TEST(StridedTest, WhatRunsOnIsOneLoop) {
  const Dims dims = {2, 3, 4};
  const Strided<1> dense(dims, {DenseStrides(dims)});
  EXPECT_EQ(dense.inner(), 24);
  const Strided<1> row(dims, {BroadcastStrides({4}, dims)});
  EXPECT_EQ(row.inner(), 4);
  const Strided<1> scalar(dims, {BroadcastStrides({}, dims)});
  EXPECT_EQ(scalar.inner(), 24);
  EXPECT_EQ(scalar.inner_strides()[0], 0);
}

TEST(StridedTest, StridesOfBroadcasts) {
  EXPECT_EQ(DenseStrides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(DenseStrides({}), Dims{});
  EXPECT_EQ(BroadcastStrides({3, 1}, {2, 3, 4}), (Dims{0, 1, 0}));
  EXPECT_EQ(BroadcastStrides({1}, {2, 2}), (Dims{0, 0}));
}

}  // namespace
}  // namespace syncline
