// Goal: daemons started with nothing but TF_CONFIG, as Kubeflow writes it, find
// each other without a scheduler of their own and take jobs; with --job they
// run it and all end with its exit code. Method: the real daemons, each in a
// folder of its own, on ports that were free a moment ago.

#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TfConfigClusterTest : public testing::Test {
 protected:
  TfConfigClusterTest()
      : chief_address_(Address()),
        cluster_(absl::Substitute(
            R"({"chief": ["$0"], "ps": ["$1", "$2"], "worker": ["$3"]})",
            chief_address_, Address(), Address(), Address())) {}

  static std::string Address() {
    return absl::StrCat("localhost:", UnusedPort());
  }

  // `type`:`index`, in a folder of its own.
  void Start(const std::string& type, int index,
             const std::vector<std::string>& flags = {}) {
    const std::string name = absl::StrCat(type, "-", index);
    const std::string tf_config = absl::Substitute(
        R"({"cluster": $0, "task": {"type": "$1", "index": $2}, "environment": "cloud"})",
        cluster_, type, index);
    std::vector<std::string> argv = {absl::StrCat(
        BinaryDir(), type == "ps" ? "/syncline-ps" : "/syncline-worker")};
    argv.insert(argv.end(), flags.begin(), flags.end());
    dir_.Write(name + "/here", "");
    auto program = RunningProgram::Start(dir_.File(name), argv,
                                         {{"TF_CONFIG", tf_config}});
    ASSERT_OK(program);
    programs_[name] = *std::move(program);
  }

  void StartAll(const std::vector<std::string>& chief_flags = {}) {
    Start("ps", 0);
    Start("worker", 0);
    Start("chief", 0, chief_flags);
    Start("ps", 1);
  }

  absl::StatusOr<RunningProgram::Result> Synctl(
      std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), BinaryDir() + "/synctl");
    arguments.insert(arguments.end(), {"--scheduler", chief_address_});
    auto program = RunningProgram::Start(dir_.path(), arguments,
                                         {{"TF_CONFIG", std::nullopt}});
    if (!program.ok()) return program.status();
    return (*program)->Finish(absl::Seconds(120));
  }

  JobSpec Job() {
    JobSpec job = DigitsJob();
    job.mutable_resources()->set_workers(2);
    job.mutable_resources()->set_ps(2);
    return job;
  }

  JobSpec EvaluatedJob() {
    JobSpec job = Job();
    job.mutable_data()->mutable_test()->mutable_digits()->set_count(100);
    job.mutable_training()->set_epochs(2);
    return job;
  }

  // All exit on their own, with this code.
  void ExpectAllExitWith(int code) {
    for (auto& [name, program] : programs_) {
      const auto result = program->Finish(absl::Seconds(60));
      ASSERT_OK(result);
      EXPECT_EQ(result->exit.signal, 0) << name;
      EXPECT_EQ(result->exit.code, code) << name << ": " << result->err;
    }
  }

  const std::string chief_address_;
  std::string cluster_;
  const TempDir dir_;
  std::map<std::string, std::unique_ptr<RunningProgram>> programs_;
};

TEST_F(TfConfigClusterTest, TheChiefHostsTheSchedulerAndJobsRun) {
  StartAll();
  ASSERT_TRUE(Eventually(absl::Seconds(60), [&] {
    const auto cluster = Synctl({"cluster"});
    return cluster.ok() && cluster->out.find("chief:0") != std::string::npos;
  }));
  ASSERT_OK_AND_ASSIGN(
      const auto submit,
      Synctl(
          {"submit", WriteJob(dir_, Job(), MlpModel(784, 32, 10)), "--watch"}));
  EXPECT_EQ(submit.exit.code, 0) << submit.out << submit.err;

  // The cluster can write its members' configuration again.
  ASSERT_OK_AND_ASSIGN(const auto tf_config,
                       Synctl({"tf-config", "--task", "ps:1"}));
  EXPECT_THAT(tf_config.out, HasSubstr("\"index\":1"));

  for (auto& [name, program] : programs_) program->process().Signal(SIGTERM);
  ExpectAllExitWith(0);
}

TEST_F(TfConfigClusterTest, WithAJobAllEndWithItsSuccess) {
  StartAll({"--job=" + WriteJob(dir_, Job(), MlpModel(784, 32, 10))});
  ExpectAllExitWith(0);
}

