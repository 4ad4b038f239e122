// Goal: the table hands out the generator's digits, kept or drawn again, and
// drawing ends when a job is stopped. Method: reads compared with the
// generator, on both sides of the bound; a watch that refuses.

#include "worker/data/formats/digits_table.h"

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/formats/digit_drawing.h"
#include "worker/data/reading/read_watch.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

DigitsSource Source(uint32_t count, uint64_t seed) {
  DigitsSource source;
  source.set_count(count);
  source.set_seed(seed);
  return source;
}

void ExpectGenerated(const SampleTable& table, uint64_t seed, int64_t sample) {
  std::array<uint8_t, kDigitPixels> drawn;
  DrawDigit(seed, sample, absl::MakeSpan(drawn));
  std::vector<float> image(kDigitPixels);
  table.Read(0, {sample}, 1, 0, image.data());
  EXPECT_THAT(image, ElementsAreArray(drawn));
  float label;
  table.Read(1, {sample}, 1, 0, &label);
  EXPECT_EQ(label, DigitLabel(seed, sample));
}

TEST(DigitsTableTest, HandsOutTheGeneratorsDigits) {
  const auto table = LoadDigits(Source(10, 5), {"image", "label"});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), 10);
  EXPECT_EQ((*table)->width(0), 784);
  EXPECT_EQ((*table)->width(1), 1);
  for (int64_t sample = 0; sample < 10; ++sample) {
    ExpectGenerated(**table, 5, sample);
  }
  std::vector<float> two(2 * 784);
  (*table)->Read(0, {9, 3}, 0.5f, 1, two.data());
  std::vector<float> one(784);
  (*table)->Read(0, {3}, 0.5f, 1, one.data());
  EXPECT_TRUE(std::equal(one.begin(), one.end(), two.begin() + 784));
  EXPECT_THAT((*table)->Where(1, 3), HasSubstr("seed 5: record 3"));
}

TEST(DigitsTableTest, DrawsAgainWhatItDoesNotKeep) {
  constexpr int64_t kKept = 3;
  const auto table =
      LoadDigits(Source(kKept + 2, 1), {"image", "label"},
                 /*kept_bytes_max=*/(kKept + 1) * kDigitPixels - 1);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), kKept + 2);
  for (const int64_t sample : {kKept - 1, kKept, kKept + 1}) {
    ExpectGenerated(**table, 1, sample);
  }
}

TEST(DigitsTableTest, DrawingIsAnnouncedAndCanBeStopped) {
  std::string name;
  size_t bytes = 0;
  {
    const ReadWatch watch([&](const std::string& what, size_t count) {
      name = what;
      bytes += count;
      return absl::OkStatus();
    });
    ASSERT_TRUE(LoadDigits(Source(2500, 5), {"image"}).ok());
  }
  EXPECT_EQ(name, "digits with seed 5");
  EXPECT_EQ(bytes, 2500u * kDigitPixels);
  int asked = 0;
  const ReadWatch watch([&](const std::string&, size_t) {
    return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("stopped");
  });
  // Ten million would take minutes.
  EXPECT_EQ(LoadDigits(Source(10'000'000, 5), {"image"}).status(),
            absl::CancelledError("stopped"));
  EXPECT_EQ(asked, 3);
}

TEST(DigitsTableTest, NamesAnUnknownFieldAndAnEmptySource) {
  EXPECT_THAT(
      std::string(LoadDigits(Source(1, 1), {"pixels"}).status().message()),
      HasSubstr("no field \"pixels\""));
  EXPECT_EQ(LoadDigits(Source(0, 1), {"image"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace syncline::worker
