// Goal: the command plans the job that is asked for, and says what is wrong
// with it. Method: job files, and a planner that says what it was asked.

#include "scheduler/ctl/plan_command.h"

#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class PlanCommandTest : public ::testing::Test {
 protected:
  int Run(const PlanOptions& options, bool json = false) {
    out_.str("");
    err_.str("");
    asked_.clear();
    const JobPlanner planner =
        [this](const JobSpec& spec, std::shared_ptr<const Model>,
               const TrainingGraph& training) -> absl::StatusOr<JobPlan> {
      asked_.push_back(absl::StrCat(spec.training().batch_size(), " in ",
                                    spec.training().micro_batches(), ", ",
                                    training.parameters.size(), " tensors"));
      JobPlan plan;
      plan.ps.resize(spec.resources().ps());
      plan.worker.executor.training_arena_bytes = 4096;
      return plan;
    };
    return RunPlan(options, planner, {.out = out_, .err = err_, .json = json});
  }

  TempDir dir_;
  const std::string file_ = WriteJob(dir_, DigitsJob(), MlpModel(784, 32, 10));
  std::ostringstream out_;
  std::ostringstream err_;
  std::vector<std::string> asked_;
};

TEST_F(PlanCommandTest, PlansTheJobAsItIs) {
  ASSERT_EQ(Run({.job_file = file_}), kExitOk) << err_.str();
  EXPECT_THAT(asked_, ElementsAre("32 in 1, 4 tensors"));
  EXPECT_THAT(out_.str(), HasSubstr("Job digits: 1 worker, 1 ps, batch 32\n"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("all at once")));
}

TEST_F(PlanCommandTest, PlansWhatIsAskedForAndWithoutItToo) {
  PlanOptions options{.job_file = file_};
  options.overrides.batch_size = 64;
  options.overrides.micro_batches = 8;
  options.overrides.ps = 3;
  ASSERT_EQ(Run(options), kExitOk) << err_.str();
  EXPECT_THAT(asked_, ElementsAre("64 in 8, 4 tensors", "64 in 1, 4 tensors"));
  EXPECT_THAT(out_.str(), HasSubstr("3 ps, batch 64 in 8 parts"));
  EXPECT_THAT(out_.str(), HasSubstr("all at once"));
  ASSERT_EQ(Run(options, /*json=*/true), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr(R"("plain":{)"));
}

TEST_F(PlanCommandTest, SettingsGoOverTheFile) {
  PlanOptions options{.job_file = file_};
  options.overrides.settings = {"training.batch_size=16", "resources.ps=2"};
  ASSERT_EQ(Run(options), kExitOk) << err_.str();
  EXPECT_THAT(asked_, ElementsAre("16 in 1, 4 tensors"));
  EXPECT_THAT(out_.str(), HasSubstr("1 worker, 2 ps, batch 16\n"));
}

TEST_F(PlanCommandTest, SaysWhatIsWrong) {
  EXPECT_EQ(Run({.job_file = dir_.File("none")}), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("none"));
  PlanOptions options{.job_file = file_};
  options.overrides.micro_batches = 33;
  EXPECT_EQ(Run(options), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("training.micro_batches: 33 is too large, "
                                    "at most 32"));
  EXPECT_THAT(asked_, ElementsAre());
}

}  // namespace
}  // namespace syncline::ctl
