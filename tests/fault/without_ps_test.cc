// Goal: jobs without ps on a real cluster end with the bytes of jobs with ps,
// and take nothing of the cluster but workers. When a rank is killed or hangs
// in a step, the job fails with 138 and a message that names rank, address and
// clock, and the daemons serve the next job; with `restart` it goes back to its
// last checkpoint by itself, and ends with the same bytes. Checkpoints serve
// jobs of each strategy. Method: the real executables; SIGKILL and SIGSTOP of
// each rank in the middle of a job.

#include <csignal>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kModelBytesMax = 64 << 20;
constexpr int kWorkers = 3;

JobSpec WithoutPs(JobSpec job, Strategy strategy) {
  job.set_strategy(strategy);
  job.mutable_resources()->set_workers(kWorkers);
  job.mutable_resources()->clear_ps();
  return job;
}

class WithoutPsTest : public ::testing::Test {
 protected:
  // One ps, for the jobs that are compared.
  WithoutPsTest()
      : cluster_({.ps = 1,
                  .workers = kWorkers,
                  .step_pause = absl::Milliseconds(5)}) {}
  void SetUp() override { ASSERT_OK(cluster_.Start()); }

  absl::StatusOr<std::string> TrainedBytes(const JobSpec& job,
                                           const std::string& model) {
    auto status = cluster_.Train(WriteJob(cluster_.dir(), job, model));
    if (!status.ok()) return status.status();
    const auto file = cluster_.FetchModel(status->job_id());
    return file.ok() ? ReadFile(*file, kModelBytesMax) : file.status();
  }

  std::string AddressOf(const JobStatus& status, uint32_t rank) {
    return status.workers(static_cast<int>(rank)).member().address();
  }
  static std::string DaemonOf(const JobStatus& status, uint32_t rank) {
    const Task& task = status.workers(static_cast<int>(rank)).member().task();
    return absl::StrCat(task.type() == CHIEF ? "chief-" : "worker-",
                        task.index());
  }

  void ExpectNextJobRuns(Strategy strategy) {
    ASSERT_OK(cluster_.WaitForFreeMembers(kWorkers + 1, absl::Seconds(60)));
    JobSpec job = WithoutPs(DigitsJob(), strategy);
    job.set_name("next");
    EXPECT_OK(
        cluster_.Train(WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10))));
  }

  // Sends `signal` to each rank in turn, in the middle of a job.
  void LoseEachRank(int signal) {
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      const Strategy strategy = rank % 2 == 0 ? ALL_REDUCE : SHARDED;
      SCOPED_TRACE(absl::StrCat(Strategy_Name(strategy), ", rank ", rank));
      JobSpec job = WithoutPs(EndlessJob(), strategy);
      job.set_name(absl::StrCat("endless-", rank));
      job.mutable_limits()->set_step_timeout_seconds(3);
      ASSERT_OK_AND_ASSIGN(const std::string id,
                           cluster_.Submit(WriteJob(cluster_.dir(), job,
                                                    MlpModel(784, 32, 10))));
      ASSERT_OK_AND_ASSIGN(const JobStatus running,
                           cluster_.WaitForClock(id, 5, absl::Seconds(60)));
      const std::string name = DaemonOf(running, rank);
      const std::string address = AddressOf(running, rank);
      cluster_.daemon(name).Signal(signal);
      const auto ended = cluster_.WaitForEnd(id, absl::Seconds(40));
      if (signal == SIGSTOP) cluster_.daemon(name).Signal(SIGCONT);
      ASSERT_OK(ended);
      EXPECT_EQ(ended->state(), FAILED);
      EXPECT_EQ(ended->exit_code(), 138);
      const std::string reason =
          ended->transitions(ended->transitions_size() - 1).reason();
      std::cout << reason << std::endl;
      EXPECT_THAT(reason, AllOf(HasSubstr(address), HasSubstr("clock ")));
      if (signal == SIGKILL) ASSERT_OK(cluster_.StartDaemon(name));
      ExpectNextJobRuns(strategy);
    }
  }

  TestCluster cluster_;
};

