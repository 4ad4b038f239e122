// Goal: medians, spreads and ratios are what the table and the JSON say they
// are. Method: hand-made values.

#include "tests/bench/report.h"

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Report Example() {
  Report report("race", "hare against tortoise");
  report.Set("distance", 100);
  report.Set("distance", 200);  // the last counts
  for (const double speed : {30.0, 10.0, 50.0}) {
    report.Add("hare", "m/s", speed);
    report.Add("tortoise", "m/s", speed / 10 + 1);
  }
  report.AddRatio("hare / tortoise", "hare", "tortoise", 5);
  return report;
}

TEST(ReportTest, EachValueIsALineOfProgressWhereThatIsAskedFor) {
  std::ostringstream progress;
  Report report("race", "hare against tortoise");
  report.Add("hare", "m/s", 30);
  EXPECT_EQ(progress.str(), "");
  report.ShowProgress(&progress);
  report.Add("hare", "m/s", 31.25);
  report.Add("tortoise", "m/s", 4);
  EXPECT_EQ(progress.str(),
            "race: hare, 2: 31.2 m/s\nrace: tortoise, 1: 4 m/s\n");
  EXPECT_EQ(report.Median("hare"), 30.625);
}

TEST(ReportTest, MediansOfOddAndEvenCounts) {
  Report report = Example();
  EXPECT_EQ(report.Median("hare"), 30);
  report.Add("hare", "m/s", 20);
  EXPECT_EQ(report.Median("hare"), 25);
}

TEST(ReportTest, RatiosAreTakenRepetitionByRepetition) {
  // Of 30/4, 10/2 and 50/6.
  EXPECT_EQ(Example().Median("hare / tortoise"), 7.5);
  Report report("r", "");
  for (const double a : {1.0, 2.0, 9.0}) {
    report.Add("a", "", a);
    report.Add("b", "", 10 - a);
  }
  report.AddRatio("a / b", "a", "b");
  EXPECT_EQ(report.Median("a / b"), 0.25);  // of 1/9, 2/8, 9/1
}

TEST(ReportTest, TheTableSaysWhetherGoalsAreReached) {
  Report report = Example();
  report.AddRatio("tortoise / hare", "tortoise", "hare", 1);
  EXPECT_THAT(report.ToTable(),
              AllOf(HasSubstr("race: hare against tortoise\n  distance=200\n"),
                    ContainsRegex("hare / tortoise +7.5 .*goal >= 5: reached"),
                    ContainsRegex("tortoise / hare +.*goal >= 1: missed"),
                    Not(HasSubstr("distance=100"))));
}

TEST(ReportTest, AGoalMayBeTheMostAndMayBeOfAMeasurement) {
  Report report = Example();
  report.AddRatio("tortoise / hare", "tortoise", "hare", AtMost(0.2));
  report.SetGoal("hare", AtMost(29));
  report.SetGoal("tortoise", 4);
  EXPECT_THAT(report.ToTable(),
              AllOf(ContainsRegex("tortoise / hare +.*goal <= 0.2: reached"),
                    ContainsRegex("hare +30 .*m/s, goal <= 29: missed"),
                    ContainsRegex("tortoise +4 .*m/s, goal >= 4: reached")));
  EXPECT_THAT(report.ToJson(),
              AllOf(HasSubstr("\"goal_max\":29"), HasSubstr("\"goal_min\":4")));
}

// By the binomial distribution: of 9 values the chance that at most one is
// below the median is 10/512, of 20 that at most five are is 0.0207.
TEST(ReportTest, TheIntervalOfAMedianIsThatOfTheSignTest) {
  std::vector<double> values;
  for (int i = 1; i <= 5; ++i) values.push_back(6 - i);
  EXPECT_FALSE(MedianInterval(values).has_value());
  const auto of = [](int n) {
    std::vector<double> numbers;
    for (int i = n; i >= 1; --i) numbers.push_back(i);
    const auto interval = MedianInterval(numbers);
    return std::make_pair(interval->low, interval->high);
  };
  EXPECT_EQ(of(6), std::make_pair(1.0, 6.0));
  EXPECT_EQ(of(9), std::make_pair(2.0, 8.0));
  EXPECT_EQ(of(20), std::make_pair(6.0, 15.0));
  EXPECT_EQ(of(100), std::make_pair(40.0, 61.0));
  EXPECT_EQ(of(1000), std::make_pair(469.0, 532.0));
}

TEST(ReportTest, AGoalWithinTheIntervalIsUndecided) {
  Report report("r", "");
  for (int i = 1; i <= 9; ++i) report.Add("a", "", i);
  for (const auto& [goal, verdict] :
       {std::make_pair(1.5, "reached"), std::make_pair(4.0, "undecided"),
        std::make_pair(8.5, "missed")}) {
    report.SetGoal("a", goal);
    report.ShowInterval("a");
    EXPECT_THAT(report.ToTable(),
                HasSubstr(absl::StrCat("median at 95% 2 .. 8, goal >= ", goal,
                                       ": ", verdict)));
  }
  EXPECT_THAT(report.ToJson(), AllOf(HasSubstr("\"median_low\":2"),
                                     HasSubstr("\"median_high\":8")));
  EXPECT_THAT(Example().ToTable(), Not(HasSubstr("95%")));
}

TEST(ReportTest, TheJsonHoldsEveryValue) {
  google::protobuf::Struct json;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(Example().ToJson(), &json)
          .ok());
  EXPECT_EQ(json.fields().at("benchmark").string_value(), "race");
  const auto& hare = json.fields()
                         .at("measurements")
                         .list_value()
                         .values(0)
                         .struct_value()
                         .fields();
  EXPECT_EQ(hare.at("name").string_value(), "hare");
  EXPECT_EQ(hare.at("median").number_value(), 30);
  EXPECT_EQ(hare.at("lowest").number_value(), 10);
  EXPECT_EQ(hare.at("highest").number_value(), 50);
  EXPECT_EQ(hare.at("values").list_value().values_size(), 3);
}

}  // namespace
}  // namespace syncline
