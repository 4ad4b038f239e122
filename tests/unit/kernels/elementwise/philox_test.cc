// Goal: Philox draws the numbers that it draws everywhere else. Method: the
// known answers of the Random123 library (kat_vectors, philox4x32 10).

#include "kernels/elementwise/philox.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;

TEST(PhiloxTest, KnownAnswers) {
  EXPECT_THAT(Philox::Draw({{0, 0, 0, 0}}, {{0, 0}}).word,
              ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  constexpr uint32_t kOnes = 0xffffffffu;
  EXPECT_THAT(
      Philox::Draw({{kOnes, kOnes, kOnes, kOnes}}, {{kOnes, kOnes}}).word,
      ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(
      Philox::Draw({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}},
                   {{0xa4093822u, 0x299f31d0u}})
          .word,
      ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

}  // namespace
}  // namespace syncline