// The chief evaluates only where no evaluator comes: one in `cluster` is waited
// for, however late it is.
TEST_F(TfConfigClusterTest, WithAJobAnEvaluatorInTheClusterEvaluates) {
  cluster_.insert(cluster_.size() - 1,
                  absl::StrCat(R"(, "evaluator": [")", Address(), R"("])"));
  StartAll({"--job=" + WriteJob(dir_, EvaluatedJob(), MlpModel(784, 32, 10))});
  ASSERT_TRUE(Eventually(absl::Seconds(60), [&] {
    const auto job = Synctl({"get", "j-0001"});
    return job.ok() && job->out.find("may still come") != std::string::npos;
  }));
  Start("evaluator", 0);
  ExpectAllExitWith(0);
  EXPECT_THAT(programs_.at("evaluator-0")->err(),
              AllOf(HasSubstr("msg=\"evaluated\" epoch=1"),
                    HasSubstr("msg=\"evaluated\" epoch=2")));
  EXPECT_THAT(programs_.at("chief-0")->err(),
              Not(HasSubstr("msg=\"evaluated\"")));
}

TEST_F(TfConfigClusterTest, AnEvaluatorOutsideTheClusterEvaluates) {
  StartAll();
  Start("evaluator", 7);
  ASSERT_TRUE(Eventually(absl::Seconds(60), [&] {
    const auto cluster = Synctl({"cluster"});
    return cluster.ok() &&
           cluster->out.find("evaluator:7") != std::string::npos;
  }));
  ASSERT_OK_AND_ASSIGN(
      const auto submit,
      Synctl({"submit", WriteJob(dir_, EvaluatedJob(), MlpModel(784, 32, 10)),
              "--watch"}));
  EXPECT_EQ(submit.exit.code, 0) << submit.out << submit.err;
  ASSERT_OK_AND_ASSIGN(const auto job, Synctl({"get", "j-0001"}));
  EXPECT_THAT(job.out,
              AllOf(HasSubstr("evaluator evaluator:7 at "),
                    HasSubstr("epoch 2: test loss"), HasSubstr("metrics.json"),
                    HasSubstr("logs/evaluator-7.log")));
  for (auto& [name, program] : programs_) program->process().Signal(SIGTERM);
  ExpectAllExitWith(0);
}

TEST_F(TfConfigClusterTest, WithAJobThatFailsAllEndWithItsCode) {
  JobSpec job = Job();
  job.mutable_data()->mutable_train()->mutable_csv()->set_path("no-such.csv");
  job.mutable_data()->mutable_feeds(0)->set_field("0:784");
  job.mutable_data()->mutable_label()->set_field("784");
  StartAll({"--job=" + WriteJob(dir_, job, MlpModel(784, 32, 10))});
  ExpectAllExitWith(1);
  EXPECT_THAT(programs_.at("chief-0")->err(), HasSubstr("no-such.csv"));
}

// All are told, whether they come before or after the process that knows.
TEST_F(TfConfigClusterTest, WithABadJobFileAllEndWithItsCode) {
  const std::string file =
      dir_.Write("bad.textproto", "name: \"bad\"\ntraning { epochs: -1 }\n");
  const absl::Time started = absl::Now();
  StartAll({"--job=" + file});
  ExpectAllExitWith(1);
  EXPECT_LE(absl::Now() - started, absl::Seconds(40));
  EXPECT_THAT(programs_.at("chief-0")->err(), HasSubstr("bad.textproto:2:1"));
  EXPECT_THAT(programs_.at("ps-0")->err(), HasSubstr("was not taken"));
}

// No other daemon comes. The host does not wait for one for ever.
TEST_F(TfConfigClusterTest, WithABadJobFileTheHostEndsAlone) {
  Start("chief", 0, {"--job=" + dir_.Write("bad.textproto", "nam: 3")});
  ExpectAllExitWith(1);
}

TEST_F(TfConfigClusterTest, AProcessWithoutAClusterIsAWholeOne) {
  dir_.Write("alone/here", "");
  JobSpec job = DigitsJob();
  ASSERT_OK_AND_ASSIGN(
      auto alone, RunningProgram::Start(
                      dir_.File("alone"),
                      {BinaryDir() + "/syncline-worker",
                       "--job=" + WriteJob(dir_, job, MlpModel(784, 32, 10))},
                      {{"TF_CONFIG", std::nullopt}}));
  ASSERT_OK_AND_ASSIGN(const auto result, alone->Finish(absl::Seconds(60)));
  EXPECT_EQ(result.exit.code, 0) << result.err;
}

TEST_F(TfConfigClusterTest, ABadTfConfigEndsTheDaemonWithAllItsProblems) {
  ASSERT_OK_AND_ASSIGN(
      auto daemon,
      RunningProgram::Start(
          dir_.path(), {BinaryDir() + "/syncline-ps"},
          {{"TF_CONFIG",
            R"({"cluster": {"chief": ["a"]}, "task": {"type": "pss"}})"}}));
  ASSERT_OK_AND_ASSIGN(const auto result, daemon->Finish(absl::Seconds(30)));
  EXPECT_EQ(result.exit.code, 2);
  EXPECT_THAT(result.err, HasSubstr("cluster.chief"));
  EXPECT_THAT(result.err, HasSubstr("task.type"));
}

}  // namespace
}  // namespace syncline
