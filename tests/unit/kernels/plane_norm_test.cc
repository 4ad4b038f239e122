// Goal: neither blocks of channels nor parts of them change what a
// normalisation is. Method: the same arrays in both layouts; parts against the
// whole, bit for bit. Formulas are held against the reference by
// worker_op_table_test.

#include "kernels/plane_norm.h"

#include <gtest/gtest.h>

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

class PlaneNormTest : public ::testing::TestWithParam<int64_t> {
 protected:
  static constexpr int64_t kBatch = 3, kChannels = 32;

  PlaneNormTest()
      : plane_(GetParam()),
        x_(RandomArray({kBatch, kChannels, plane_}, 1)),
        dy_(RandomArray({kBatch, kChannels, plane_}, 2)),
        scale_(ToFloats(RandomArray({kChannels}, 3).values)),
        bias_(ToFloats(RandomArray({kChannels}, 4).values)) {}

  PlaneNorm Shape(int64_t block) const {
    PlaneNorm shape;
    shape.batch = kBatch;
    shape.channels = kChannels;
    shape.plane = plane_;
    shape.across_batch = true;
    shape.block = block;
    return shape;
  }

  // In parts of `channels`.
  Results Run(int64_t block, int64_t channels, bool fixed) const {
    const PlaneNorm shape = Shape(block);
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
      const PlaneNorm part = shape.Channels(c, c + channels);
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

TEST_P(PlaneNormTest, BlocksOfChannelsAreAnotherLayoutOfTheSame) {
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

TEST_P(PlaneNormTest, PartsHaveTheBitsOfTheWhole) {
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

// Those of a matrix too; of whole fours of elements and of what is left.
INSTANTIATE_TEST_SUITE_P(Planes, PlaneNormTest, ::testing::Values(1, 3, 4, 21));

// Of 30,000 planes, or of planes of 90,000 elements.
TEST(LongPlaneNormTest, MomentsAndGradientsKeepTheirDigits) {
  struct Case {
    int64_t batch, channels, plane, block;
    bool across_batch;
    int64_t group;
  };
  for (const Case& c :
       {Case{30'000, 2, 3, 1, true, 1}, Case{30'000, 1, 1, 1, true, 1},
        Case{3'000, 8, 5, 8, true, 1}, Case{1, 8, 90'000, 8, true, 1},
        Case{2, 1, 90'000, 1, true, 1}, Case{1, 30'000, 3, 1, false, 30'000},
        Case{2, 70, 4, 1, false, 35}, Case{3, 130, 2, 1, true, 1}}) {
    SCOPED_TRACE(::testing::Message() << c.batch << " x " << c.channels << " x "
                                      << c.plane << " block " << c.block);
    PlaneNorm shape;
    shape.batch = c.batch;
    shape.channels = c.channels;
    shape.plane = c.plane;
    shape.across_batch = c.across_batch;
    shape.group = c.group;
    shape.block = c.block;
    std::vector<float> x(c.batch * c.channels * c.plane);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = 7.1f + 0.3f * static_cast<float>(i * i % 11);
    }
    const auto statistic_of = [&](int64_t i) {
      const int64_t per_sample = c.channels * c.plane;
      const int64_t in_sample = i % per_sample;
      const int64_t channel =
          c.block == 1
              ? in_sample / c.plane
              : in_sample / (c.plane * c.block) * c.block + i % c.block;
      return shape.StatisticOf(i / per_sample, channel);
    };
    std::vector<double> sums(shape.statistic_count());
    std::vector<double> squares(sums.size());
    const double share = 1.0 / static_cast<double>(shape.elements());
    for (size_t i = 0; i < x.size(); ++i) sums[statistic_of(i)] += x[i] * share;
    for (size_t i = 0; i < x.size(); ++i) {
      const double deviation = x[i] - sums[statistic_of(i)];
      squares[statistic_of(i)] += deviation * deviation * share;
    }
    std::vector<float> mean(sums.size()), variance(sums.size());
    PlaneMoments(shape, x.data(), mean.data(), variance.data());
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_NEAR(mean[i], sums[i], 4e-6 * sums[i]);
      EXPECT_NEAR(variance[i], squares[i], 5e-6 * squares[i]);
    }
  }
}

}  // namespace
}  // namespace syncline
