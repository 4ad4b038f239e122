// Goal: parameters start as the rule says, and the same whatever else is
// initialised. Method: moments of large tensors against the rule's
// distribution; bit comparison.

#include "worker/compute/initializers.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::Each;

constexpr uint64_t kSeed = 17;
constexpr Fans kFans = {.in = 300, .out = 100};

InitializerRule Rule(InitializerRule::Scheme scheme, float scale = 0) {
  InitializerRule rule;
  rule.set_scheme(scheme);
  rule.set_scale(scale);
  return rule;
}

std::vector<float> Fill(const InitializerRule& rule, const Fans& fans = kFans,
                        uint64_t seed = kSeed, const std::string& name = "w",
                        size_t count = 200'000) {
  std::vector<float> values(count, -1e9f);
  InitializeParameter(rule, fans, seed, name, absl::MakeSpan(values));
  return values;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double kurtosis = 0;  // 3 for a normal, 1.8 for a uniform distribution
  double smallest = 0;
  double largest = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments m;
  for (const float v : values) m.mean += v / values.size();
  double second = 0;
  double fourth = 0;
  for (const float v : values) {
    const double square = (v - m.mean) * (v - m.mean);
    second += square / values.size();
    fourth += square * square / values.size();
  }
  m.deviation = std::sqrt(second);
  m.kurtosis = fourth / (second * second);
  m.smallest = *std::min_element(values.begin(), values.end());
  m.largest = *std::max_element(values.begin(), values.end());
  return m;
}

void ExpectUniform(const std::vector<float>& values, double bound) {
  const Moments m = MomentsOf(values);
  EXPECT_NEAR(m.mean, 0, 0.01 * bound);
  EXPECT_NEAR(m.deviation, bound / std::sqrt(3), 0.01 * bound);
  EXPECT_NEAR(m.kurtosis, 1.8, 0.02);
  EXPECT_GE(m.smallest, -bound * 1.000001);
  EXPECT_LE(m.largest, bound * 1.000001);
  EXPECT_LT(m.smallest, -0.99 * bound);
  EXPECT_GT(m.largest, 0.99 * bound);
}

void ExpectNormal(const std::vector<float>& values, double deviation) {
  const Moments m = MomentsOf(values);
  EXPECT_NEAR(m.mean, 0, 0.01 * deviation);
  EXPECT_NEAR(m.deviation, deviation, 0.01 * deviation);
  EXPECT_NEAR(m.kurtosis, 3, 0.05);
}

TEST(InitializersTest, ConstantSchemes) {
  EXPECT_THAT(Fill(Rule(InitializerRule::ZEROS)), Each(0.0f));
  InitializerRule rule = Rule(InitializerRule::CONSTANT);
  rule.set_value(-2.5f);
  EXPECT_THAT(Fill(rule), Each(-2.5f));
}

TEST(InitializersTest, PlainDistributionsWithAndWithoutScale) {
  ExpectUniform(Fill(Rule(InitializerRule::UNIFORM)), 0.05);
  ExpectUniform(Fill(Rule(InitializerRule::UNIFORM, 2)), 2);
  ExpectNormal(Fill(Rule(InitializerRule::NORMAL)), 0.05);
  ExpectNormal(Fill(Rule(InitializerRule::NORMAL, 0.3f)), 0.3);
}

TEST(InitializersTest, SchemesThatLookAtFans) {
  ExpectUniform(Fill(Rule(InitializerRule::XAVIER_UNIFORM)),
                std::sqrt(6.0 / 400));
  ExpectUniform(Fill(Rule(InitializerRule::XAVIER_UNIFORM, 2)),
                2 * std::sqrt(6.0 / 400));
  ExpectNormal(Fill(Rule(InitializerRule::XAVIER_NORMAL)),
               std::sqrt(2.0 / 400));
  ExpectUniform(Fill(Rule(InitializerRule::HE_UNIFORM)), std::sqrt(6.0 / 300));
  ExpectNormal(Fill(Rule(InitializerRule::HE_NORMAL)), std::sqrt(2.0 / 300));
  ExpectNormal(Fill(Rule(InitializerRule::HE_NORMAL, 0.5f)),
               0.5 * std::sqrt(2.0 / 300));
}

TEST(InitializersTest, DependsOnSeedAndNameAlone) {
  const InitializerRule rule = Rule(InitializerRule::HE_NORMAL);
  const std::vector<float> values = Fill(rule, kFans, 1, "fc1.weight", 100);
  EXPECT_EQ(Fill(rule, kFans, 1, "fc1.weight", 100), values);
  EXPECT_NE(Fill(rule, kFans, 2, "fc1.weight", 100), values);
  EXPECT_NE(Fill(rule, kFans, 1, "fc2.weight", 100), values);
  EXPECT_NE(Fill(rule, kFans, 1, "", 100), values);
  // A longer tensor of the name begins with the same values.
  std::vector<float> longer = Fill(rule, kFans, 1, "fc1.weight", 200);
  longer.resize(100);
  EXPECT_EQ(longer, values);
}

TEST(InitializersTest, ParametersAreNotCorrelated) {
  const InitializerRule rule = Rule(InitializerRule::NORMAL, 1);
  const std::vector<float> a = Fill(rule, kFans, kSeed, "fc1.weight");
  const std::vector<float> b = Fill(rule, kFans, kSeed, "fc2.weight");
  double product = 0;
  for (size_t i = 0; i < a.size(); ++i) product += a[i] * b[i];
  EXPECT_NEAR(product / a.size(), 0, 0.01);
}

TEST(InitializersTest, OnlyXavierAndHeLookAtFans) {
  for (const auto scheme :
       {InitializerRule::XAVIER_UNIFORM, InitializerRule::XAVIER_NORMAL,
        InitializerRule::HE_UNIFORM, InitializerRule::HE_NORMAL}) {
    EXPECT_TRUE(LooksAtFans(scheme));
    EXPECT_NE(Fill(Rule(scheme)), Fill(Rule(scheme), {.in = 9, .out = 9}));
  }
  for (const auto scheme :
       {InitializerRule::ZEROS, InitializerRule::CONSTANT,
        InitializerRule::UNIFORM, InitializerRule::NORMAL}) {
    EXPECT_FALSE(LooksAtFans(scheme));
    EXPECT_EQ(Fill(Rule(scheme)), Fill(Rule(scheme), {.in = 9, .out = 9}));
  }
}

}  // namespace
}  // namespace syncline::worker
