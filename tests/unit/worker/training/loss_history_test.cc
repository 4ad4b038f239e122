// Goal: the history has every step while there are few, stays bounded when
// there are many, and its losses are means over samples. Method: histories by
// hand, and a long one of known sums.

#include "worker/training/loss_history.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

constexpr char kNames[] = "clock,epoch,chief_samples,chief_loss,learning_rate";

std::vector<std::string> Lines(const LossHistory& history) {
  const Epochs epochs = {.steps_per_epoch = 2, .clocks_total = 1 << 20};
  return absl::StrSplit(
      history.Csv(epochs, [](int64_t clock) { return 0.5 / (1 + clock); }),
      '\n', absl::SkipEmpty());
}

TEST(LossHistoryTest, AFewStepsAreEachALine) {
  LossHistory history;
  EXPECT_THAT(Lines(history), testing::ElementsAre(kNames));
  history.Add(0, 10, 25);
  history.Add(1, 0, 0);  // left out
  history.Add(2, 5, 1);
  EXPECT_THAT(Lines(history),
              testing::ElementsAre(kNames, "1,1,10,2.5,0.5", "2,1,10,,0.25",
                                   "3,2,15,0.2,0.1666667"));
}

TEST(LossHistoryTest, ALossScaleIsAColumn) {
  LossHistory history(/*points_max=*/2);
  history.Add(0, 10, 20, 65536);
  history.Add(1, 10, 20, 32768);
  EXPECT_THAT(Lines(history), testing::ElementsAre(
                                  std::string(kNames) + ",loss_scale",
                                  "1,1,10,2,0.5,65536", "2,1,20,2,0.25,32768"));
  history.Add(2, 10, 20, 16384);  // the first two become one
  EXPECT_THAT(Lines(history)[1], "2,1,20,2,0.25,32768");
}

TEST(LossHistoryTest, PointsHaveTheTimesOfTheirEnds) {
  LossHistory history(/*points_max=*/2);
  const absl::Time end = absl::UnixEpoch() + absl::Hours(1);
  for (int clock = 0; clock < 3; ++clock) {
    history.Add(clock, 10, 20, 0, absl::Seconds(clock + 1));
  }
  // The first two steps have become one point.
  const auto points =
      history.Points([](int64_t clock) { return 0.5 / (1 + clock); }, end);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].clock, 2);
  EXPECT_EQ(points[0].time, end - absl::Seconds(3));
  EXPECT_EQ(points[0].samples, 20u);
  EXPECT_EQ(points[0].loss, 2.0);
  EXPECT_EQ(points[0].learning_rate, 0.25);
  EXPECT_EQ(points[0].seconds, 3.0);
  EXPECT_EQ(points[1].time, end);
  EXPECT_EQ(points[1].seconds, 3.0);
}

TEST(LossHistoryTest, ANanHasNoSign) {
  LossHistory history;
  history.Add(0, 10, -std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(Lines(history), testing::ElementsAre(kNames, "1,1,10,nan,0.5"));
}

TEST(LossHistoryTest, ManyStepsAreMeansOfNeighbours) {
  LossHistory history(/*points_max=*/8);
  constexpr int kSteps = 1000;
  double all = 0;
  for (int clock = 0; clock < kSteps; ++clock) {
    history.Add(clock, 2, clock);
    all += clock;
  }
  const std::vector<std::string> lines = Lines(history);
  ASSERT_LE(lines.size(), 9u);
  ASSERT_GE(lines.size(), 5u);
  double sum = 0;
  int64_t before = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = absl::StrSplit(lines[i], ',');
    int64_t samples = 0;
    double loss = 0;
    ASSERT_TRUE(absl::SimpleAtoi(cells[2], &samples));
    ASSERT_TRUE(absl::SimpleAtod(cells[3], &loss));
    sum += loss * static_cast<double>(samples - before);
    before = samples;
  }
  EXPECT_EQ(before, 2 * kSteps);
  EXPECT_NEAR(sum, all, 1e-3);
  EXPECT_THAT(lines.back(), testing::StartsWith("1000,500,2000,"));
}

}  // namespace
}  // namespace syncline::worker
