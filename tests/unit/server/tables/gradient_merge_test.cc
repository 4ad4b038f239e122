// Goal: gradients of several workers come out by (slot, key), summed in rank
// order, whatever their keys have in common.
// Method: seeded rows against a sort and a serial sum, bit for bit.

#include "server/tables/gradient_merge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "kernels/optimizer/optimizer.h"
#include "tests/testing/fakes/payloads.h"

namespace syncline::ps {
namespace {

void ExpectSums(size_t dim, size_t workers, size_t limit, uint64_t seed) {
  SCOPED_TRACE(
      absl::StrCat("dim=", dim, " workers=", workers, " limit=", limit));
  const TableMap map = *TableMap::Create(256, 1);
  const auto before = [&](int64_t a, int64_t b) { return map.Before(a, b); };
  Random random(seed);
  std::vector<std::vector<int64_t>> keys(workers);
  std::vector<std::unique_ptr<VectorFloats>> values;
  std::vector<GradientRows> ranks;
  std::map<int64_t, std::vector<float>, decltype(before)> expected(before);
  for (size_t w = 0; w < workers; ++w) {
    const size_t rows = random.Below(200);
    for (size_t i = 0; i < rows; ++i) {
      keys[w].push_back(static_cast<int64_t>(random.Below(300)));
    }
    std::sort(keys[w].begin(), keys[w].end(), before);
    keys[w].erase(std::unique(keys[w].begin(), keys[w].end()), keys[w].end());
    std::vector<float> floats(1 + keys[w].size() * dim);
    for (float& v : floats) {
      v = static_cast<float>(random.Normal() * std::exp2(random.Below(20)));
    }
    for (size_t i = 0; i < keys[w].size(); ++i) {
      const float* const row = floats.data() + 1 + i * dim;
      auto [sum, fresh] =
          expected.emplace(keys[w][i], std::vector<float>(row, row + dim));
      if (!fresh) AddTo(row, sum->second.data(), dim);
    }
    values.push_back(std::make_unique<VectorFloats>(std::move(floats)));
    ranks.push_back(
        {.keys = keys[w], .values = values.back().get(), .first = 1});
  }
  GradientMerge merge(map, dim);
  for (int again = 0; again < 2; ++again) {
    merge.Start(ranks);
    auto next = expected.begin();
    std::vector<int64_t> got(limit);
    std::vector<float> sums(limit * dim);
    size_t count = 0;
    while ((count = merge.Next(limit, got.data(), sums.data())) > 0) {
      for (size_t i = 0; i < count; ++i, ++next) {
        ASSERT_NE(next, expected.end());
        ASSERT_EQ(got[i], next->first);
        ASSERT_TRUE(std::equal(next->second.begin(), next->second.end(),
                               sums.begin() + i * dim));
      }
    }
    ASSERT_EQ(next, expected.end());
  }
}

TEST(GradientMergeTest, SumsInRankOrder) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    for (const size_t workers : {0, 1, 2, 3, 17}) {
      ExpectSums(1 + seed * 3, workers, 1 + seed * 7, seed);
    }
  }
}

TEST(GradientMergeTest, RowsLongerThanAPiece) {
  ExpectSums(2048, 3, 10, 1);
  ExpectSums(5000, 3, 2, 2);
}

}  // namespace
}  // namespace syncline::ps
