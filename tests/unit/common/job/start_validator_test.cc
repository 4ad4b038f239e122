// Goal: what `start` says goes together, and what does not is named.
// Method: specs by hand and what each must report.

#include "common/job/start_validator.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> ProblemsOf(const std::string& start) {
  JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "start { " + start + " }", &spec));
  std::vector<std::string> list;
  Problems problems(&list);
  CheckStartFields(spec, &problems);
  return list;
}

TEST(StartValidatorTest, WhatIsRightIsTaken) {
  EXPECT_THAT(ProblemsOf("checkpoint: '/ckpt/j-1/x' clock: 7 shards: 2"),
              IsEmpty());
  EXPECT_THAT(ProblemsOf("weights: 'base.safetensors' allow_missing: true "
                         "names { pattern: 'old.*' name: 'new.*' } "
                         "names { pattern: 'head.*' }"),
              IsEmpty());
}

TEST(StartValidatorTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(ProblemsOf(""),
              ElementsAre("start.checkpoint: or start.weights is required"));
  EXPECT_THAT(ProblemsOf("checkpoint: '/c' names { pattern: 'a' } "
                         "allow_missing: true"),
              ElementsAre("start.names: is for start.weights only",
                          "start.allow_missing: is for start.weights only"));
  EXPECT_THAT(ProblemsOf("weights: 'a' checkpoint: '/c'"),
              ElementsAre("start.weights: is in place of start.checkpoint; set "
                          "one of the two"));
  EXPECT_THAT(ProblemsOf("weights: 'a' weights_only: true"),
              ElementsAre(HasSubstr("takes no weights_only")));
  EXPECT_THAT(ProblemsOf("weights: 'a' clock: 1"),
              ElementsAre(HasSubstr("takes no weights_only, clock")));
  EXPECT_THAT(ProblemsOf("weights: 'a' names { pattern: 'x' } "
                         "names { name: 'y' }"),
              ElementsAre("start.names[1]: pattern is required"));
  std::string rules = "weights: 'a'";
  for (int i = 0; i < 1001; ++i) rules += " names { pattern: 'x' }";
  EXPECT_THAT(ProblemsOf(rules),
              ElementsAre("start.names: 1001 rules, at most 1000"));
}

}  // namespace
}  // namespace syncline
