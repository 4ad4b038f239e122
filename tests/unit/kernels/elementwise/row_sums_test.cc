// Goal: sums of float32 lose no more digits when they are longer. Method: sums
// of up to 300,000 numbers that a plain loop gets wrong in the third or fourth
// digit, against fp64; few rows against a plain loop, bit for bit.

#include "kernels/elementwise/row_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace syncline {
namespace {

constexpr double kRounding = 1.0 / (1 << 24);

// About 0.1, which rounds the same way again and again.
float Number(int64_t i) { return 0.1f + 1e-4f * static_cast<float>(i % 7); }

TEST(SumOfTest, ItsErrorIsThatOfABlock) {
  for (const int64_t count : {1, 511, 512, 513, 65'537, 300'000}) {
    double want = 0;
    float plain = 0;
    for (int64_t i = 0; i < count; ++i) {
      want += Number(i);
      plain += Number(i);
    }
    const double bound = (kSumBlock / 8 + 4) * kRounding * want;
    EXPECT_NEAR(SumOf(count, Number), want, bound) << count;
    if (count > 100'000) {
      EXPECT_GT(std::fabs(plain - want), 10 * bound);
    }
  }
}

TEST(RowSumsTest, TheirErrorIsThatOfABlock) {
  constexpr int64_t kWidth = 19;
  for (const int64_t rows : {1, 64, 65, 129, 65'537}) {
    std::vector<float> block(kWidth), out(kWidth, 9.0f);
    std::vector<double> total(kWidth, 1e9), want(kWidth);
    std::vector<float> plain(kWidth);
    RowSums sums(kWidth, block.data(), total.data());
    for (int64_t r = 0; r < rows; ++r) {
      sums.Add([=](int64_t i) { return Number(r + i); });
      for (int64_t i = 0; i < kWidth; ++i) {
        want[i] += Number(r + i);
        plain[i] += Number(r + i);
      }
    }
    sums.Write(/*accumulate=*/false, out.data());
    for (int64_t i = 0; i < kWidth; ++i) {
      EXPECT_NEAR(out[i], want[i], (kRowBlock + 2) * kRounding * want[i]);
      if (rows <= kRowBlock) {
        EXPECT_EQ(out[i], plain[i]) << rows;
      }
      if (rows > 60'000) {
        EXPECT_GT(std::fabs(plain[i] - want[i]), 2e-5 * want[i]);
      }
    }
    sums.Write(/*accumulate=*/true, out.data());
    for (int64_t i = 0; i < kWidth; ++i) EXPECT_NEAR(out[i], 2 * want[i], 1);
  }
}

TEST(RowSumsTest, NoRowIsZero) {
  ShortRowSums sums(3);
  float out[] = {1, 2, 3};
  sums->Write(/*accumulate=*/true, out);
  EXPECT_EQ(out[2], 3);
  sums->Write(/*accumulate=*/false, out);
  EXPECT_EQ(out[2], 0);
}

TEST(RowSumsTest, NanStays) {
  ShortRowSums sums(1);
  for (int r = 0; r < 200; ++r) {
    sums->Add([=](int64_t) { return r == 3 ? std::nanf("") : 1.0f; });
  }
  float out = 0;
  sums->Write(/*accumulate=*/false, &out);
  EXPECT_TRUE(std::isnan(out));
}

}  // namespace
}  // namespace syncline
