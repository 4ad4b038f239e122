// Goal: neither blocks of channels nor parts of them change what a
// normalisation is. Method: the same arrays in both layouts; parts against the
// whole, bit for bit. Formulas are held against the reference by
// worker_op_table_test.

#include "kernels/normalization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <vector>

#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using testing::DoubleArray;
using testing::InBlocks;
using testing::RandomArray;
using testing::ToFloats;

// Everything that is computed of x and dy, [batch, channels, plane].
struct Results {
  std::vector<float> mean, variance, y, dx, dscale, dbias;
};

class NormalizationTest : public ::testing::TestWithParam<int64_t> {
 protected:
  static constexpr int64_t kBatch = 3, kChannels = 32;

  NormalizationTest()
      : plane_(GetParam()),
        x_(RandomArray({kBatch, kChannels, plane_}, 1)),
        dy_(RandomArray({kBatch, kChannels, plane_}, 2)),
        scale_(ToFloats(RandomArray({kChannels}, 3).values)),
        bias_(ToFloats(RandomArray({kChannels}, 4).values)) {}

  NormalizationShape Shape(int64_t block) const {
    NormalizationShape shape;
    shape.batch = kBatch;
    shape.channels = kChannels;
    shape.plane = plane_;
    shape.across_batch = true;
    shape.block = block;
    return shape;
  }

  // In parts of `channels`.
  Results Run(int64_t block, int64_t channels, bool fixed) const {
    const NormalizationShape shape = Shape(block);
    const std::vector<float> x = ToFloats(InBlocks(x_, block).values);
    const std::vector<float> dy = ToFloats(InBlocks(dy_, block).values);
    std::vector<float> inverse(kChannels);
    std::vector<double> sums(GradientSums(shape));
    Results r;
    for (std::vector<float>* by_channel :
         {&r.mean, &r.variance, &r.dscale, &r.dbias}) {
      by_channel->resize(kChannels);
    }
    r.y.resize(x.size());
    r.dx.assign(x.size(), 1);
    for (int64_t c = 0; c < kChannels; c += channels) {
      const NormalizationShape part = shape.Channels(c, c + channels);
      const int64_t at = c * plane_;
      PlaneMoments(part, &x[at], &r.mean[c], &r.variance[c]);
      InverseDeviation(channels, 1e-3f, &r.variance[c], &inverse[c]);
      NormalizePlanes(part, &x[at], &r.mean[c], &inverse[c], &scale_[c],
                      &bias_[c], &r.y[at]);
      NormalizePlanesGradient(part, {.x = &x[at],
                                     .dy = &dy[at],
                                     .mean = &r.mean[c],
                                     .inverse = &inverse[c],
                                     .scale = &scale_[c],
                                     .fixed_statistics = fixed,
                                     .dx = &r.dx[at],
                                     .accumulate_x = true,
                                     .dscale = &r.dscale[c],
                                     .accumulate_scale = false,
                                     .dbias = &r.dbias[c],
                                     .accumulate_bias = false,
                                     .sums = &sums[c]});
    }
    return r;
  }

  std::vector<double> Blocked(const std::vector<float>& values,
                              int64_t block) const {
    DoubleArray array({kBatch, kChannels, plane_});
    array.values.assign(values.begin(), values.end());
    return InBlocks(array, block).values;
  }

  const int64_t plane_;
  const DoubleArray x_, dy_;
  const std::vector<float> scale_, bias_;
};

std::vector<double> Wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

TEST_P(NormalizationTest, BlocksOfChannelsAreAnotherLayoutOfTheSame) {
  for (const int64_t block : {8, 16}) {
    for (const bool fixed : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "block " << block << ", statistics "
                                        << (fixed ? "fixed" : "of the batch"));
      const Results rows = Run(1, kChannels, fixed);
      const Results blocks = Run(block, kChannels, fixed);
      testing::ExpectNear(blocks.mean, Wide(rows.mean), 1e-6);
      testing::ExpectNear(blocks.variance, Wide(rows.variance), 1e-6);
      testing::ExpectNear(blocks.dscale, Wide(rows.dscale), 1e-5);
      testing::ExpectNear(blocks.dbias, Wide(rows.dbias), 1e-5);
      testing::ExpectNear(blocks.y, Blocked(rows.y, block), 1e-5);
      testing::ExpectNear(blocks.dx, Blocked(rows.dx, block), 1e-5);
    }
  }
}

TEST_P(NormalizationTest, PartsHaveTheBitsOfTheWhole) {
  for (const int64_t block : {1, 8, 16}) {
    const Results whole = Run(block, kChannels, /*fixed=*/false);
    const Results parts = Run(block, kChannels / 2, /*fixed=*/false);
    EXPECT_EQ(whole.mean, parts.mean);
    EXPECT_EQ(whole.variance, parts.variance);
    EXPECT_EQ(whole.y, parts.y);
    EXPECT_EQ(whole.dx, parts.dx);
    EXPECT_EQ(whole.dscale, parts.dscale);
    EXPECT_EQ(whole.dbias, parts.dbias);
  }
}

// Planes of a matrix (1), of whole fours of elements, and with a remainder.
INSTANTIATE_TEST_SUITE_P(Planes, NormalizationTest,
                         ::testing::Values(1, 3, 4, 21));

// Of 30,000 planes, or of planes of 90,000 elements.
struct LongCase {
  int64_t batch, channels, plane, block;
  bool across_batch;
  int64_t group;
};

