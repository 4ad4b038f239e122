// Goal: the job of --job is submitted with its model, its exit code ends the
// cluster, and a process that stops earlier ends the cluster too.
// Method: a Scheduler whose answers the test gives.

#include "scheduler/single_job.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;

class FakeScheduler final : public Scheduler {
 public:
  void RegisterServices(grpc::ServerBuilder*) override {}
  void SetAddress(const std::string&, const std::string&) override {}
  absl::Status Ready() const override { return absl::OkStatus(); }
  HttpServer::Pages Pages() override { return {}; }
  absl::StatusOr<Submission> Submit(const JobSpec& spec,
                                    absl::string_view model,
                                    const std::string& client_key,
                                    const std::string& /*weights*/) override {
    calls.push_back(absl::StrCat("submit ", spec.name(), " ", model));
    keys.push_back(client_key);
    if (!submit_result.ok()) return submit_result.status();
    const bool repeated = keys.size() <= jobs_before;
    return Submission{
        repeated ? absl::StrCat("j-before-", keys.size()) : *submit_result,
        repeated};
  }
  absl::StatusOr<JobStatus> WaitFor(const std::string& job_id,
                                    absl::Time) override {
    return wait_for(job_id);
  }
  void ShutdownCluster(int exit_code, absl::string_view, int members,
                       absl::Time) override {
    calls.push_back(absl::StrCat("shutdown ", exit_code,
                                 members > 0 ? " of " : "",
                                 members > 0 ? absl::StrCat(members) : ""));
  }
  std::string FilesOf(const std::string& job_id) const override {
    return "/state/" + job_id;
  }
  void Drain(absl::Time) override {}

  absl::StatusOr<std::string> submit_result = std::string("j-0001");
  std::function<absl::StatusOr<JobStatus>(const std::string&)> wait_for =
      [](const std::string&) { return JobStatus(); };
  std::vector<std::string> calls;  // by one thread at a time
  std::vector<std::string> keys;   // likewise: of Submit
  size_t jobs_before = 0;          // so many keys are known already
};

class SingleJobTest : public ::testing::Test {
 protected:
  SingleJobTest() {
    job_.spec.set_name("mnist");
    job_.model_file = temp_.Write("model.onnx", "MODEL");
  }

  std::function<void(int)> OnDone() {
    return [this](int exit_code) {
      MutexLock lock(&mu_);
      codes_.push_back(exit_code);
      changed_.SignalAll();
    };
  }
  // The exit code that the process was given, once.
  int AwaitCode() {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    MutexLock lock(&mu_);
    while (codes_.empty() && absl::Now() < deadline) {
      changed_.WaitUntil(&mu_, deadline);
    }
    EXPECT_EQ(codes_.size(), 1u);
    return codes_.empty() ? -1 : codes_[0];
  }

  static JobStatus Final(JobState state, int exit_code) {
    JobStatus status;
    status.set_state(state);
    status.set_exit_code(exit_code);
    return status;
  }

  const TempDir temp_;
  ctl::JobFile job_;
  FakeScheduler scheduler_;
  Mutex mu_;
  CondVar changed_;
  std::vector<int> codes_ ABSL_GUARDED_BY(mu_);
};

TEST_F(SingleJobTest, SuccessEndsTheClusterWithZero) {
  scheduler_.wait_for = [](const std::string& job_id) {
    EXPECT_EQ(job_id, "j-0001");
    return Final(SUCCEEDED, 0);
  };
  SingleJob job(&scheduler_, job_, /*members=*/3, OnDone());
  EXPECT_EQ(AwaitCode(), 0);
  EXPECT_FALSE(job.running());
  EXPECT_THAT(scheduler_.calls,
              ElementsAre("submit mnist MODEL", "shutdown 0"));
}

TEST_F(SingleJobTest, AFailureGivesTheJobsOwnCodeAfterAnyNumberOfLooks) {
  int looks = 0;
  scheduler_.wait_for =
      [&looks](const std::string&) -> absl::StatusOr<JobStatus> {
    if (++looks < 3) return absl::DeadlineExceededError("not yet");
    return Final(FAILED, 138);
  };
  SingleJob job(&scheduler_, job_, /*members=*/3, OnDone());
  EXPECT_EQ(AwaitCode(), 138);
  EXPECT_EQ(looks, 3);
}

TEST_F(SingleJobTest, AJobThatIsOverIsNotRunAgain) {
  scheduler_.jobs_before = 1;
  scheduler_.wait_for = [](const std::string& job_id) {
    EXPECT_EQ(job_id, "j-before-1");
    return Final(FAILED, 1);
  };
  SingleJob job(&scheduler_, job_, /*members=*/3, OnDone());
  EXPECT_EQ(AwaitCode(), 1);
  // Members that start with the host still have to come to be told.
  EXPECT_THAT(scheduler_.calls,
              ElementsAre("submit mnist MODEL", "shutdown 1 of 3"));
}

