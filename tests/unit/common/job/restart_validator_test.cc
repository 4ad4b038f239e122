// Goal: each bad value of restart and start is named with its field, at both
// ends of its range, and the defaults are valid.

#include "common/job/restart_validator.h"

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
using ::testing::StartsWith;

JobSpec Parse(const std::string& text) {
  JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return spec;
}

std::vector<std::string> ProblemsOf(const std::string& text) {
  std::vector<std::string> list;
  Problems problems(&list);
  CheckRestart(Parse(text), &problems);
  return list;
}

// A restart with checkpoints.
std::vector<std::string> RestartProblems(const std::string& restart) {
  return ProblemsOf("checkpoint { every_clocks: 5 } restart { " + restart +
                    " }");
}

TEST(RestartValidatorTest, RangesAreThoseOfTheSpec) {
  EXPECT_THAT(RestartProblems(""), IsEmpty());
  EXPECT_THAT(RestartProblems("max: 50 backoff_seconds: 3600 "
                              "window_seconds: 1e9"),
              IsEmpty());
  EXPECT_THAT(RestartProblems("max: 1 backoff_seconds: 0 window_seconds: 1"),
              IsEmpty());
  EXPECT_THAT(RestartProblems("max: 51"),
              ElementsAre("restart.max: 51 is too large, at most 50: a job's "
                          "record shows no more restarts"));
  for (const char* bad : {"-0.1", "3600.1", "nan"}) {
    EXPECT_THAT(RestartProblems(std::string("backoff_seconds: ") + bad),
                ElementsAre(AllOf(StartsWith("restart.backoff_seconds: "),
                                  HasSubstr("is outside 0..3600"))))
        << bad;
  }
  EXPECT_THAT(RestartProblems("window_seconds: 0.5"),
              ElementsAre(StartsWith("restart.window_seconds: 0.5 is less")));
  EXPECT_THAT(RestartProblems("window_seconds: 1.1e9"),
              ElementsAre(StartsWith("restart.window_seconds: ")));
}

TEST(RestartValidatorTest, ARestartNeedsCheckpoints) {
  EXPECT_THAT(ProblemsOf("restart {}"),
              ElementsAre(StartsWith("restart: needs checkpoint")));
}

TEST(RestartValidatorTest, AStartNamesItsCheckpoint) {
  EXPECT_THAT(ProblemsOf("start { checkpoint: '/c/0' clock: 7 shards: 1024 }"),
              IsEmpty());
  EXPECT_THAT(ProblemsOf("start {}"),
              ElementsAre("start.checkpoint: or start.weights is required"));
  EXPECT_THAT(ProblemsOf("start { checkpoint: 'c/0' }"),
              ElementsAre("start.checkpoint: 'c/0' is not an absolute path"));
  EXPECT_THAT(
      ProblemsOf("start { checkpoint: '/" + std::string(4096, 'c') + "' }"),
      ElementsAre("start.checkpoint: 4097 bytes, at most 4096"));
  EXPECT_THAT(ProblemsOf("start { checkpoint: '/c' clock: -1 shards: 2049 }"),
              ElementsAre(StartsWith("start.clock: -1 is negative"),
                          StartsWith("start.shards: 2049 is too large")));
}

TEST(RestartValidatorTest, DefaultsAreFilledInWhereItIsAskedFor) {
  JobSpec spec = Parse("restart {}");
  FillRestart(&spec);
  EXPECT_EQ(spec.restart().max(), 3u);
  EXPECT_EQ(spec.restart().backoff_seconds(), 1);
  EXPECT_EQ(spec.restart().window_seconds(), 3600);
  spec = Parse("restart { backoff_seconds: 0 }");
  FillRestart(&spec);
  EXPECT_EQ(spec.restart().backoff_seconds(), 0);
  JobSpec none;
  FillRestart(&none);
  EXPECT_FALSE(none.has_restart());
}

}  // namespace
}  // namespace syncline