TEST_F(WithoutPsTest, EndsWithTheBytesOfAJobWithPs) {
  JobSpec job = DigitsJob();
  job.mutable_data()->mutable_train()->mutable_digits()->set_count(2000);
  job.mutable_data()->mutable_test()->mutable_digits()->set_count(200);
  job.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  job.add_metrics(ACCURACY);
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  job.mutable_optimizer()->set_clip_norm(0.5);
  job.mutable_learning_rate()->set_base(0.002);
  job.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  job.mutable_training()->set_epochs(3);
  job.mutable_resources()->set_workers(kWorkers);
  const std::string model = MlpModel(784, 64, 10);
  ASSERT_OK_AND_ASSIGN(const std::string with_ps, TrainedBytes(job, model));
  for (const Strategy strategy : {ALL_REDUCE, SHARDED}) {
    ASSERT_OK_AND_ASSIGN(const std::string without,
                         TrainedBytes(WithoutPs(job, strategy), model));
    EXPECT_TRUE(without == with_ps) << Strategy_Name(strategy);
  }
  const auto members = cluster_.Members();
  ASSERT_OK(members);
}

TEST_F(WithoutPsTest, AJobShowsThatItHasNone) {
  JobSpec job = WithoutPs(DigitsJob(), ALL_REDUCE);
  ASSERT_OK_AND_ASSIGN(
      const JobStatus status,
      cluster_.Train(WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10))));
  EXPECT_EQ(status.ps_size(), 0);
  EXPECT_EQ(status.workers_size(), kWorkers);
  EXPECT_EQ(status.spec().resources().ps(), 0u);
  EXPECT_EQ(status.transitions(1).reason(), "on 3 workers, without ps");
}

TEST_F(WithoutPsTest, AKilledRankEndsTheJobAndIsNamed) {
  LoseEachRank(SIGKILL);
}

TEST_F(WithoutPsTest, ARankThatHangsEndsTheJobAndIsNamed) {
  LoseEachRank(SIGSTOP);
}

// --- Checkpoints ---

class WithoutPsRestartTest : public WithoutPsTest {
 protected:
  static constexpr int64_t kEvery = 30;
  static constexpr absl::Duration kPatience = absl::Minutes(4);

  // Epochs of some hundred clocks, so many that the job outlasts a look at it
  // on any machine.
  JobSpec Mlp(const std::string& name, Strategy strategy) {
    JobSpec job = AdamDigitsJob(kWorkers, /*epochs=*/4);
    if (strategy != PARAMETER_SERVER) job = WithoutPs(job, strategy);
    job.set_name(name);
    job.mutable_checkpoint()->set_every_clocks(kEvery);
    job.mutable_checkpoint()->set_directory(cluster_.dir().File("checkpoints"));
    job.mutable_checkpoint()->set_keep_last(3);
    job.mutable_restart()->set_max(3);
    job.mutable_restart()->set_backoff_seconds(0.1);
    return job;
  }
  std::string File(const JobSpec& job) {
    return WriteJob(cluster_.dir(), job, MlpModel(784, 16, 10));
  }
  // The trained model of a job that has succeeded.
  std::string ModelOf(const std::string& id) {
    const auto end = cluster_.WaitForEnd(id, kPatience);
    EXPECT_OK(end);
    if (!end.ok()) return "";
    EXPECT_EQ(end->state(), SUCCEEDED) << end->ShortDebugString();
    const auto file = cluster_.FetchModel(id);
    EXPECT_OK(file);
    const auto bytes =
        file.ok() ? ReadFile(*file, kModelBytesMax) : file.status();
    return bytes.ok() ? *bytes : "";
  }
  // Waits for a checkpoint, and for steps behind it.
  JobStatus AwaitCheckpoint(const std::string& id) {
    absl::StatusOr<JobStatus> job;
    EXPECT_TRUE(Eventually(kPatience, [&] {
      job = cluster_.Get(id);
      return job.ok() && job->state() == RUNNING &&
             job->checkpoints_size() > 1 &&
             job->progress().clock() > job->checkpoints().rbegin()->clock();
    })) << (job.ok() ? job->ShortDebugString() : job.status().ToString());
    return job.value_or(JobStatus());
  }
};

