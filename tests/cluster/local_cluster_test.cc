// Goal: `synctl local` trains a job with nothing but the executables, and
// leaves no process behind, however it ends. Method: the real synctl; its
// process group's children are looked up in /proc.

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr char kTableModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
tables (int64[N, 2] x, float[rows, 4] users, float[4, 1] v)
    => (float[N, 1] logit) <int64[1] one = {1}> {
  rows_of_x = Gather (users, x)
  sum = ReduceSum <keepdims = 0> (rows_of_x, one)
  logit = MatMul (sum, v)
})";

// Processes whose command line names a file below `dir`: the daemons of one
// run, whose --work-dir or --state-dir is there.
std::vector<int> ProcessesUsing(const std::string& dir) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    std::ifstream in(entry.path() / "cmdline", std::ios::binary);
    const std::string command((std::istreambuf_iterator<char>(in)),
                              std::istreambuf_iterator<char>());
    if (absl::StrContains(command, "syncline-") &&
        absl::StrContains(command, dir)) {
      found.push_back(pid);
    }
  }
  return found;
}

class LocalClusterTest : public testing::Test {
 protected:
  std::string OutDir() const { return dir_.File("out"); }

  absl::StatusOr<std::unique_ptr<RunningProgram>> StartLocal(
      const JobSpec& job, const std::vector<std::string>& flags = {},
      const std::string& model = MlpModel(784, 32, 10)) {
    std::vector<std::string> argv = {BinaryDir() + "/synctl",
                                     "local",
                                     WriteJob(dir_, job, model),
                                     "--ps",
                                     "2",
                                     "--workers",
                                     "3",
                                     "--out",
                                     OutDir()};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return RunningProgram::Start(
        dir_.path(), argv,
        // Another cluster's variables must not reach this one.
        {{"TF_CONFIG", "{\"cluster\": \"not even valid\"}"}});
  }

  absl::StatusOr<std::string> Log(const std::string& daemon) const {
    return ReadFile(OutDir() + "/logs/" + daemon + ".log", 1 << 20);
  }

  const TempDir dir_;
};

TEST_F(LocalClusterTest, AJobForGpusThatAreNotThereFailsAtOnce) {
  JobSpec job = DigitsJob();
  job.mutable_resources()->set_device(ResourcesSpec::CUDA);
  ASSERT_OK_AND_ASSIGN(auto local, StartLocal(job));
  ASSERT_OK_AND_ASSIGN(const auto result, local->Finish(absl::Seconds(60)));
  ASSERT_OK_AND_ASSIGN(const std::string chief, Log("chief-0"));
  if (absl::StrContains(chief, "jobs compute on a GPU")) {
    GTEST_SKIP() << "this machine has a GPU";
  }
  EXPECT_NE(result.exit.code, 0);
  EXPECT_THAT(result.err, HasSubstr("resources.device: CUDA, but 0 of 3 "
                                    "workers on this machine found a GPU"));
  EXPECT_THAT(result.err, HasSubstr("--set resources.device=CPU"));
  EXPECT_THAT(chief, HasSubstr("jobs compute on the processors"));
}

