// Goal: initial rows are a function of (seed, table, key) alone, the same bits
// everywhere, and distributed as they say.
// Method: fixed rows, moments and correlations over many keys, the quantile
// against its definition by libm.

#include "kernels/optimizer/row_initializer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using Scheme = RowInitializer::Scheme;
using ::testing::Each;
using ::testing::ElementsAre;

std::vector<float> RowOf(const RowInitializer& rows, int64_t key, size_t dim) {
  std::vector<float> row(dim);
  rows.Fill(key, row.data(), dim);
  return row;
}

TEST(RowInitializerTest, ZerosAndConstants) {
  EXPECT_THAT(RowOf({Scheme::kZeros, 3, 1, "t"}, 5, 7), Each(0.0f));
  EXPECT_THAT(RowOf({Scheme::kConstant, 3, 1, "t"}, 5, 7), Each(3.0f));
}

TEST(RowInitializerTest, RowsAreAFunctionOfSeedTableAndKey) {
  const RowInitializer rows(Scheme::kUniform, 1, 42, "users");
  const RowInitializer same(Scheme::kUniform, 1, 42, "users");
  EXPECT_EQ(RowOf(rows, 7, 33), RowOf(same, 7, 33));
  EXPECT_NE(RowOf(rows, 7, 33), RowOf(rows, 8, 33));
  EXPECT_NE(RowOf(rows, 7, 33),
            RowOf({Scheme::kUniform, 1, 43, "users"}, 7, 33));
  EXPECT_NE(RowOf(rows, 7, 33),
            RowOf({Scheme::kUniform, 1, 42, "items"}, 7, 33));
}

TEST(RowInitializerTest, AShortRowIsTheBeginningOfALongOne) {
  for (const Scheme scheme : {Scheme::kUniform, Scheme::kNormal}) {
    const RowInitializer rows(scheme, 0.5f, 42, "users");
    const std::vector<float> row = RowOf(rows, -3, 1000);
    // Lengths that are vectorised and lengths that are not.
    for (const size_t dim : {1, 3, 8, 17, 64, 999}) {
      EXPECT_TRUE(std::equal(row.begin(), row.begin() + dim,
                             RowOf(rows, -3, dim).begin()));
    }
  }
}

TEST(RowInitializerTest, TheBitsNeverChange) {
  // Other builds and machines, and resumed jobs, depend on them.
  const std::vector<float> uniform =
      RowOf({Scheme::kUniform, 1, 42, "users"}, 7, 3);
  EXPECT_THAT(uniform, ElementsAre(0x1.daa32p-4f, 0x1.0f9a9p-3f, 0x1.9cafp-7f));
  const std::vector<float> normal =
      RowOf({Scheme::kNormal, 1, 42, "users"}, 7, 3);
  EXPECT_THAT(normal,
              ElementsAre(0x1.2a7cf6p-3f, 0x1.55fcdp-3f, 0x1.029f3p-6f));
}

struct Moments {
  double mean = 0, variance = 0, kurtosis = 0, neighbours = 0, keys = 0;
};

// Over 20,000 keys in a row, 16 elements each.
Moments MomentsOf(const RowInitializer& rows) {
  constexpr int kKeys = 20000;
  constexpr size_t kDim = 16;
  Moments m;
  std::vector<float> before(kDim);
  for (int64_t key = 0; key < kKeys; ++key) {
    const std::vector<float> row = RowOf(rows, key, kDim);
    for (size_t i = 0; i < kDim; ++i) {
      const double x = row[i];
      m.mean += x;
      m.variance += x * x;
      m.kurtosis += x * x * x * x;
      if (i > 0) m.neighbours += x * row[i - 1];
      m.keys += x * before[i];
    }
    before = row;
  }
  constexpr double kCount = kKeys * kDim;
  m.mean /= kCount;
  m.variance /= kCount;
  m.kurtosis /= kCount * m.variance * m.variance;
  m.neighbours /= kCount * m.variance;
  m.keys /= kCount * m.variance;
  return m;
}

TEST(RowInitializerTest, UniformHasItsMoments) {
  const Moments m = MomentsOf({Scheme::kUniform, 0.25f, 1, "t"});
  EXPECT_NEAR(m.mean / 0.25, 0, 0.005);
  EXPECT_NEAR(m.variance / (0.25 * 0.25 / 3), 1, 0.01);
  EXPECT_NEAR(m.kurtosis, 1.8, 0.02);
  EXPECT_NEAR(m.neighbours, 0, 0.01);
  EXPECT_NEAR(m.keys, 0, 0.01);
}

TEST(RowInitializerTest, NormalHasItsMoments) {
  const Moments m = MomentsOf({Scheme::kNormal, 0.25f, 1, "t"});
  EXPECT_NEAR(m.mean / 0.25, 0, 0.01);
  EXPECT_NEAR(m.variance / (0.25 * 0.25), 1, 0.02);
  EXPECT_NEAR(m.kurtosis, 3, 0.06);
  EXPECT_NEAR(m.neighbours, 0, 0.01);
  EXPECT_NEAR(m.keys, 0, 0.01);
}

TEST(RowInitializerTest, NormalIsTheQuantileOfTheUniform) {
  const RowInitializer uniform(Scheme::kUniform, 1, 9, "t");
  const RowInitializer normal(Scheme::kNormal, 1, 9, "t");
  double largest = 0;
  for (int64_t key = 0; key < 5000; ++key) {
    const std::vector<float> u = RowOf(uniform, key, 64);
    const std::vector<float> n = RowOf(normal, key, 64);
    for (size_t i = 0; i < u.size(); ++i) {
      ASSERT_GT(u[i], -1);
      ASSERT_LT(u[i], 1);
      largest = std::max<double>(largest, std::fabs(n[i]));
      // The distribution function at n, in a form that is exact in both tails.
      const double tail = std::erfc(std::fabs(n[i]) / std::sqrt(2.0));
      ASSERT_NEAR(tail / (1 - std::fabs(double{u[i]})), 1, 1e-5)
          << "u=" << u[i] << " n=" << n[i];
    }
  }
  EXPECT_GT(largest, 4);
  EXPECT_LT(largest, 5.4);
}

TEST(RowInitializerTest, KeysDoNotCollide) {
  const RowInitializer rows(Scheme::kUniform, 1, 1, "t");
  std::set<std::vector<float>> seen;
  for (int64_t key = -50000; key < 50000; ++key) {
    seen.insert(RowOf(rows, key, 4));
  }
  EXPECT_EQ(seen.size(), 100000u);
}

TEST(RowInitializerTest, XavierCountsDimForBothFans) {
  EXPECT_FLOAT_EQ(RowInitializer::XavierUniform(1, 27), 1.0f / 3);
  EXPECT_FLOAT_EQ(RowInitializer::XavierUniform(2, 27), 2.0f / 3);
  EXPECT_FLOAT_EQ(RowInitializer::XavierNormal(1, 16), 0.25f);
}

}  // namespace
}  // namespace syncline
