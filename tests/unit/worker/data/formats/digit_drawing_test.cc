// Goal: the digits are the same bytes on every machine and compiler, differ
// from each other, and cover the classes evenly. That they can be learned, but
// not without errors, is tested by training on them.
// Method: a checksum over many digits; counts.

#include "worker/data/formats/digit_drawing.h"

#include <array>
#include <set>
#include <string>
#include <vector>

#include "common/base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

std::string Draw(uint64_t seed, int64_t sample) {
  std::array<uint8_t, kDigitPixels> pixels;
  DrawDigit(seed, sample, absl::MakeSpan(pixels));
  return std::string(pixels.begin(), pixels.end());
}

TEST(DigitDrawingTest, TheSameBytesEverywhere) {
  uint32_t crc = 0;
  std::string labels;
  for (int64_t sample = 0; sample < 2000; ++sample) {
    crc = ExtendCrc32c(crc, Draw(7, sample));
    if (sample < 20) labels.push_back('0' + DigitLabel(7, sample));
  }
  // Changing these changes every result that was measured on the digits.
  EXPECT_EQ(labels, "89228380260361470148");
  EXPECT_EQ(crc, 20927721u);
}

TEST(DigitDrawingTest, DependsOnSeedAndSampleAlone) {
  EXPECT_EQ(Draw(1, 5), Draw(1, 5));
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int64_t sample = 0; sample < 100; ++sample) {
      seen.insert(Draw(seed, sample));
    }
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(DigitDrawingTest, ClassesAreEvenlyDrawn) {
  std::array<int, 10> counts = {};
  for (int64_t sample = 0; sample < 10'000; ++sample) {
    ++counts.at(DigitLabel(3, sample));
  }
  // Deviation 30; the seed is fixed.
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(DigitDrawingTest, InkOnDarkGroundInsideTheFrame) {
  for (int64_t sample = 0; sample < 500; ++sample) {
    const std::string digit = Draw(4, sample);
    int bright = 0;
    int edge = 0;
    for (int i = 0; i < kDigitPixels; ++i) {
      const bool ink = static_cast<uint8_t>(digit[i]) > 80;
      const int x = i % kDigitSide;
      const int y = i / kDigitSide;
      bright += ink;
      edge += ink &&
              (x == 0 || y == 0 || x == kDigitSide - 1 || y == kDigitSide - 1);
    }
    EXPECT_GT(bright, 10) << sample;
    EXPECT_LT(bright, kDigitPixels / 2) << sample;
    EXPECT_LT(edge, 12) << sample;
  }
}

}  // namespace
}  // namespace syncline::worker
