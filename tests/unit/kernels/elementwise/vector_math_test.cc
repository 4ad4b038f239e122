// Goal: the vectorised functions are as close to the true ones as they say.
// Method: against libm in double over dense ranges, special values, and whole
// loops (vectorised) against single calls, bit for bit.

#include "kernels/elementwise/vector_math.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace syncline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename F, typename G>
double LargestRelativeError(float low, float high, F f, G exact) {
  double largest = 0;
  constexpr int kSteps = 200000;
  for (int i = 0; i <= kSteps; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / kSteps;
    const double want = exact(static_cast<double>(x));
    if (want == 0) continue;
    largest = std::max(largest, std::fabs(f(x) - want) / std::fabs(want));
  }
  return largest;
}

TEST(VectorMathTest, ExpIsWithinTwoUnitsInTheLastPlace) {
  EXPECT_LT(LargestRelativeError(-86, 88.7f, Exp,
                                 [](double x) { return std::exp(x); }),
            2.4e-7);
}

TEST(VectorMathTest, ExpAtItsEnds) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_EQ(Exp(-1000.0f), 0.0f);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(1000.0f), kInfinity);
  EXPECT_TRUE(std::isfinite(Exp(88.7f)));
  EXPECT_TRUE(std::isnan(Exp(kNan)));
}

TEST(VectorMathTest, LogIsWithinTwoUnitsInTheLastPlace) {
  const auto exact = [](double x) { return std::log(x); };
  EXPECT_LT(LargestRelativeError(0.5f, 2.0f, Log, exact), 2.4e-7);
  EXPECT_LT(LargestRelativeError(1e-6f, 1e-3f, Log, exact), 2.4e-7);
  EXPECT_LT(LargestRelativeError(2, 1e30f, Log, exact), 2.4e-7);
  EXPECT_EQ(Log(1.0f), 0.0f);
}

TEST(VectorMathTest, ExpMinusOneKeepsItsRelativeError) {
  const auto exact = [](double x) { return std::expm1(x); };
  for (const float most : {1e-30f, 1e-6f, 1e-3f, 0.5f, 10.0f, 86.0f}) {
    EXPECT_LT(LargestRelativeError(-most, most, ExpMinusOne, exact), 2.4e-7)
        << most;
  }
  EXPECT_EQ(ExpMinusOne(0.0f), 0.0f);
  EXPECT_EQ(ExpMinusOne(-kInfinity), -1.0f);
  EXPECT_EQ(ExpMinusOne(-1000.0f), -1.0f);
  EXPECT_EQ(ExpMinusOne(1000.0f), kInfinity);
  EXPECT_EQ(ExpMinusOne(kInfinity), kInfinity);
  EXPECT_TRUE(std::isfinite(ExpMinusOne(88.7f)));
  EXPECT_TRUE(std::isnan(ExpMinusOne(kNan)));
}

TEST(VectorMathTest, LogOnePlusKeepsItsRelativeError) {
  const auto exact = [](double x) { return std::log1p(x); };
  for (const float most : {1e-30f, 1e-6f, 1e-3f, 1.0f, 100.0f, 8e6f}) {
    EXPECT_LT(LargestRelativeError(0, most, LogOnePlus, exact), 2.4e-7) << most;
  }
  EXPECT_EQ(LogOnePlus(0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(LogOnePlus(kNan)));
}

TEST(VectorMathTest, TanhKeepsItsRelativeError) {
  const auto exact = [](double x) { return std::tanh(x); };
  EXPECT_LT(LargestRelativeError(-0.7f, 0.7f, Tanh, exact), 4e-7);
  EXPECT_LT(LargestRelativeError(-20, 20, Tanh, exact), 4e-7);
  EXPECT_EQ(Tanh(-0.0f), 0.0f);
  EXPECT_EQ(Tanh(kInfinity), 1.0f);
  EXPECT_EQ(Tanh(-kInfinity), -1.0f);
  EXPECT_TRUE(std::isnan(Tanh(kNan)));
}

TEST(VectorMathTest, ErfIsWithinItsBound) {
  const auto exact = [](double x) { return std::erf(x); };
  EXPECT_LT(LargestRelativeError(-1.1f, 1.1f, Erf, exact), 4e-7);
  EXPECT_LT(LargestRelativeError(-6, 6, Erf, exact), 4e-7);
  EXPECT_EQ(Erf(kInfinity), 1.0f);
  EXPECT_EQ(Erf(-kInfinity), -1.0f);
  EXPECT_TRUE(std::isnan(Erf(kNan)));
}

TEST(VectorMathTest, ALoopGivesTheBitsOfSingleCalls) {
  std::vector<float> x(1003);
  for (size_t i = 0; i < x.size(); ++i) x[i] = (i - 501.5f) * 0.173f;
  std::vector<float> exp(x.size()), tanh(x.size()), erf(x.size());
  std::vector<float> less_one(x.size()), one_plus(x.size());
  for (size_t i = 0; i < x.size(); ++i) exp[i] = Exp(x[i]);
  for (size_t i = 0; i < x.size(); ++i) tanh[i] = Tanh(x[i]);
  for (size_t i = 0; i < x.size(); ++i) erf[i] = Erf(x[i]);
  for (size_t i = 0; i < x.size(); ++i) less_one[i] = ExpMinusOne(x[i]);
  for (size_t i = 0; i < x.size(); ++i) one_plus[i] = LogOnePlus(exp[i]);
  for (size_t i = 0; i < x.size(); ++i) {
    // The barrier keeps each call on its own.
    float one = x[i];
    asm volatile("" : "+x"(one));
    EXPECT_EQ(exp[i], Exp(one));
    EXPECT_EQ(tanh[i], Tanh(one));
    EXPECT_EQ(erf[i], Erf(one));
    EXPECT_EQ(less_one[i], ExpMinusOne(one));
    float power = Exp(one);
    asm volatile("" : "+x"(power));
    if (power < 8e6f) {
      EXPECT_EQ(one_plus[i], LogOnePlus(power));
    }
  }
}

}  // namespace
}  // namespace syncline
