// Goal: as exact as documented, and the same bits everywhere. Method: against
// the C library over the whole range; a checksum of results.

#include "common/base/portable_math.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(PortableMathTest, LogIsExactEnough) {
  Random random(1);
  for (int i = 0; i < 100'000; ++i) {
    const double x = std::ldexp(0.5 + random.Uniform(),
                                static_cast<int>(random.Below(400)) - 200);
    const double want = std::log(x);
    EXPECT_NEAR(PortableLog(x), want, 4e-16 * std::max(1.0, std::fabs(want)))
        << x;
  }
  EXPECT_EQ(PortableLog(1), 0);
}

TEST(PortableMathTest, ExpIsExactEnough) {
  Random random(2);
  for (int i = 0; i < 100'000; ++i) {
    const double x = 1400 * random.Uniform() - 695;
    const double want = std::exp(x);
    EXPECT_NEAR(PortableExp(x), want, 1e-15 * want) << x;
  }
  EXPECT_EQ(PortableExp(0), 1);
  EXPECT_EQ(PortableExp(-701), 0);
  EXPECT_EQ(PortableExp(710), std::numeric_limits<double>::infinity());
}

TEST(PortableMathTest, TheSameBitsEverywhere) {
  Random random(3);
  uint64_t sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double results[] = {PortableLog(random.Uniform() + 1e-3),
                              PortableExp(40 * random.Uniform() - 20)};
    for (const double result : results) {
      uint64_t bits = 0;
      std::memcpy(&bits, &result, sizeof(bits));
      sum = Mix64(sum ^ bits);
    }
  }
  EXPECT_EQ(sum, 0xe625229a0eef4cf7u);
}

}  // namespace
}  // namespace syncline
