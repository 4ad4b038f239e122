// Goal: the loss of the process that hosts the scheduler, in a cluster without
// a scheduler of its own, is told at once by those who are left: what is
// orphaned, how long they wait and what follows; a user who watches is told
// within 15 seconds; and with --job they end, worth a retry, within a bounded
// time. Method: the real daemons with nothing but TF_CONFIG; SIGKILL.

#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
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

class HostLossTest : public testing::Test {
 protected:
  HostLossTest()
      : chief_address_(Address()),
        cluster_(absl::Substitute(
            R"({"chief": ["$0"], "ps": ["$1"], "worker": ["$2"]})",
            chief_address_, Address(), Address())) {}

  static std::string Address() {
    return absl::StrCat("localhost:", UnusedPort());
  }

  void Start(const std::string& type, std::vector<std::string> flags) {
    std::vector<std::string> argv = {absl::StrCat(
        BinaryDir(), type == "ps" ? "/syncline-ps" : "/syncline-worker")};
    argv.insert(argv.end(), flags.begin(), flags.end());
    dir_.Write(type + "/here", "");
    ASSERT_OK_AND_ASSIGN(
        programs_[type],
        RunningProgram::Start(
            dir_.File(type), argv,
            {{"TF_CONFIG",
              absl::Substitute(
                  R"({"cluster": $0, "task": {"type": "$1", "index": 0}})",
                  cluster_, type)}}));
  }

  void StartAll(const std::vector<std::string>& chief_flags) {
    Start("ps", {"--orphan-seconds=5"});
    Start("worker", {"--orphan-seconds=5"});
    Start("chief", chief_flags);
  }

  bool EventuallyLogs(const std::string& type, const std::string& text) {
    return Eventually(absl::Seconds(60), [&] {
      return absl::StrContains(programs_.at(type)->err(), text);
    });
  }

  std::string WriteEndlessJob() {
    JobSpec job = EndlessJob();
    job.mutable_resources()->set_workers(2);
    job.mutable_resources()->set_ps(1);
    return WriteJob(dir_, job, MlpModel(784, 32, 10));
  }

  const std::string chief_address_;
  const std::string cluster_;
  const TempDir dir_;
  std::map<std::string, std::unique_ptr<RunningProgram>> programs_;
};

TEST_F(HostLossTest, WithAJobTheOthersEndWorthARetry) {
  StartAll({"--job=" + WriteEndlessJob()});
  ASSERT_TRUE(EventuallyLogs("chief", "state=RUNNING"))
      << programs_.at("chief")->err();
  const absl::Time killed = absl::Now();
  programs_.at("chief")->process().Signal(SIGKILL);
  for (const std::string type : {"ps", "worker"}) {
    ASSERT_OK_AND_ASSIGN(const auto result,
                         programs_.at(type)->Finish(absl::Seconds(60)));
    EXPECT_EQ(result.exit.signal, 0) << type;
    EXPECT_EQ(result.exit.code, 138) << type << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("the job is orphaned"), HasSubstr("job=j-0001"),
                      HasSubstr("waits=5s"), HasSubstr("this process ends"),
                      HasSubstr("out of reach for 5s")))
        << type;
  }
  EXPECT_LE(absl::Now() - killed, absl::Seconds(30));
}

TEST_F(HostLossTest, WithoutOneTheyStopTheJobAndTakeTheNext) {
  StartAll({});
  ASSERT_TRUE(Eventually(absl::Seconds(60), [&] {
    for (const auto& [type, program] : programs_) {
      if (!absl::StrContains(program->err(), "msg=\"registered\""))
        return false;
    }
    return true;
  }));
  ASSERT_OK_AND_ASSIGN(const auto watcher,
                       RunningProgram::Start(dir_.path(),
                                             {BinaryDir() + "/synctl", "submit",
                                              WriteEndlessJob(), "--watch",
                                              "--scheduler", chief_address_},
                                             {{"TF_CONFIG", std::nullopt}}));
  ASSERT_TRUE(EventuallyLogs("chief", "state=RUNNING"))
      << programs_.at("chief")->err();

  const absl::Time killed = absl::Now();
  programs_.at("chief")->process().Signal(SIGKILL);
  ASSERT_TRUE(EventuallyLogs("ps", "the job is orphaned"));
  ASSERT_TRUE(EventuallyLogs("worker", "the job is orphaned"));
  EXPECT_LE(absl::Now() - killed, absl::Seconds(10));
  ASSERT_OK_AND_ASSIGN(const auto told, watcher->Finish(absl::Seconds(60)));
  EXPECT_LE(absl::Now() - killed, absl::Seconds(15));
  EXPECT_EQ(told.exit.code, 3);
  EXPECT_THAT(told.err, HasSubstr(chief_address_));
  EXPECT_THAT(programs_.at("worker")->err(),
              AllOf(HasSubstr("then it is stopped here"),
                    HasSubstr("goes on looking")));

  // The chief comes back, and so do they.
  ASSERT_OK(programs_.at("chief")->Finish(absl::Seconds(10)));
  Start("chief", {});
  JobSpec job = DigitsJob();
  job.mutable_resources()->set_workers(2);
  job.mutable_resources()->set_ps(1);
  const std::string file = WriteJob(dir_, job, MlpModel(784, 32, 10));
  ASSERT_OK_AND_ASSIGN(
      const auto next,
      RunningProgram::Start(dir_.path(),
                            {BinaryDir() + "/synctl", "submit", file, "--watch",
                             "--scheduler", chief_address_},
                            {{"TF_CONFIG", std::nullopt}}));
  ASSERT_OK_AND_ASSIGN(auto result, next->Finish(absl::Seconds(90)));
  if (result.exit.code == 3) {  // it did not listen yet
    ASSERT_TRUE(EventuallyLogs("chief", "listening"));
    ASSERT_OK_AND_ASSIGN(
        const auto again,
        RunningProgram::Start(dir_.path(),
                              {BinaryDir() + "/synctl", "submit", file,
                               "--watch", "--scheduler", chief_address_},
                              {{"TF_CONFIG", std::nullopt}}));
    ASSERT_OK_AND_ASSIGN(result, again->Finish(absl::Seconds(90)));
  }
  EXPECT_EQ(result.exit.code, 0) << result.out << result.err;
}

}  // namespace
}  // namespace syncline
