// Goal: a problem in a job file names the line to change. Method: one job file
// as text, problems as the validator words them.

#include "common/job/field_locations.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

constexpr char kJob[] = R"(name: "mnist"
model {
  path: "mlp.onnxtxt"
  initialize { pattern: "w*" scheme: HE_NORMAL }
  initialize {
    pattern: "b*"
  }
}
learning_rate { base: -1 }
)";

std::vector<std::string> Locate(absl::string_view text, absl::string_view label,
                                const std::vector<std::string>& problems) {
  return LocateProblems(text, JobFileSourceMap(text), label, problems);
}

TEST(LocateProblemsTest, NamesTheLineOfTheField) {
  EXPECT_THAT(
      Locate(kJob, "job.textproto",
             {"learning_rate.base: must be > 0",
              "model.initialize[1].pattern: matches nothing",
              "model.initialize[0].scheme: no"}),
      testing::ElementsAre(
          "job.textproto:9: learning_rate.base: must be > 0",
          "job.textproto:6: model.initialize[1].pattern: matches nothing",
          "job.textproto:4: model.initialize[0].scheme: no"));
}

TEST(LocateProblemsTest, NamesTheNearestFieldAroundOneThatIsNotWritten) {
  EXPECT_THAT(
      Locate(kJob, "j",
             {"model.initialize[1].scheme: must be set",
              "data.train: must be set"}),
      testing::ElementsAre("j:5: model.initialize[1].scheme: must be set",
                           "j: data.train: must be set"));
}

TEST(LocateProblemsTest, SurvivesPathsAndTextsItDoesNotKnow) {
  EXPECT_THAT(
      Locate("not a job {", "j", {"no such.path[7]: x", "", "name[3]:"}),
      testing::ElementsAre("j: no such.path[7]: x", "j: ", "j: name[3]:"));
  EXPECT_THAT(Locate(kJob, "j",
                     {"model.initialize[9].pattern: x",
                      "model.initialize[-1].pattern: x", "name.model: x"}),
              testing::ElementsAre("j:2: model.initialize[9].pattern: x",
                                   "j:2: model.initialize[-1].pattern: x",
                                   "j:1: name.model: x"));
}

TEST(LocateProblemsTest, JsonHasLinesToo) {
  EXPECT_THAT(
      Locate("{\n \"name\": \"a\",\n \"model\": {\"initialize\": [{},\n  "
             "{\"pattern\": \"w\"}]}\n}",
             "j.json", {"name: x", "model.initialize[1].pattern: y"}),
      testing::ElementsAre("j.json:2: name: x",
                           "j.json:4: model.initialize[1].pattern: y"));
}

}  // namespace
}  // namespace syncline