std::ostream& operator<<(std::ostream& out, const LongCase& c) {
  return out << c.batch << " x " << c.channels << " x " << c.plane << " block "
             << c.block;
}

class LongNormalizationTest : public ::testing::TestWithParam<LongCase> {
 protected:
  LongNormalizationTest() {
    const LongCase& c = GetParam();
    shape_.batch = c.batch;
    shape_.channels = c.channels;
    shape_.plane = c.plane;
    shape_.across_batch = c.across_batch;
    shape_.group = c.group;
    shape_.block = c.block;
    const int64_t per_sample = c.channels * c.plane;
    for (int64_t i = 0; i < c.batch * per_sample; ++i) {
      x_.push_back(7.1f + 0.3f * static_cast<float>(i * i % 11));
      dy_.push_back(0.1f + 1e-3f * static_cast<float>(i * i % 11));
      const int64_t in_sample = i % per_sample;
      channel_.push_back(c.block == 1
                             ? in_sample / c.plane
                             : in_sample / (c.plane * c.block) * c.block +
                                   i % c.block);
      statistic_.push_back(shape_.StatisticOf(i / per_sample, channel_.back()));
    }
    mean_.resize(shape_.statistic_count());
    variance_.resize(shape_.statistic_count());
    PlaneMoments(shape_, x_.data(), mean_.data(), variance_.data());
  }

  NormalizationShape shape_;
  std::vector<float> x_, dy_;
  std::vector<int64_t> channel_, statistic_;  // of each element
  std::vector<float> mean_, variance_;
};

TEST_P(LongNormalizationTest, MomentsKeepTheirDigits) {
  std::vector<double> sums(mean_.size()), squares(mean_.size());
  const double share = 1.0 / static_cast<double>(shape_.elements());
  for (size_t i = 0; i < x_.size(); ++i) sums[statistic_[i]] += x_[i] * share;
  for (size_t i = 0; i < x_.size(); ++i) {
    const double deviation = x_[i] - sums[statistic_[i]];
    squares[statistic_[i]] += deviation * deviation * share;
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_NEAR(mean_[i], sums[i], 4e-6 * sums[i]);
    EXPECT_NEAR(variance_[i], squares[i], 5e-6 * squares[i]);
  }
}

TEST_P(LongNormalizationTest, GradientsKeepTheirDigits) {
  std::vector<float> inverse(mean_.size());
  InverseDeviation(shape_.statistic_count(), 1e-3f, variance_.data(),
                   inverse.data());
  const std::vector<float> scale(shape_.channels, 1.5f);
  std::vector<float> dx(x_.size()), dscale(scale.size()), dbias(scale.size());
  std::vector<double> memory(GradientSums(shape_));
  NormalizePlanesGradient(shape_, {.x = x_.data(),
                                   .dy = dy_.data(),
                                   .mean = mean_.data(),
                                   .inverse = inverse.data(),
                                   .scale = scale.data(),
                                   .fixed_statistics = false,
                                   .dx = dx.data(),
                                   .accumulate_x = false,
                                   .dscale = dscale.data(),
                                   .accumulate_scale = false,
                                   .dbias = dbias.data(),
                                   .accumulate_bias = false,
                                   .sums = memory.data()});
  // Means of scale * dy and of that times the normalised x, by statistic; sums
  // by channel, and of absolute values, which errors go by.
  std::vector<double> of_dy(mean_.size()), of_dy_x(mean_.size());
  std::vector<double> bias(scale.size()), slope(scale.size());
  std::vector<double> bound(scale.size());
  const double share = 1.5 / static_cast<double>(shape_.elements());
  const auto normalised = [&](size_t i) {
    const int64_t at = statistic_[i];
    return (double{x_[i]} - mean_[at]) * inverse[at];
  };
  for (size_t i = 0; i < x_.size(); ++i) {
    of_dy[statistic_[i]] += dy_[i] * share;
    of_dy_x[statistic_[i]] += dy_[i] * normalised(i) * share;
    bias[channel_[i]] += dy_[i];
    slope[channel_[i]] += dy_[i] * normalised(i);
    bound[channel_[i]] += std::fabs(dy_[i] * normalised(i));
  }
  constexpr double kRounding = 1.0 / (1 << 24);
  for (size_t c = 0; c < scale.size(); ++c) {
    EXPECT_NEAR(dbias[c], bias[c], 72 * kRounding * bias[c]);
    EXPECT_NEAR(dscale[c], slope[c], 76 * kRounding * bound[c]);
  }
  for (size_t i = 0; i < dx.size(); ++i) {
    const int64_t at = statistic_[i];
    ASSERT_NEAR(
        dx[i],
        inverse[at] * (1.5 * dy_[i] - of_dy[at] - normalised(i) * of_dy_x[at]),
        1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Planes, LongNormalizationTest,
                         ::testing::Values(LongCase{30'000, 2, 3, 1, true, 1},
                                           LongCase{30'000, 1, 1, 1, true, 1},
                                           LongCase{3'000, 8, 5, 8, true, 1},
                                           LongCase{1, 8, 90'000, 8, true, 1},
                                           LongCase{2, 1, 90'000, 1, true, 1},
                                           LongCase{1, 30'000, 3, 1, false,
                                                    30'000},
                                           LongCase{2, 70, 4, 1, false, 35},
                                           LongCase{3, 130, 2, 1, true, 1}));

}  // namespace
}  // namespace syncline