TEST_F(SingleJobTest, AProcessThatIsAloneAwaitsNobodyToTell) {
  scheduler_.jobs_before = 1;
  scheduler_.wait_for = [](const std::string&) { return Final(SUCCEEDED, 0); };
  SingleJob job(&scheduler_, job_, /*members=*/0, OnDone());
  EXPECT_EQ(AwaitCode(), 0);
  EXPECT_THAT(scheduler_.calls,
              ElementsAre("submit mnist MODEL", "shutdown 0"));
}

TEST_F(SingleJobTest, AJobThatWasWorthARetryIsRunAgain) {
  scheduler_.jobs_before = 2;
  scheduler_.wait_for = [](const std::string& job_id) {
    return job_id == "j-0001" ? Final(SUCCEEDED, 0) : Final(FAILED, 138);
  };
  SingleJob job(&scheduler_, job_, /*members=*/3, OnDone());
  EXPECT_EQ(AwaitCode(), 0);
  ASSERT_EQ(scheduler_.keys.size(), 3u);
  EXPECT_NE(scheduler_.keys[0], scheduler_.keys[1]);
  EXPECT_NE(scheduler_.keys[1], scheduler_.keys[2]);
}

// The scheduler waits for its disk and knows no status yet.
TEST_F(SingleJobTest, ARetryIsNotLostWhileTheDiskIsSlow) {
  scheduler_.jobs_before = 1;
  int looks = 0;
  scheduler_.wait_for =
      [&looks](const std::string& job_id) -> absl::StatusOr<JobStatus> {
    if (job_id == "j-0001") return Final(SUCCEEDED, 0);
    if (++looks < 3) return absl::DeadlineExceededError("no status in time");
    return Final(FAILED, 138);
  };
  SingleJob job(&scheduler_, job_, /*members=*/3, OnDone());
  EXPECT_EQ(AwaitCode(), 0);
  EXPECT_EQ(scheduler_.keys.size(), 2u);
}

TEST_F(SingleJobTest, AWaitForAStatusEndsWithTheProcess) {
  scheduler_.jobs_before = 1;
  scheduler_.wait_for = [](const std::string&) {
    return absl::DeadlineExceededError("no status in time");
  };
  SingleJob job(&scheduler_, job_, /*members=*/3, OnDone());
  job.Abandon(143);
  EXPECT_EQ(AwaitCode(), 143);
}

TEST_F(SingleJobTest, TheKeyFollowsFromJobFileAndModel) {
  const auto key = [&] {
    scheduler_.keys.clear();
    scheduler_.wait_for = [](const std::string&) { return Final(RUNNING, 0); };
    SingleJob job(&scheduler_, job_, /*members=*/3, OnDone());
    job.Abandon(1);
    AwaitCode();
    MutexLock lock(&mu_);
    codes_.clear();
    return scheduler_.keys.at(0);
  };
  const std::string first = key();
  EXPECT_EQ(key(), first);
  job_.spec.mutable_training()->set_epochs(7);
  const std::string other_spec = key();
  EXPECT_NE(other_spec, first);
  ASSERT_TRUE(WriteFileAtomically(job_.model_file, "MODEL2").ok());
  EXPECT_NE(key(), other_spec);
}

TEST_F(SingleJobTest, AJobThatIsNotTakenEndsTheClusterWithOne) {
  scheduler_.submit_result = absl::InvalidArgumentError("model: no graph");
  SingleJob job(&scheduler_, job_, /*members=*/3, OnDone());
  EXPECT_EQ(AwaitCode(), 1);
  EXPECT_THAT(scheduler_.calls,
              ElementsAre("submit mnist MODEL", "shutdown 1 of 3"));
}

TEST_F(SingleJobTest, ABadJobFileEndsTheClusterWithOne) {
  SingleJob job(&scheduler_, absl::InvalidArgumentError("job:1: no"),
                /*members=*/3, OnDone());
  EXPECT_EQ(AwaitCode(), 1);
  EXPECT_THAT(scheduler_.calls, ElementsAre("shutdown 1 of 3"));
}

TEST_F(SingleJobTest, AModelThatIsGoneEndsTheClusterWithOne) {
  ASSERT_TRUE(RemoveTree(job_.model_file).ok());
  SingleJob job(&scheduler_, job_, /*members=*/3, OnDone());
  EXPECT_EQ(AwaitCode(), 1);
  EXPECT_THAT(scheduler_.calls, ElementsAre("shutdown 1 of 3"));
}

TEST_F(SingleJobTest, AbandonedItEndsTheClusterWithTheGivenCode) {
  scheduler_.wait_for = [](const std::string&) { return Final(RUNNING, 0); };
  SingleJob job(&scheduler_, job_, /*members=*/3, OnDone());
  EXPECT_TRUE(job.running());
  job.Abandon(143);
  EXPECT_EQ(AwaitCode(), 143);
  EXPECT_THAT(scheduler_.calls,
              ElementsAre("submit mnist MODEL", "shutdown 143"));
}

}  // namespace
}  // namespace syncline::scheduler
