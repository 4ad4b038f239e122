// Goal: lines are Criteo's format, the same bytes everywhere, with Zipf's
// frequencies, and can be learned from. Method: lines parsed again, counts
// against the distribution, the teacher's own order against its labels.

#include "scheduler/ctl/criteo_generator.h"

#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/crc32c.h"
#include "common/job/auc.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

std::vector<std::string> Columns(const CriteoGenerator& generator,
                                 uint64_t number) {
  std::string text;
  generator.Draw(number, &text);
  EXPECT_EQ(text.back(), '\n');
  text.pop_back();
  return absl::StrSplit(text, '\t');
}

TEST(ZipfDistributionTest, FrequenciesAreThoseOfTheDistribution) {
  for (const double exponent : {0.5, 1.0, 1.05, 2.0}) {
    for (const uint64_t size : {1, 2, 50}) {
      SCOPED_TRACE(absl::StrCat("exponent=", exponent, " size=", size));
      const ZipfDistribution zipf(size, exponent);
      Random random(1);
      constexpr int kDraws = 200'000;
      std::vector<int> counts(size + 1);
      for (int i = 0; i < kDraws; ++i) ++counts.at(zipf.Draw(&random));
      EXPECT_EQ(counts[0], 0);
      double total = 0;
      for (uint64_t k = 1; k <= size; ++k) total += std::pow(k, -exponent);
      for (uint64_t k = 1; k <= size; ++k) {
        const double expected = kDraws * std::pow(k, -exponent) / total;
        EXPECT_NEAR(counts[k], expected, 5 * std::sqrt(expected) + 1) << k;
      }
    }
  }
}

TEST(ZipfDistributionTest, LargeOnesStayInRange) {
  const ZipfDistribution zipf(4'000'000, 1.05);
  Random random(2);
  uint64_t largest = 0;
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t k = zipf.Draw(&random);
    ASSERT_GE(k, 1u);
    ASSERT_LE(k, 4'000'000u);
    largest = std::max(largest, k);
  }
  EXPECT_GT(largest, 3'000'000u);
}

TEST(CriteoGeneratorTest, LinesHaveCriteosFormat) {
  const CriteoGenerator generator({.seed = 3});
  int missing = 0;
  for (int row = 0; row < 200; ++row) {
    const std::vector<std::string> columns = Columns(generator, row);
    ASSERT_EQ(columns.size(), 40u);
    EXPECT_TRUE(columns[0] == "0" || columns[0] == "1");
    for (int i = 1; i <= 13; ++i) {
      EXPECT_EQ(columns[i].find_first_not_of("0123456789"), std::string::npos);
      missing += columns[i].empty();
    }
    for (int i = 14; i < 40; ++i) {
      EXPECT_TRUE(columns[i].empty() || columns[i].size() == 8);
      EXPECT_EQ(columns[i].find_first_not_of("0123456789abcdef"),
                std::string::npos);
      missing += columns[i].empty();
    }
  }
  EXPECT_GT(missing, 0);
}

TEST(CriteoGeneratorTest, TheSameBytesEverywhere) {
  const CriteoGenerator generator({.seed = 1});
  std::string text;
  for (int row = 0; row < 1000; ++row) generator.Draw(row, &text);
  EXPECT_EQ(Crc32c(text), 0x8b6451e0u);
  std::string other;
  CriteoGenerator({.seed = 2}).Draw(0, &other);
  EXPECT_NE(text.substr(0, other.size()), other);
}

TEST(CriteoGeneratorTest, TheVocabularyIsSharedOut) {
  const CriteoGenerator generator({.seed = 5, .vocabulary = 10'000});
  std::vector<std::map<std::string, int>> values(40);
  for (int row = 0; row < 20'000; ++row) {
    const std::vector<std::string> columns = Columns(generator, row);
    for (int i = 14; i < 40; ++i) ++values[i][columns[i]];
  }
  EXPECT_GT(values[14].size(), 2000u);  // of 4,000
  EXPECT_LE(values[14].size(), 4000u);
  EXPECT_LE(values[16].size(), 1440u);
  EXPECT_EQ(values[39].size(), 4u);
  EXPECT_EQ(values[17].count(""), 1u);  // every fourth has missing ones
  EXPECT_EQ(values[16].count(""), 0u);
}

TEST(CriteoGeneratorTest, TheTeacherKnowsMuchButNotAll) {
  const CriteoGenerator generator({.seed = 1});
  std::vector<float> clicked;
  std::vector<float> others;
  double probability = 0;
  std::string text;
  constexpr int kRows = 20'000;
  for (int row = 0; row < kRows; ++row) {
    text.clear();
    const CriteoGenerator::Drawn drawn = generator.Draw(row, &text);
    EXPECT_EQ(text[0], drawn.label ? '1' : '0');
    (drawn.label ? clicked : others).push_back(drawn.logit);
    probability += 1 / (1 + std::exp(-drawn.logit));
  }
  // Labels are drawn from the logits: three deviations of 20,000 draws.
  EXPECT_NEAR(clicked.size(), probability, 3 * std::sqrt(kRows) / 2);
  EXPECT_GT(clicked.size(), kRows / 10u);
  EXPECT_LT(clicked.size(), kRows / 2u);
  const double auc = *Auc(clicked, others);
  EXPECT_GT(auc, 0.78);
  EXPECT_LT(auc, 0.92);
}

}  // namespace
}  // namespace syncline::ctl
