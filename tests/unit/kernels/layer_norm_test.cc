// Goal: normalised rows where numbers are awkward. Method: rows far from zero,
// constant rows and NaN. (worker_op_table_test holds forward and gradients
// against the reference.)

#include "kernels/layer_norm.h"

#include <cmath>

#include "kernels/reference/reference_layer_norm.h"
#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using testing::ExpectNear;
using testing::RandomArray;
using testing::ToFloats;

TEST(LayerNormTest, RowsFarFromZeroKeepTheirDigits) {
  testing::DoubleArray x = RandomArray({4, 37}, 1);
  for (double& v : x.values) v = static_cast<float>(v + 1000);
  const testing::DoubleArray scale = RandomArray({37}, 2);
  const testing::DoubleArray bias = RandomArray({37}, 3);
  std::vector<float> y(x.values.size()), mean(4), inverse(4);
  NormalizeRows({.rows = 4, .n = 37}, ToFloats(x.values).data(),
                ToFloats(scale.values).data(), ToFloats(bias.values).data(),
                y.data(), mean.data(), inverse.data());
  ExpectNear(y,
             reference::LayerNorm<double>({.axis = 1}, {x, scale, bias}).values,
             1e-3);
  EXPECT_NEAR(mean[0], 1000, 1);
}

TEST(LayerNormTest, AConstantRowIsItsBias) {
  const std::vector<float> x(5, 3.0f), scale(5, 2.0f), bias(5, 0.5f);
  std::vector<float> y(5), mean(1), inverse(1);
  NormalizeRows({.rows = 1, .n = 5}, x.data(), scale.data(), bias.data(),
                y.data(), mean.data(), inverse.data());
  EXPECT_EQ(y, bias);
  EXPECT_EQ(mean[0], 3.0f);
}

TEST(LayerNormTest, WithoutAMeanNoneIsWritten) {
  const std::vector<float> x = {3, 4}, scale = {1, 1};
  std::vector<float> y(2);
  float inverse = 0;
  NormalizeRows({.rows = 1, .n = 2, .epsilon = 0, .centred = false}, x.data(),
                scale.data(), nullptr, y.data(), nullptr, &inverse);
  EXPECT_FLOAT_EQ(inverse, 1 / std::sqrt(12.5f));
  ExpectNear(y, {3 / std::sqrt(12.5), 4 / std::sqrt(12.5)}, 1e-6);
}

TEST(LayerNormTest, NanSpreadsOverItsRowOnly) {
  const std::vector<float> x = {1, std::nanf(""), 1, 2}, scale = {1, 1};
  std::vector<float> y(4), mean(2), inverse(2);
  NormalizeRows({.rows = 2, .n = 2}, x.data(), scale.data(), nullptr, y.data(),
                mean.data(), inverse.data());
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_FALSE(std::isnan(y[2]) || std::isnan(y[3]));
}

TEST(LayerNormTest, GradientsOverManyRowsKeepTheirDigits) {
  constexpr int64_t kRows = 70'000, kN = 3;
  std::vector<float> x(kRows * kN), dy(x.size(), 0.1f);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 3) + 0.01f * static_cast<float>(i % 7);
  }
  const std::vector<float> scale(kN, 1.0f), bias(kN);
  std::vector<float> y(x.size()), mean(kRows), inverse(kRows);
  const RowNorm shape = {.rows = kRows, .n = kN};
  NormalizeRows(shape, x.data(), scale.data(), bias.data(), y.data(),
                mean.data(), inverse.data());
  std::vector<double> want_scale(kN), want_bias(kN), magnitude(kN);
  for (int64_t i = 0; i < kRows * kN; ++i) {
    want_scale[i % kN] += double{dy[i]} * y[i];
    magnitude[i % kN] += std::fabs(double{dy[i]} * y[i]);
    want_bias[i % kN] += dy[i];
  }
  std::vector<float> dscale(kN), dbias(kN);
  std::vector<double> scratch(RowNormScratchBytes(kN) / sizeof(double));
  NormalizeRowsGradient(shape, x.data(), scale.data(), mean.data(),
                        inverse.data(), dy.data(),
                        {.dscale = dscale.data(),
                         .dbias = dbias.data(),
                         .scratch = scratch.data()});
  for (int64_t i = 0; i < kN; ++i) {
    EXPECT_NEAR(dscale[i], want_scale[i], 70 * 6e-8 * magnitude[i]);
    EXPECT_NEAR(dbias[i], want_bias[i], 70 * 6e-8 * want_bias[i]);
  }
}

}  // namespace
}  // namespace syncline
