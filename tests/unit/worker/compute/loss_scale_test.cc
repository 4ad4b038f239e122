// Goal: the scale of a loss follows from what its steps were, by the job's
// rules. Method: sequences of steps by hand; drawn ones, for what always holds.

#include "worker/compute/loss_scale.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/job/job_spec_validator.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using Event = LossScale::Event;

LossScaleSpec Spec(float initial, uint32_t window, uint32_t hysteresis,
                   float minimum) {
  LossScaleSpec spec;
  spec.set_initial(initial);
  spec.set_window(window);
  spec.set_hysteresis(hysteresis);
  spec.set_minimum(minimum);
  return spec;
}

TEST(LossScaleTest, AJobWithoutOneHasScaleOne) {
  const LossScale scale;
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_EQ(scale.FactorFor(1), 1);
}

TEST(LossScaleTest, StartsAsPyTorchsGradScaler) {
  JobSpec job;
  job.set_precision(FLOAT16);
  LossScale scale(WithDefaults(job).loss_scale());
  EXPECT_EQ(scale.scale(), 65536);
  for (int i = 0; i < 999; ++i) ASSERT_EQ(scale.OnStep(false), Event::kGood);
  EXPECT_EQ(scale.OnStep(false), Event::kRaised);
  EXPECT_EQ(scale.scale(), 131072);
  EXPECT_EQ(scale.OnStep(true), Event::kLowered);
  EXPECT_EQ(scale.scale(), 65536);
}

// That of the batch's mean loss, but for the rounding of its samples.
TEST(LossScaleTest, TheFactorIsAPowerOfTwo) {
  const LossScale scale(Spec(65536, 1000, 1, 1));
  EXPECT_EQ(scale.FactorFor(1), 65536);
  EXPECT_EQ(scale.FactorFor(64), 1024);
  EXPECT_EQ(scale.FactorFor(65), 512);
  EXPECT_EQ(scale.FactorFor(96), 512);
  EXPECT_EQ(scale.FactorFor(1 << 20), 0.0625f);
}

TEST(LossScaleTest, AnOverflowBeginsTheWindowAnew) {
  LossScale scale(Spec(8, 3, 1, 1));
  scale.OnStep(false);
  scale.OnStep(false);
  EXPECT_EQ(scale.OnStep(true), Event::kLowered);
  EXPECT_EQ(scale.OnStep(false), Event::kGood);
  EXPECT_EQ(scale.OnStep(false), Event::kGood);
  EXPECT_EQ(scale.OnStep(false), Event::kRaised);
  EXPECT_EQ(scale.scale(), 8);
}

TEST(LossScaleTest, HysteresisLetsOverflowsPassUntilTheScaleHasRisen) {
  LossScale scale(Spec(64, 2, 3, 1));
  EXPECT_EQ(scale.OnStep(true), Event::kTolerated);
  EXPECT_EQ(scale.OnStep(false), Event::kGood);
  EXPECT_EQ(scale.OnStep(true), Event::kTolerated);
  EXPECT_EQ(scale.OnStep(true), Event::kLowered);
  EXPECT_EQ(scale.OnStep(true), Event::kLowered);
  EXPECT_EQ(scale.scale(), 16);
  scale.OnStep(false);
  EXPECT_EQ(scale.OnStep(false), Event::kRaised);
  EXPECT_EQ(scale.OnStep(true), Event::kTolerated);
  EXPECT_EQ(scale.scale(), 32);
  EXPECT_EQ(scale.overflows(), 5u);
}

TEST(LossScaleTest, AtTheMinimumAnOverflowIsForTheJobsPolicy) {
  LossScale scale(Spec(4, 100, 2, 2));
  EXPECT_EQ(scale.OnStep(true), Event::kTolerated);
  EXPECT_EQ(scale.OnStep(true), Event::kLowered);
  EXPECT_EQ(scale.OnStep(true), Event::kExhausted);
  EXPECT_EQ(scale.scale(), 2);
  EXPECT_EQ(scale.OnStep(false), Event::kGood);
  EXPECT_EQ(scale.OnStep(true), Event::kExhausted);
}

