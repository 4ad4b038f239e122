// Goal: a row's step gives the bits of single units, vectorised or not, and NaN
// is not lost. Method: rows of every length up to some vectors against the
// same row unit by unit. (worker_recurrent_op_test holds forward and gradients
// against the reference.)

#include "kernels/recurrent.h"

#include <cmath>

#include "tests/testing/arrays.h"

namespace syncline {
namespace {

constexpr int64_t kLongest = 37;

std::vector<float> Random(int64_t n, uint64_t seed) {
  return testing::ToFloats(testing::RandomArray({n}, seed).values);
}

// Unit `i` of `gates` gates of n units each.
std::vector<float> UnitOf(const std::vector<float>& row, int64_t gates,
                          int64_t n, int64_t i) {
  std::vector<float> unit;
  for (int64_t g = 0; g < gates; ++g) unit.push_back(row[g * n + i]);
  return unit;
}

TEST(RecurrentTest, AnLstmsRowIsItsUnits) {
  for (int64_t n = 1; n <= kLongest; ++n) {
    const std::vector<float> sums = Random(4 * n, 1), before = Random(n, 2);
    const std::vector<float> dh = Random(n, 3), later = Random(n, 4);
    std::vector<float> gates = sums, c(n), h(n), dc = later, dgates(4 * n);
    LstmCell(n, gates.data(), before.data(), c.data(), h.data());
    LstmCellGradient(n, gates.data(), before.data(), c.data(), dh.data(),
                     dc.data(), dgates.data());
    for (int64_t i = 0; i < n; ++i) {
      std::vector<float> unit = UnitOf(sums, 4, n, i), dunit(4);
      float unit_c = 0, unit_h = 0, unit_dc = later[i];
      LstmCell(1, unit.data(), &before[i], &unit_c, &unit_h);
      LstmCellGradient(1, unit.data(), &before[i], &unit_c, &dh[i], &unit_dc,
                       dunit.data());
      ASSERT_EQ(unit, UnitOf(gates, 4, n, i));
      ASSERT_EQ(dunit, UnitOf(dgates, 4, n, i));
      ASSERT_EQ(unit_c, c[i]);
      ASSERT_EQ(unit_h, h[i]);
      ASSERT_EQ(unit_dc, dc[i]);
    }
  }
}

TEST(RecurrentTest, AGrusRowIsItsUnits) {
  for (int64_t n = 1; n <= kLongest; ++n) {
    const std::vector<float> sums = Random(3 * n, 1), before = Random(n, 2);
    const std::vector<float> product = Random(n, 3), later = Random(n, 4);
    std::vector<float> gates = sums, h(n), dh = later, dgates(3 * n, 0.0f);
    std::vector<float> dproduct(n, 1.0f);
    GruCell(n, gates.data(), product.data(), before.data(), h.data());
    GruCellGradient(n, gates.data(), before.data(), dh.data(), dgates.data());
    GruResetGradient(n, gates.data() + n, product.data(), dgates.data() + 2 * n,
                     dgates.data() + n, /*accumulate=*/true, dproduct.data());
    for (int64_t i = 0; i < n; ++i) {
      std::vector<float> unit = UnitOf(sums, 3, n, i), dunit(3, 0.0f);
      float unit_h = 0, unit_dh = later[i], unit_dproduct = 1;
      GruCell(1, unit.data(), &product[i], &before[i], &unit_h);
      GruCellGradient(1, unit.data(), &before[i], &unit_dh, dunit.data());
      GruResetGradient(1, &unit[1], &product[i], &dunit[2], &dunit[1],
                       /*accumulate=*/true, &unit_dproduct);
      ASSERT_EQ(unit, UnitOf(gates, 3, n, i));
      ASSERT_EQ(dunit, UnitOf(dgates, 3, n, i));
      ASSERT_EQ(unit_h, h[i]);
      ASSERT_EQ(unit_dh, dh[i]);
      ASSERT_EQ(unit_dproduct, dproduct[i]);
    }
  }
}

TEST(RecurrentTest, GatesSaturateAndNanStays) {
  // Input, output and forget gate are 1; then the memory is what it was, and 1.
  std::vector<float> gates = {100, 100, 100, 100};
  float c = 0, h = 0;
  const float before = 3;
  LstmCell(1, gates.data(), &before, &c, &h);
  EXPECT_EQ(c, 4);
  EXPECT_FLOAT_EQ(h, std::tanh(4.0f));
  gates = {0, std::nanf(""), 0, 0};
  LstmCell(1, gates.data(), &before, &c, &h);
  EXPECT_TRUE(std::isnan(h));
  EXPECT_FALSE(std::isnan(c));
}

}  // namespace
}  // namespace syncline
