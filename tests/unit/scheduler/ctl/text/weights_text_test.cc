// Goal: who starts a job sees what it trains and what it does not. Method: one
// resolved job, exact text for people and for programs.

#include "scheduler/ctl/text/weights_text.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

TrainingGraph Example() {
  TrainingGraph training;
  training.parameters = {
      {.name = "w", .dims = {2, 3}, .reason = WeightReason::kFileSays}};
  training.fixed = {
      {.name = "inv_freq", .dims = {8}, .reason = WeightReason::kBuffer}};
  training.warnings = {"two are one"};
  return training;
}

constexpr char kLines[] =
    "  trained         1 (6 numbers): the file calls them PARAMETER\n"
    "  not trained     1 (8 numbers): the file calls them BUFFER "
    "('inv_freq')\n";

TEST(WeightsTextTest, ForPeople) {
  EXPECT_EQ(WeightsText(Example()),
            std::string(kLines) + "  warning: two are one\n");
  std::ostringstream out, err;
  PrintWeights(Example(), {.out = out, .err = err, .json = false});
  EXPECT_EQ(out.str(), kLines);
  EXPECT_EQ(err.str(), "synctl: warning: two are one\n");
}

TEST(WeightsTextTest, ForPrograms) {
  std::ostringstream out, err;
  PrintWeights(Example(), {.out = out, .err = err, .json = true});
  EXPECT_EQ(out.str() + err.str(), "");
  google::protobuf::Struct object;
  SetWeights(Example(), &object);
  const auto& fields = object.fields();
  const auto& weights = fields.at("weights").list_value().values();
  ASSERT_EQ(weights.size(), 2);
  const auto& fixed = weights[1].struct_value().fields();
  EXPECT_FALSE(fixed.at("trained").bool_value());
  EXPECT_EQ(fixed.at("why").string_value(), "the file calls them BUFFER");
  EXPECT_EQ(fixed.at("count").number_value(), 1);
  EXPECT_EQ(fixed.at("numbers").number_value(), 8);
  EXPECT_EQ(fixed.at("names").list_value().values(0).string_value(),
            "inv_freq");
  EXPECT_EQ(fields.at("warnings").list_value().values(0).string_value(),
            "two are one");
}

}  // namespace
}  // namespace syncline::ctl
