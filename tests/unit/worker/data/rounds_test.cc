// Goal: the steps of epochs fall into rounds without one left out or made
// twice, none reaches over an epoch's end, and a round of one step is a clock
// of the other modes. Method: all epochs and rounds of some sizes, counted
// through.

#include "worker/data/rounds.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

TEST(RoundsTest, EveryStepIsInOneRoundOfItsEpoch) {
  for (const int64_t steps_per_epoch : {1, 2, 7, 16, 33}) {
    for (const int64_t steps_of_clock : {1, 2, 5, 16, 40}) {
      SCOPED_TRACE(absl::StrCat(steps_per_epoch, " in ", steps_of_clock));
      const Rounds rounds = {steps_per_epoch, steps_of_clock};
      int64_t clock = 0;
      int64_t step = 0;
      for (int epoch = 0; epoch < 3; ++epoch) {
        for (int64_t done = 0; done < steps_per_epoch; ++clock) {
          EXPECT_EQ(clock / rounds.clocks_per_epoch(), epoch);
          EXPECT_EQ(rounds.FirstStep(clock), step);
          const int64_t made = std::min(steps_of_clock, steps_per_epoch - done);
          EXPECT_EQ(rounds.StepsOf(clock), made);
          for (int64_t k = 0; k < made; ++k, ++step) {
            EXPECT_EQ(rounds.ClockOf(step), clock);
            EXPECT_EQ(rounds.PlaceOf(step), k);
          }
          done += made;
        }
      }
      EXPECT_EQ(clock, 3 * rounds.clocks_per_epoch());
      EXPECT_EQ(rounds.FirstStep(clock), 3 * steps_per_epoch);
    }
  }
}

TEST(RoundsTest, WithoutLocalStepsAClockIsAStep) {
  const Rounds rounds = {7, 1};
  EXPECT_EQ(rounds.clocks_per_epoch(), 7);
  for (int64_t clock = 0; clock < 20; ++clock) {
    EXPECT_EQ(rounds.FirstStep(clock), clock);
    EXPECT_EQ(rounds.StepsOf(clock), 1);
    EXPECT_EQ(rounds.ClockOf(clock), clock);
    EXPECT_EQ(rounds.PlaceOf(clock), 0);
  }
}

}  // namespace
}  // namespace syncline::worker
