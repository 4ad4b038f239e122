// Goal: a job that is accepted carries its defaults, its parameters and its
// tables, and a job that is refused lists all problems at once. Method: small
// jobs and models.

#include "scheduler/service/job_intake.h"

#include <string>

#include "common/wire/table_map.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (float[N,4] x) => (float[N,3] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
{
  y = MatMul(x, w)
})";

TEST(CheckJobTest, AnAcceptedJobHasItsDefaultsAndParameters) {
  const JobSpec spec = JobFromText(kSmallJob);
  ASSERT_OK_AND_ASSIGN(const CheckedJob job, CheckJob(spec, kModel));
  EXPECT_EQ(spec.resources().workers(), 0u);
  EXPECT_GT(job.spec.resources().workers(), 0u);
  ASSERT_EQ(job.parameters.size(), 1u);
  EXPECT_EQ(job.parameters[0].name(), "w");
  EXPECT_THAT(job.parameters[0].dims(), ElementsAre(4, 3));
  EXPECT_FALSE(job.parameters[0].has_momentum());
  EXPECT_THAT(job.tables, IsEmpty());
}

TEST(CheckJobTest, ProblemsOfTheSpecAndOfTheFitComeTogether) {
  const JobSpec spec =
      JobFromText(kSmallJob,
                  "learning_rate { base: -1 } data { feeds { input: \"z\" "
                  "field: \"features\" } }");
  const absl::Status refused = CheckJob(spec, kModel).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("learning_rate.base"), HasSubstr("\n"),
                    HasSubstr("data.feeds[1]")));
}

TEST(CheckJobTest, TheWeightsComeWithTheJobThatStartsFromThem) {
  EXPECT_THAT(
      std::string(
          CheckJob(JobFromText(kSmallJob, "start { weights: 'w' }"), kModel)
              .status()
              .message()),
      HasSubstr("start.weights: the file did not come with the job"));
  EXPECT_THAT(
      std::string(
          CheckJob(JobFromText(kSmallJob), kModel, "/file").status().message()),
      HasSubstr("start.weights: is empty, and a file came with the job"));
  EXPECT_THAT(
      std::string(CheckJob(JobFromText(kSmallJob, "start { weights: 'w' }"),
                           kModel, "/nowhere")
                      .status()
                      .message()),
      HasSubstr("start.weights: cannot read \"w\""));
}

TEST(CheckJobTest, AModelThatCannotBeReadIsNamed) {
  JobSpec spec = JobFromText(kSmallJob);
  EXPECT_THAT(std::string(CheckJob(spec, "g (").status().message()),
              HasSubstr("m: "));
  spec.mutable_model()->clear_path();
  EXPECT_THAT(std::string(CheckJob(spec, "g (").status().message()),
              HasSubstr("model: "));
}

}  // namespace
}  // namespace syncline::scheduler
