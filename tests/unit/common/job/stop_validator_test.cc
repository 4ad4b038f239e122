// Goal: `stop` is refused where it cannot do what it says.
// Method: a valid job, edits to it and what each must report.

#include "common/job/stop_validator.h"

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

std::vector<std::string> Problems(const std::string& edit) {
  return ValidateJobSpec(JobFromText(kImageJob, edit));
}

TEST(StopValidatorTest, WhatIsRightIsTaken) {
  EXPECT_THAT(Problems("stop { metric: LOSS patience: 1 }"), IsEmpty());
  EXPECT_THAT(Problems("metrics: ACCURACY "
                       "stop { metric: ACCURACY patience: 1000 min_change: 0.1 "
                       "}"),
              IsEmpty());
}

TEST(StopValidatorTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(Problems("stop { patience: 1 }"),
              ElementsAre("stop.metric: is required: LOSS, or one of metrics"));
  EXPECT_THAT(Problems("stop { metric: LOSS }"),
              ElementsAre("stop.patience: 0 is outside 1..1000"));
  EXPECT_THAT(Problems("stop { metric: LOSS patience: 1001 }"),
              ElementsAre("stop.patience: 1001 is outside 1..1000"));
  EXPECT_THAT(Problems("stop { metric: LOSS patience: 1 min_change: -1 }"),
              ElementsAre(HasSubstr("stop.min_change: -1 is negative")));
  EXPECT_THAT(Problems("stop { metric: PERPLEXITY patience: 1 }"),
              ElementsAre("stop.metric: PERPLEXITY is not computed; add it to "
                          "metrics, or use LOSS"));
  EXPECT_THAT(Problems("strategy: ALL_REDUCE "
                       "stop { metric: LOSS patience: 1 }"),
              Contains(HasSubstr("stop: is for jobs with ps")));
  JobSpec job = JobFromText(kImageJob, "stop { metric: LOSS patience: 1 }");
  job.mutable_data()->clear_test();
  job.clear_metrics();
  EXPECT_THAT(ValidateJobSpec(job),
              Contains("stop: nothing is evaluated without data.test"));
}

}  // namespace
}  // namespace syncline
