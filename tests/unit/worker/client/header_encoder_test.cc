// Goal: headers name their caller, and values at a cut travel whole. Method:
// headers read field by field.

#include "worker/client/header_encoder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kBlocks[] = {3, 4};

HeaderEncoder Encoder(ElementType type) {
  return HeaderEncoder(
      {.job_id = "j-1", .rank = 2, .incarnation = 77, .routing_version = 5},
      RegimeSchedule(TrainingRegime{.wire_type = type}), absl::Seconds(60));
}

TEST(HeaderEncoderTest, EveryHeaderNamesItsCallerOnce) {
  const HeaderEncoder encoder = Encoder(ElementType::kFloat32);
  for (const Caller& caller :
       {encoder.CallerOf(3), encoder.MakeInit(3, 9, kBlocks).caller(),
        encoder.MakePush(3, kBlocks, 1).caller(),
        encoder.MakePull(3, kBlocks, 1, 0).caller()}) {
    EXPECT_EQ(caller.shard(), 3u);
    EXPECT_EQ(caller.job_id(), "j-1");
    EXPECT_EQ(caller.rank(), 2u);
    EXPECT_EQ(caller.incarnation(), 77u);
    EXPECT_EQ(caller.routing_version(), 5u);
  }
  // The push of the same message does.
  EXPECT_FALSE(encoder.MakePullPart(kBlocks, 1, 0).has_caller());
}

TEST(HeaderEncoderTest, AnInitSaysHowManyStepsThereWillBe) {
  const InitHeader header =
      Encoder(ElementType::kFloat32).MakeInit(0, 9, kBlocks);
  EXPECT_EQ(header.total_clocks(), 9);
  EXPECT_THAT(header.blocks(), ElementsAre(3, 4));
}

TEST(HeaderEncoderTest, ValuesAtACutTravelWhole) {
  const HeaderEncoder encoder = Encoder(ElementType::kFloat16);
  EXPECT_EQ(encoder.MakePush(0, kBlocks, 6).wire_type(), WIRE_FLOAT16);
  const PullHeader step = encoder.MakePull(0, kBlocks, 6, /*cut_id=*/0);
  EXPECT_EQ(step.clock(), 6);
  EXPECT_EQ(step.wire_type(), WIRE_FLOAT16);
  EXPECT_THAT(step.blocks(), ElementsAre(3, 4));
  EXPECT_GT(step.wait_seconds(), 0);
  const PullHeader cut = encoder.MakePull(0, kBlocks, 6, /*cut_id=*/8);
  EXPECT_EQ(cut.cut_id(), 8u);
  EXPECT_EQ(cut.wire_type(), WIRE_FLOAT32);
  EXPECT_EQ(encoder.PulledType(6, 8), ElementType::kFloat32);
  EXPECT_EQ(encoder.PulledType(6, 0), ElementType::kFloat16);
}

TEST(HeaderEncoderTest, TheTypeIsThatOfTheClock) {
  RegimeSchedule regimes(TrainingRegime{.wire_type = ElementType::kFloat16});
  ASSERT_TRUE(
      regimes.Add({.first_clock = 5, .wire_type = ElementType::kBfloat16}, 0)
          .ok());
  const HeaderEncoder encoder({.job_id = "j-1"}, regimes, absl::Seconds(60));
  EXPECT_EQ(encoder.MakePush(0, kBlocks, 4).wire_type(), WIRE_FLOAT16);
  EXPECT_EQ(encoder.MakePullPart(kBlocks, 5, 0).wire_type(), WIRE_BFLOAT16);
  EXPECT_EQ(encoder.PushedType(4), ElementType::kFloat16);
  EXPECT_EQ(encoder.PushedType(5), ElementType::kBfloat16);
  EXPECT_EQ(encoder.PulledType(5, 8), ElementType::kFloat32);
}

}  // namespace
}  // namespace syncline::worker
