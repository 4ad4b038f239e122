// Goal: what `synctl evaluate` submits has the checkpoint's model, data and
// metrics, nothing of training, and passes the validator.
// Method: specs by hand.

#include "scheduler/ctl/evaluate_command.h"

#include <string>

#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

StartSpec Start() {
  StartSpec start;
  start.set_checkpoint("/ckpt/j-0001/x");
  start.set_clock(40);
  start.set_shards(2);
  return start;
}

JobSpec Trained() {
  JobSpec job = JobFromText(kImageJob, "");
  job.mutable_model()->set_path("m.onnx");
  job.mutable_data()->mutable_test()->mutable_digits()->set_count(10);
  job.mutable_resources()->set_workers(7);
  job.mutable_resources()->set_ps(3);
  job.mutable_checkpoint()->set_every_clocks(5);
  job.mutable_restart()->set_max(2);
  job.mutable_stop()->set_metric(LOSS);
  job.mutable_stop()->set_patience(1);
  job.mutable_export_()->set_best_of(LOSS);
  job.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  return job;
}

TEST(EvaluateCommandTest, NothingOfTrainingIsLeft) {
  ASSERT_OK_AND_ASSIGN(const JobSpec spec,
                       SpecToEvaluate(Trained(), Start(), {}));
  EXPECT_THAT(ValidateJobSpec(spec), IsEmpty());
  EXPECT_TRUE(spec.evaluate().only());
  EXPECT_EQ(spec.start().checkpoint(), "/ckpt/j-0001/x");
  EXPECT_EQ(spec.start().clock(), 40);
  EXPECT_EQ(spec.resources().workers(), 1u);
  EXPECT_EQ(spec.data().test().digits().count(), 10u);
}

TEST(EvaluateCommandTest, OtherDataAndFieldsAreTaken) {
  JobSpec job = Trained();
  job.mutable_data()->mutable_test()->mutable_csv()->set_path("old.csv");
  ASSERT_OK_AND_ASSIGN(
      const JobSpec spec,
      SpecToEvaluate(job, Start(),
                     {.data = "new.csv", .settings = {"name=other"}}));
  EXPECT_EQ(spec.data().test().csv().path(), "new.csv");
  EXPECT_EQ(spec.name(), "other");
  EXPECT_FALSE(SpecToEvaluate(job, Start(), {.settings = {"nme=x"}}).ok());
  // Rows that are kept for later clocks are of ps; the job trains in ASYNC.
  job.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  TableSpec* const table = job.add_tables();
  table->set_name("t");
  table->set_cache_rows(10);
  table->set_cache_clocks(2);
  ASSERT_OK_AND_ASSIGN(const JobSpec with_tables,
                       SpecToEvaluate(job, Start(), {}));
  EXPECT_EQ(with_tables.tables(0).cache_clocks(), 0u);
  EXPECT_EQ(with_tables.tables(0).cache_rows(), 0u);
  for (const char* const other : {"training.seed=99", "tables={name: \"u\"}"}) {
    EXPECT_THAT(std::string(SpecToEvaluate(job, Start(), {.settings = {other}})
                                .status()
                                .message()),
                HasSubstr("tables and training.seed are the checkpoint's"))
        << other;
  }
}

TEST(EvaluateCommandTest, WithoutDataItSaysWhatToDo) {
  JobSpec job = Trained();
  EXPECT_THAT(
      std::string(
          SpecToEvaluate(job, Start(), {.data = "x"}).status().message()),
      HasSubstr("--data: digits has not one path"));
  job.mutable_data()->clear_test();
  EXPECT_THAT(std::string(SpecToEvaluate(job, Start(), {}).status().message()),
              HasSubstr("has no data.test; name some with --data"));
}

}  // namespace
}  // namespace syncline::ctl