TEST(LossScaleTest, HysteresisCountsAtTheMinimumToo) {
  LossScale scale(Spec(2, 100, 2, 2));
  EXPECT_EQ(scale.OnStep(true), Event::kTolerated);
  EXPECT_EQ(scale.OnStep(true), Event::kExhausted);
}

TEST(LossScaleTest, AFixedScaleStays) {
  LossScaleSpec spec;
  spec.set_fixed(1024);
  LossScale scale(spec);
  EXPECT_EQ(scale.OnStep(true), Event::kExhausted);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(scale.OnStep(false), Event::kGood);
  EXPECT_EQ(scale.scale(), 1024);
  EXPECT_EQ(scale.overflows(), 1u);
}

// Of any steps: the scale is a power of two within its bounds, it changes by 2
// and only as the event says, and a second worker has the same.
TEST(LossScaleTest, HoldsItsBoundsWhateverComes) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const auto minimum = std::ldexp(1.0f, static_cast<int>(random.Below(6)));
    const float initial =
        minimum * std::ldexp(1.0f, static_cast<int>(random.Below(19)));
    const LossScaleSpec spec =
        Spec(initial, 1 + random.Below(5), 1 + random.Below(4), minimum);
    LossScale scale(spec);
    LossScale other(spec);
    const double overflowing = random.Uniform();
    uint64_t overflows = 0;
    for (int i = 0; i < 500; ++i) {
      const bool overflowed = random.Uniform() < overflowing;
      overflows += overflowed;
      const float before = scale.scale();
      const Event event = scale.OnStep(overflowed);
      ASSERT_EQ(other.OnStep(overflowed), event);
      const float want = event == Event::kRaised    ? before * 2
                         : event == Event::kLowered ? before / 2
                                                    : before;
      ASSERT_EQ(scale.scale(), want);
      ASSERT_EQ(overflowed, event != Event::kGood && event != Event::kRaised);
      ASSERT_GE(scale.scale(), minimum);
      ASSERT_LE(scale.scale(), LossScale::kMaximum);
      int exponent = 0;
      ASSERT_EQ(std::frexp(scale.scale(), &exponent), 0.5f);
      ASSERT_TRUE(event != Event::kExhausted || scale.scale() == minimum);
    }
    EXPECT_EQ(scale.overflows(), overflows);
    EXPECT_EQ(other.scale(), scale.scale());
  }
}

// Another process goes on as this one would have.
TEST(LossScaleTest, AStateIsAllThatLaterStepsDependOn) {
  const LossScaleSpec spec = Spec(64, 5, 3, 1);
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    LossScale first(spec);
    const uint64_t before = random.Below(40);
    for (uint64_t i = 0; i < before; ++i) first.OnStep(random.Below(3) == 0);
    LossScale second(spec);
    ASSERT_TRUE(second.Restore(first.state()));
    for (int i = 0; i < 30; ++i) {
      ASSERT_EQ(second.scale(), first.scale());
      const bool overflowed = random.Below(4) == 0;
      ASSERT_EQ(second.OnStep(overflowed), first.OnStep(overflowed));
    }
  }
}

TEST(LossScaleTest, AStateThatCannotBeIsNotTaken) {
  LossScale scale(Spec(64, 5, 3, 2));
  using State = LossScale::State;
  const float nan = std::nanf("");
  for (const State& bad :
       {State{.scale = 0}, State{.scale = -8}, State{.scale = nan},
        State{.scale = INFINITY}, State{.scale = 3}, State{.scale = 1},
        State{.scale = 2 * LossScale::kMaximum},
        State{.scale = 8, .good_steps = 5},
        State{.scale = 8, .tolerated = 3}}) {
    EXPECT_FALSE(scale.Restore(bad)) << bad.scale;
  }
  EXPECT_EQ(scale.scale(), 64);
  LossScaleSpec fixed;
  fixed.set_fixed(128);
  EXPECT_FALSE(LossScale(fixed).Restore({.scale = 64}));
}

}  // namespace
}  // namespace syncline::worker