TEST_F(WithoutPsRestartTest, TheLossOfAnyRankLeavesNoTraceInTheModel) {
  ASSERT_OK_AND_ASSIGN(
      const std::string first,
      cluster_.Submit(File(Mlp("reference", PARAMETER_SERVER))));
  const std::string reference = ModelOf(first);
  ASSERT_FALSE(reference.empty());
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    const Strategy strategy = rank % 2 == 0 ? SHARDED : ALL_REDUCE;
    SCOPED_TRACE(absl::StrCat(Strategy_Name(strategy), ", rank ", rank));
    ASSERT_OK_AND_ASSIGN(
        const std::string id,
        cluster_.Submit(File(Mlp(absl::StrCat("rank-", rank), strategy))));
    const JobStatus before = AwaitCheckpoint(id);
    ASSERT_EQ(before.workers_size(), kWorkers);
    const std::string name = DaemonOf(before, rank);
    cluster_.daemon(name).Signal(SIGKILL);
    ASSERT_OK(cluster_.StartDaemon(name));
    EXPECT_TRUE(ModelOf(id) == reference);
    ASSERT_OK_AND_ASSIGN(const JobStatus after, cluster_.Get(id));
    EXPECT_THAT(after.ShortDebugString(),
                HasSubstr("attempt 2 goes on from the checkpoint at clock "));
    ASSERT_OK(cluster_.WaitForFreeMembers(kWorkers + 1, absl::Seconds(60)));
  }
}

TEST_F(WithoutPsRestartTest, AJobGoesOnWithAnotherStrategy) {
  ASSERT_OK_AND_ASSIGN(
      const std::string first,
      cluster_.Submit(File(Mlp("reference", PARAMETER_SERVER))));
  const std::string reference = ModelOf(first);
  ASSERT_FALSE(reference.empty());
  ASSERT_OK_AND_ASSIGN(const std::string cancelled,
                       cluster_.Submit(File(Mlp("cancelled", SHARDED))));
  const JobStatus before = AwaitCheckpoint(cancelled);
  ASSERT_OK(cluster_.Synctl({"cancel", cancelled}));
  ASSERT_OK(cluster_.WaitForEnd(cancelled, kPatience));
  ASSERT_OK_AND_ASSIGN(const auto resumed,
                       cluster_.Synctl({"resume", cancelled}));
  EXPECT_EQ(resumed.exit.code, 0) << resumed.err;
  EXPECT_TRUE(ModelOf("j-0003") == reference);
  // Checkpoints that ranks have written, for ps; those of ps, for ranks.
  struct {
    Strategy strategy;
    std::string from;
  } const kStarts[] = {
      {PARAMETER_SERVER, "j-0003"}, {ALL_REDUCE, first}, {SHARDED, first}};
  int next = 4;
  for (const auto& start : kStarts) {
    SCOPED_TRACE(
        absl::StrCat(Strategy_Name(start.strategy), " from ", start.from));
    const std::string id = absl::StrCat("j-000", next++);
    ASSERT_OK_AND_ASSIGN(
        const auto submitted,
        cluster_.Synctl(
            {"submit", File(Mlp(id, start.strategy)), "--from", start.from}));
    ASSERT_EQ(submitted.exit.code, 0) << submitted.err;
    EXPECT_TRUE(ModelOf(id) == reference);
  }
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.Get("j-0003"));
  ASSERT_GT(job.checkpoints_size(), 0);
  const std::string path = job.checkpoints(0).path();
  for (const char* const command : {"show", "verify"}) {
    ASSERT_OK_AND_ASSIGN(const auto looked,
                         cluster_.Synctl({"checkpoints", command, path}));
    EXPECT_EQ(looked.exit.code, 0) << looked.err;
    std::cout << looked.out << std::endl;
  }
  ASSERT_OK_AND_ASSIGN(
      const auto exported,
      cluster_.Synctl({"checkpoints", "export", path, "--to",
                       cluster_.dir().File("values.safetensors")}));
  EXPECT_EQ(exported.exit.code, 0) << exported.err;
}

TEST_F(WithoutPsTest, ACancelledJobFreesItsWorkers) {
  JobSpec job = WithoutPs(EndlessJob(), SHARDED);
  ASSERT_OK_AND_ASSIGN(
      const std::string id,
      cluster_.Submit(WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10))));
  ASSERT_OK(cluster_.WaitForClock(id, 5, absl::Seconds(60)));
  ASSERT_OK(cluster_.Synctl({"cancel", id}));
  ASSERT_OK_AND_ASSIGN(const JobStatus ended,
                       cluster_.WaitForEnd(id, absl::Seconds(30)));
  EXPECT_EQ(ended.state(), CANCELLED);
  ExpectNextJobRuns(ALL_REDUCE);
}

}  // namespace
}  // namespace syncline