TEST_F(LocalClusterTest, TrainsAndCleansUp) {
  JobSpec job = DigitsJob();
  auto* test = job.mutable_data()->mutable_test()->mutable_digits();
  test->set_count(100);
  test->set_seed(2);
  ASSERT_OK_AND_ASSIGN(auto local, StartLocal(job));
  ASSERT_OK_AND_ASSIGN(const auto result, local->Finish(absl::Seconds(120)));
  EXPECT_EQ(result.exit.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("accuracy"));
  EXPECT_THAT(result.out, HasSubstr(OutDir() + "/trained.onnx"));
  ASSERT_OK_AND_ASSIGN(const Weights weights,
                       ReadWeights(OutDir() + "/trained.onnx"));
  EXPECT_EQ(weights.size(), 4u);
  EXPECT_THAT(result.out, HasSubstr(OutDir() + "/trained.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(OutDir() + "/trained.safetensors"));
  for (const char* log :
       {"scheduler", "ps-0", "ps-1", "chief-0", "worker-0", "worker-1"}) {
    EXPECT_TRUE(std::filesystem::exists(OutDir() + "/logs/" + log + ".log"))
        << log;
  }
  // synctl and the chief list the trained weights; other workers do not.
  EXPECT_THAT(result.out, HasSubstr("  trained         4 (25450 numbers): "));
  ASSERT_OK_AND_ASSIGN(const std::string chief, Log("chief-0"));
  EXPECT_THAT(chief, ContainsRegex("weights are trained.* count=4 "
                                   "numbers=25450 .*w1.*b1.*w2.*b2"));
  ASSERT_OK_AND_ASSIGN(const std::string other, Log("worker-0"));
  EXPECT_THAT(other, Not(HasSubstr("weights are trained")));
  EXPECT_FALSE(std::filesystem::exists(OutDir() + "/run"));
  EXPECT_THAT(ProcessesUsing(OutDir()), IsEmpty());
}

TEST_F(LocalClusterTest, ATableOfAnyKeysIsAmongTheResults) {
  JobSpec job = DigitsJob();
  job.set_name("tables");
  job.mutable_model()->clear_initialize();
  InitializerRule* const rule = job.mutable_model()->add_initialize();
  rule->set_pattern("v");
  rule->set_scheme(InitializerRule::CONSTANT);
  rule->set_value(0.5f);
  job.mutable_data()->mutable_train()->mutable_csv()->set_path("keys.csv");
  job.mutable_data()->mutable_feeds(0)->set_field("1:3");
  job.mutable_data()->mutable_feeds(0)->clear_scale();
  job.mutable_data()->mutable_label()->set_field("0");
  job.mutable_loss()->set_kind(LossSpec::SIGMOID_CROSS_ENTROPY);
  job.add_tables()->set_name("users");
  std::string lines;
  for (int i = 0; i < 200; ++i) absl::StrAppend(&lines, i % 2, ",-5,", i, "\n");
  dir_.Write("keys.csv", lines);
  ASSERT_OK_AND_ASSIGN(auto local, StartLocal(job, {}, kTableModel));
  ASSERT_OK_AND_ASSIGN(const auto result, local->Finish(absl::Seconds(120)));
  EXPECT_EQ(result.exit.code, 0) << result.out << result.err;
  const std::string file = OutDir() + "/tables/users.safetensors";
  EXPECT_THAT(result.out, HasSubstr("table          " + file));
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(LocalClusterTest, AnEvaluatorEvaluatesWhileTheOthersTrain) {
  JobSpec job = DigitsJob();
  ASSERT_OK_AND_ASSIGN(auto nothing, StartLocal(job, {"--evaluator"}));
  ASSERT_OK_AND_ASSIGN(const auto refused, nothing->Finish(absl::Seconds(60)));
  EXPECT_NE(refused.exit.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("data.test"));

  job.mutable_data()->mutable_test()->mutable_digits()->set_count(100);
  ASSERT_OK_AND_ASSIGN(auto local, StartLocal(job, {"--evaluator"}));
  ASSERT_OK_AND_ASSIGN(const auto result, local->Finish(absl::Seconds(120)));
  EXPECT_EQ(result.exit.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("preparing on 3 workers, an evaluator"));
  EXPECT_THAT(result.out, HasSubstr("with --scheduler 127.0.0.1:"));
  EXPECT_THAT(result.out, HasSubstr("test loss"));
  EXPECT_TRUE(std::filesystem::exists(OutDir() + "/logs/evaluator-0.log"));
  EXPECT_TRUE(std::filesystem::exists(OutDir() + "/metrics.json"));
}

// No step is applied: the loss is not finite from the start.
TEST_F(LocalClusterTest, SaysThatAllStepsWereSkipped) {
  JobSpec job = DigitsJob();
  for (InitializerRule& rule : *job.mutable_model()->mutable_initialize()) {
    rule.set_scheme(InitializerRule::CONSTANT);
    rule.set_value(3e38f);
  }
  job.set_non_finite(SKIP_STEP);
  ASSERT_OK_AND_ASSIGN(auto local, StartLocal(job));
  ASSERT_OK_AND_ASSIGN(const auto result, local->Finish(absl::Seconds(120)));
  EXPECT_EQ(result.exit.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err,
              testing::ContainsRegex(
                  "WARNING: all [0-9]+ steps were skipped: their gradients "
                  "were not finite. Nothing was trained"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("-nan")));
  ASSERT_OK_AND_ASSIGN(const std::string metrics,
                       ReadFile(OutDir() + "/metrics.json", 1 << 20));
  EXPECT_THAT(metrics, HasSubstr("skipped_clocks"));
}

TEST_F(LocalClusterTest, DataOutsideTheDataRootIsRefused) {
  const std::string outside = dir_.File("outside.csv");
  std::string line = "1";
  for (int i = 0; i < 784; ++i) absl::StrAppend(&line, ",0");
  dir_.Write("outside.csv", line + "\n" + line + "\n" + line + "\n");
  std::filesystem::create_directory(dir_.File("data"));
  JobSpec job = DigitsJob();
  job.mutable_data()->mutable_train()->mutable_csv()->set_path(outside);
  job.mutable_data()->mutable_feeds(0)->set_field("1:785");
  job.mutable_data()->mutable_label()->set_field("0");
  ASSERT_OK_AND_ASSIGN(auto bound,
                       StartLocal(job, {"--data-root", dir_.File("data")}));
  ASSERT_OK_AND_ASSIGN(const auto refused, bound->Finish(absl::Seconds(120)));
  EXPECT_EQ(refused.exit.code, 1);
  EXPECT_THAT(refused.err,
              testing::AllOf(HasSubstr("leads outside --data-root"),
                             HasSubstr("leave --data-root out")));
  ASSERT_OK_AND_ASSIGN(auto free, StartLocal(job));
  ASSERT_OK_AND_ASSIGN(const auto result, free->Finish(absl::Seconds(120)));
  EXPECT_EQ(result.exit.code, 0) << result.out << result.err;
}

TEST_F(LocalClusterTest, CtrlCCancelsAndLeavesNoProcess) {
  ASSERT_OK_AND_ASSIGN(auto local, StartLocal(EndlessJob()));
  ASSERT_TRUE(
      Eventually(absl::Seconds(60),
                 [&] { return absl::StrContains(local->out(), "epoch 1"); }))
      << local->out() << local->err();
  EXPECT_THAT(ProcessesUsing(OutDir()), Not(IsEmpty()));
  local->process().Signal(SIGINT);
  ASSERT_OK_AND_ASSIGN(const auto result, local->Finish(absl::Seconds(30)));
  EXPECT_EQ(result.exit.code, 130);
  EXPECT_THAT(ProcessesUsing(OutDir()), IsEmpty());
}

TEST_F(LocalClusterTest, AKilledSynctlTakesItsDaemonsAlong) {
  ASSERT_OK_AND_ASSIGN(auto local, StartLocal(EndlessJob()));
  ASSERT_TRUE(
      Eventually(absl::Seconds(60),
                 [&] { return absl::StrContains(local->out(), "epoch 1"); }))
      << local->out() << local->err();
  local->process().Signal(SIGKILL);
  ASSERT_OK(local->Finish(absl::Seconds(30)));
  EXPECT_TRUE(Eventually(absl::Seconds(30),
                         [&] { return ProcessesUsing(OutDir()).empty(); }));
}

TEST_F(LocalClusterTest, ALostDaemonEndsItRetryable) {
  ASSERT_OK_AND_ASSIGN(auto local, StartLocal(EndlessJob()));
  ASSERT_TRUE(
      Eventually(absl::Seconds(60),
                 [&] { return absl::StrContains(local->out(), "epoch 1"); }))
      << local->out() << local->err();
  const std::vector<int> workers = ProcessesUsing(OutDir() + "/run/worker-1");
  ASSERT_THAT(workers, testing::SizeIs(1));
  kill(workers[0], SIGKILL);
  ASSERT_OK_AND_ASSIGN(const auto result, local->Finish(absl::Seconds(60)));
  EXPECT_EQ(result.exit.code, 138);
  EXPECT_THAT(result.err, HasSubstr("worker 1 at "));
  EXPECT_THAT(ProcessesUsing(OutDir()), IsEmpty());
}

TEST_F(LocalClusterTest, AFailedJobLeavesNoProcess) {
  JobSpec job = DigitsJob();
  job.mutable_data()->mutable_train()->mutable_csv()->set_path("no-such.csv");
  job.mutable_data()->mutable_feeds(0)->set_field("0:784");
  job.mutable_data()->mutable_label()->set_field("784");
  ASSERT_OK_AND_ASSIGN(auto local, StartLocal(job));
  ASSERT_OK_AND_ASSIGN(const auto result, local->Finish(absl::Seconds(60)));
  EXPECT_EQ(result.exit.code, 1);
  EXPECT_THAT(result.err, HasSubstr("no-such.csv"));
  EXPECT_THAT(ProcessesUsing(OutDir()), IsEmpty());
}

TEST_F(LocalClusterTest, ABadJobFileStartsNothing) {
  JobSpec job = DigitsJob();
  job.mutable_learning_rate()->set_base(-1);
  ASSERT_OK_AND_ASSIGN(auto local, StartLocal(job));
  ASSERT_OK_AND_ASSIGN(const auto result, local->Finish(absl::Seconds(60)));
  EXPECT_EQ(result.exit.code, 1);
  EXPECT_THAT(result.err, HasSubstr("learning_rate.base"));
  EXPECT_FALSE(std::filesystem::exists(OutDir()));
}

TEST_F(LocalClusterTest, ABadSettingStartsNothingAndIsNotBlamedOnTheFile) {
  ASSERT_OK_AND_ASSIGN(
      auto local, StartLocal(DigitsJob(), {"--set", "learning_rate.base=-1"}));
  ASSERT_OK_AND_ASSIGN(const auto result, local->Finish(absl::Seconds(60)));
  EXPECT_EQ(result.exit.code, 1);
  EXPECT_THAT(result.err, HasSubstr("--set: learning_rate.base: "));
  EXPECT_FALSE(std::filesystem::exists(OutDir()));
}

}  // namespace
}  // namespace syncline
