// Goal: sums by channel are those of their numbers, in every layout, of any
// length, on any number of threads. Method: against sums in fp64 that go by the
// definition of the layout, with the bound of row_sums.h; bits against bits.

#include "kernels/channel_sums.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/threads.h"

namespace syncline {
namespace {

constexpr double kRounding = 1.0 / (1 << 24);

// About 0.1, which rounds the same way again and again; other for each channel.
float Number(int64_t channel, int64_t i) {
  return 0.1f + 1e-3f * static_cast<float>(channel % 13) +
         1e-4f * static_cast<float>(i % 7);
}

std::vector<float> Planes(const ChannelPlanes& s) {
  std::vector<float> x(s.batch * s.channels * s.plane);
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t c = 0; c < s.channels; ++c) {
      for (int64_t p = 0; p < s.plane; ++p) {
        const int64_t tile = n * (s.channels / s.block) + c / s.block;
        x[(tile * s.plane + p) * s.block + c % s.block] =
            Number(c, n * s.plane + p);
      }
    }
  }
  return x;
}

std::vector<float> Sums(const ChannelPlanes& s, const std::vector<float>& x,
                        bool accumulate, int threads) {
  SetComputeThreads(threads);
  std::vector<float> sums(s.channels, 5);
  SumChannels(s, x.data(), accumulate, sums.data());
  return sums;
}

class ChannelSumsTest : public ::testing::TestWithParam<ChannelPlanes> {};

TEST_P(ChannelSumsTest, AreThoseOfTheirNumbers) {
  const ChannelPlanes& s = GetParam();
  const std::vector<float> x = Planes(s);
  const std::vector<float> sums = Sums(s, x, /*accumulate=*/false, 1);
  const std::vector<float> added = Sums(s, x, /*accumulate=*/true, 1);
  for (int64_t c = 0; c < s.channels; ++c) {
    double want = 0;
    for (int64_t i = 0; i < s.batch * s.plane; ++i) want += Number(c, i);
    EXPECT_NEAR(sums[c], want, 72 * kRounding * want) << c;
    EXPECT_EQ(added[c], 5 + sums[c]) << c;
  }
}

TEST_P(ChannelSumsTest, HaveTheSameBitsOnAnyNumberOfThreads) {
  const std::vector<float> x = Planes(GetParam());
  const std::vector<float> one = Sums(GetParam(), x, /*accumulate=*/false, 1);
  for (const int threads : {2, 3}) {
    EXPECT_EQ(Sums(GetParam(), x, /*accumulate=*/false, threads), one);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Planes, ChannelSumsTest,
    ::testing::Values(
        ChannelPlanes{4, 3, 67'600 / 4, 1}, ChannelPlanes{1, 2, 400'000, 1},
        ChannelPlanes{300, 600, 1, 1}, ChannelPlanes{70'000, 3, 1, 1},
        ChannelPlanes{2'000, 5, 49, 1}, ChannelPlanes{4, 32, 67'600 / 8, 16},
        ChannelPlanes{1, 8, 100'352, 8}, ChannelPlanes{2'000, 24, 49, 8},
        ChannelPlanes{70'000, 16, 1, 16}),
    [](const ::testing::TestParamInfo<ChannelPlanes>& info) {
      const ChannelPlanes& s = info.param;
      return std::to_string(s.batch) + "x" + std::to_string(s.channels) + "x" +
             std::to_string(s.plane) + "block" + std::to_string(s.block);
    });

TEST(ChannelSumsOfNoneTest, AreZero) {
  for (const int64_t batch : {0, 2}) {
    const ChannelPlanes none = {batch, 2, 0, 1};
    EXPECT_EQ(Sums(none, {}, /*accumulate=*/false, 1),
              std::vector<float>({0, 0}));
    EXPECT_EQ(Sums(none, {}, /*accumulate=*/true, 1),
              std::vector<float>({5, 5}));
  }
}

}  // namespace
}  // namespace syncline
