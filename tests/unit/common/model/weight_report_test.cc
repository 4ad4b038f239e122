// Goal: what is trained and what is not can be read before a job runs, in few
// lines however many weights there are. Method: one resolved job, exact text.

#include "common/model/weight_report.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;

TrainingGraph Example() {
  TrainingGraph training;
  training.parameters = {
      {.name = "fc.weight", .dims = {4, 3}, .reason = WeightReason::kFileSays},
      {.name = "bn.mean",
       .dims = {3},
       .momentum = 0.9f,
       .reason = WeightReason::kStatistic},
      {.name = "head", .dims = {2}, .reason = WeightReason::kStarted},
      {.name = "fc.bias", .dims = {3}, .reason = WeightReason::kFileSays}};
  for (int i = 0; i < 10; ++i) {
    training.fixed.push_back({.name = absl::StrCat("c", i),
                              .dims = {},
                              .reason = WeightReason::kSingleNumber});
  }
  training.fixed.push_back(
      {.name = "inv_freq", .dims = {8}, .reason = WeightReason::kBuffer});
  return training;
}

TEST(WeightReportTest, OneLineForEachReason) {
  EXPECT_THAT(
      DescribeWeights(Example()),
      ElementsAre(
          "trained         2 (15 numbers): the file calls them PARAMETER",
          "trained         1 (3 numbers): running means and variances",
          "trained         1 (2 numbers): without values in the model file, "
          "with those of start.weights",
          "not trained     1 (8 numbers): the file calls them BUFFER "
          "('inv_freq')",
          "not trained    10 (10 numbers): single numbers in arithmetic; "
          "weights among them belong into model.train ('c0', 'c1', 'c2', "
          "'c3', 'c4', 'c5', 'c6', 'c7', ...)"));
}

TEST(WeightReportTest, GroupsHaveCountsAndNames) {
  const std::vector<WeightGroup> groups = GroupWeights(Example());
  ASSERT_EQ(groups.size(), 5u);
  EXPECT_TRUE(groups[0].trained);
  EXPECT_EQ(groups[0].count, 2);
  EXPECT_EQ(groups[0].numbers, 15);
  EXPECT_THAT(groups[0].names, ElementsAre("fc.weight", "fc.bias"));
  EXPECT_FALSE(groups[4].trained);
  EXPECT_EQ(groups[4].names.size(), 10u);
  EXPECT_EQ(NamesText(groups[0]), "'fc.weight', 'fc.bias'");
}

}  // namespace
}  // namespace syncline
