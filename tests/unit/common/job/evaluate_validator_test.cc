// Goal: `evaluate` is refused where it cannot do what it says.
// Method: a valid job, edits to it and what each must report.

#include "common/job/evaluate_validator.h"

#include <string>
#include <vector>

#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kSaved[] =
    "checkpoint { every_clocks: 5 directory: '/ckpt' } "
    "evaluate { checkpoints: true } ";
constexpr char kOnly[] =
    "start { checkpoint: '/ckpt/j-0001/x' } evaluate { only: true } ";

std::vector<std::string> ProblemsOf(const std::string& edit) {
  return ValidateJobSpec(JobFromText(kImageJob, edit));
}

TEST(EvaluateValidatorTest, WhatIsRightIsTaken) {
  EXPECT_THAT(ProblemsOf(kSaved), IsEmpty());
  EXPECT_THAT(ProblemsOf(kOnly), IsEmpty());
  EXPECT_THAT(ProblemsOf(std::string(kSaved) +
                         "metrics: ACCURACY export { best_of: ACCURACY }"),
              IsEmpty());
  EXPECT_THAT(
      ProblemsOf(std::string(kSaved) + "strategy: ALL_REDUCE "
                                       "stop { metric: LOSS patience: 1 }"),
      IsEmpty())
      << "no cut has to hold workers";
}

// A job with tables keeps its best checkpoint, and stores no best.onnx.
TEST(EvaluateValidatorTest, TablesHaveABestCheckpointAndNoBestFile) {
  JobSpec job = JobFromText(kImageJob, std::string(kSaved) +
                                           "export { best_of: LOSS } tables { "
                                           "name: 't' }");
  EXPECT_THAT(ValidateJobSpec(job), Not(Contains(HasSubstr("export.best_of"))));
  job.clear_evaluate();
  EXPECT_THAT(ValidateJobSpec(job),
              Contains(HasSubstr("export.best_of: jobs with tables store their "
                                 "last parameters only")));
}

TEST(EvaluateValidatorTest, CheckpointsNeedWhatTheyAreReadFrom) {
  EXPECT_THAT(ProblemsOf("evaluate { checkpoints: true }"),
              ElementsAre("evaluate.checkpoints: needs checkpoint: it says "
                          "when one is made"));
  EXPECT_THAT(ProblemsOf("checkpoint { every_clocks: 5 } "
                         "evaluate { checkpoints: true }"),
              ElementsAre(HasSubstr(
                  "evaluate.checkpoints: needs checkpoint.directory, a folder "
                  "that all ps and the evaluator see")));
  JobSpec job = JobFromText(kImageJob, kSaved);
  job.mutable_data()->clear_test();
  job.clear_metrics();
  EXPECT_THAT(ValidateJobSpec(job),
              Contains("evaluate.checkpoints: nothing is evaluated without "
                       "data.test"));
}

TEST(EvaluateValidatorTest, AJobThatOnlyEvaluatesTrainsNothing) {
  EXPECT_THAT(ProblemsOf("evaluate { only: true }"),
              ElementsAre(HasSubstr("evaluate.only: needs start.checkpoint")));
  EXPECT_THAT(ProblemsOf("start { weights: 'a' } evaluate { only: true }"),
              ElementsAre(HasSubstr("evaluate.only: needs start.checkpoint")));
  for (const char* more :
       {"checkpoint { every_clocks: 5 }", "stop { metric: LOSS patience: 1 }",
        "export { best_of: LOSS }",
        "groups { size: 2 } resources { workers: 2 }"}) {
    EXPECT_THAT(ProblemsOf(std::string(kOnly) + more),
                ElementsAre(HasSubstr("evaluate.only: trains nothing")))
        << more;
  }
}

}  // namespace
}  // namespace syncline
