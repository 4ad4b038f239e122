// Goal: NaN and infinity are found wherever they are, and nothing else is.
// Method: every kind of value at every place of ranges of any length.

#include "kernels/optimizer/finite.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace syncline {
namespace {

using Limits = std::numeric_limits<float>;

TEST(FiniteTest, FiniteValuesAre) {
  const std::vector<float> values = {0,
                                     -0.0f,
                                     1,
                                     Limits::max(),
                                     Limits::lowest(),
                                     Limits::min(),
                                     Limits::denorm_min(),
                                     -Limits::denorm_min()};
  EXPECT_TRUE(AllFinite(values.data(), values.size()));
  EXPECT_EQ(FirstNonFinite(values.data(), values.size()), values.size());
  EXPECT_TRUE(AllFinite(nullptr, 0));
  EXPECT_EQ(FirstNonFinite(nullptr, 0), 0u);
}

TEST(FiniteTest, OneOfThemIsFoundAnywhere) {
  for (const float bad :
       {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(),
        -Limits::quiet_NaN(), Limits::signaling_NaN()}) {
    for (const size_t count : {1, 7, 8, 33, 100}) {
      for (size_t at = 0; at < count; ++at) {
        std::vector<float> values(count, Limits::max());
        values[at] = bad;
        EXPECT_FALSE(AllFinite(values.data(), count)) << at << " of " << count;
        EXPECT_EQ(FirstNonFinite(values.data(), count), at);
        EXPECT_TRUE(AllFinite(values.data(), at));
      }
    }
  }
}

}  // namespace
}  // namespace syncline
