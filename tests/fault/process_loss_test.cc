// Goal: a process that dies or hangs makes its job fail within ten seconds,
// with a message that names role, index, address and last clock; the others
// are free, and with a replacement the next job runs. Method: the real
// executables, SIGKILL and SIGSTOP in the middle of a job, seen through
// `synctl submit --watch`.

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/grpc_channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kToldWithin = absl::Seconds(10);

class ProcessLossTest : public testing::Test {
 protected:
  explicit ProcessLossTest(int evaluators = 0)
      : is_evaluated_(evaluators > 0),
        members_(5 + evaluators),
        cluster_({.ps = 2,
                  .workers = 3,
                  .evaluators = evaluators,
                  .step_pause = absl::Milliseconds(5)}) {}

  void SetUp() override { ASSERT_OK(cluster_.Start()); }

  std::string AddressOf(const Task& task) {
    const auto members = cluster_.Members();
    if (!members.ok()) return members.status().ToString();
    for (const auto& entry : members->members()) {
      if (entry.member().task().type() == task.type() &&
          entry.member().task().index() == task.index()) {
        return entry.member().address();
      }
    }
    return "not a member";
  }

  // A job on the whole cluster that is past its first steps, and its watcher.
  void StartJob(JobSpec job = EndlessJob(),
                const std::string& model = MlpModel(784, 32, 10)) {
    job.mutable_resources()->set_workers(3);
    job.mutable_resources()->set_ps(2);
    if (is_evaluated_) {
      job.mutable_data()->mutable_test()->mutable_digits()->set_count(32);
    }
    auto submit = cluster_.StartSynctl(
        {"submit", WriteJob(cluster_.dir(), job, model), "--watch"});
    ASSERT_OK(submit);
    watcher_ = *std::move(submit);
    ASSERT_OK(cluster_.WaitForClock("j-0001", 5, absl::Seconds(60)));
  }

  // The watcher's last words, and that they came in time.
  RunningProgram::Result ExpectTold(absl::Time since) {
    auto result = watcher_->Finish(absl::Seconds(60));
    EXPECT_OK(result);
    if (!result.ok()) return {};
    const absl::Duration took = absl::Now() - since;
    EXPECT_LE(took, kToldWithin);
    std::cout << "told after " << took << ": " << result->err << std::endl;
    return *std::move(result);
  }

  void ExpectNextJobRuns() {
    ASSERT_OK(cluster_.WaitForFreeMembers(members_, absl::Seconds(30)));
    JobSpec job = DigitsJob();
    job.mutable_resources()->set_workers(3);
    job.mutable_resources()->set_ps(2);
    EXPECT_OK(
        cluster_.Train(WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10))));
  }

  void KillAndReplace(const std::string& name, TaskType type, uint32_t index,
                      const std::string& words) {
    StartJob();
    Task task;
    task.set_type(type);
    task.set_index(index);
    const std::string address = AddressOf(task);
    const absl::Time killed = absl::Now();
    cluster_.daemon(name).Signal(SIGKILL);
    const RunningProgram::Result told = ExpectTold(killed);
    EXPECT_EQ(told.exit.code, 138);
    EXPECT_THAT(told.err,
                AllOf(HasSubstr(words), HasSubstr(address),
                      HasSubstr("was lost"), HasSubstr("last clock ")));
    // The survivors are free before the replacement comes.
    EXPECT_OK(cluster_.WaitForFreeMembers(members_ - 1, absl::Seconds(30)));
    ASSERT_OK(cluster_.StartDaemon(name));
    ExpectNextJobRuns();
  }

  // A job whose steps are folds of statistics, one after the other.
  void StartFoldingJob() {
    constexpr int kNorms = 16;
    std::string weights = "float[784, 16] w0, float[16, 10] w1";
    std::string nodes = "  n0 = MatMul (x, w0)\n";
    for (int i = 0; i < kNorms; ++i) {
      absl::StrAppend(&weights, ", float[16] scale", i, ", float[16] b", i,
                      ", float[16] mean", i, ", float[16] variance", i);
      absl::StrAppend(&nodes, "  n", i + 1, " = BatchNormalization (n", i,
                      ", scale", i, ", b", i, ", mean", i, ", variance", i,
                      ")\n");
    }
    JobSpec job = EndlessJob();
    job.mutable_training()->set_sync_batch_statistics(true);
    for (const auto& [pattern, value] :
         {std::pair("scale*", 1), {"mean*", 0}, {"variance*", 1}}) {
      InitializerRule* const rule = job.mutable_model()->add_initialize();
      rule->set_pattern(pattern);
      rule->set_scheme(InitializerRule::CONSTANT);
      rule->set_value(static_cast<float>(value));
    }
    StartJob(job, absl::StrCat("<ir_version: 8, opset_import: [\"\" : 15]>\n",
                               "folding (float[N, 784] x, ", weights,
                               ") => (float[N, 10] y)\n{\n", nodes,
                               "  y = MatMul (n", kNorms, ", w1)\n}\n"));
  }

  // True if no ps has heard of job "j-0001" for a while, and no push or pull
  // waits at one: then the workers that can go on wait in a fold.
  bool AllWaitInAFold() {
    const auto members = cluster_.Members();
    EXPECT_OK(members);
    if (!members.ok()) return false;
    for (const auto& entry : members->members()) {
      if (entry.member().task().type() != PS) continue;
      const auto ps =
          ParameterServer::NewStub(MakeChannel(entry.member().address()));
      ShardStatusRequest request;
      request.set_job_id("j-0001");
      ShardStatus status;
      const grpc::Status asked = ps->GetShardStatus(
          MakeContext(absl::Now() + absl::Seconds(5)).get(), request, &status);
      if (!asked.ok() || status.jobs_size() != 1) return false;
      const ShardStatus::Job& job = status.jobs(0);
      if (job.quiet_seconds() < 0.2 || job.parked_pulls() > 0 ||
          job.parked_pushes() > 0) {
        return false;
      }
    }
    return true;
  }

  // Stops worker-1 where the others have come to a fold without it.
  void FreezeInAFold() {
    ASSERT_TRUE(Eventually(absl::Seconds(60), [&] {
      cluster_.daemon("worker-1").Signal(SIGSTOP);
      if (Eventually(absl::Seconds(1), [&] { return AllWaitInAFold(); })) {
        return true;
      }
      cluster_.daemon("worker-1").Signal(SIGCONT);
      return false;
    }));
  }

  // Mappings and open files, in daemons that live, of memory that workers share
  // with ps: in all, or in the ps alone, which have some only if it is used.
  int SharedRegions(bool of_ps = false) {
    int count = 0;
    const auto members = cluster_.Members();
    EXPECT_OK(members);
    if (!members.ok()) return -1;
    for (const auto& entry : members->members()) {
      if (of_ps && entry.member().task().type() != PS) continue;
      const std::string proc = absl::StrCat("/proc/", entry.member().pid());
      std::ifstream maps(proc + "/maps");
      for (std::string line; std::getline(maps, line);) {
        count += absl::StrContains(line, "memfd:syncline");
      }
      std::error_code gone;
      for (const auto& fd :
           std::filesystem::directory_iterator(proc + "/fd", gone)) {
        const auto target = std::filesystem::read_symlink(fd, gone);
        count += absl::StrContains(target.string(), "memfd:syncline");
      }
    }
    return count;
  }

  void KillWhoSharesMemory(const std::string& name) {
    StartJob();
    EXPECT_TRUE(Eventually(absl::Seconds(20),
                           [&] { return SharedRegions(/*of_ps=*/true) > 0; }));
    cluster_.daemon(name).Signal(SIGKILL);
    EXPECT_OK(watcher_->Finish(absl::Seconds(60)));
    EXPECT_OK(cluster_.WaitForFreeMembers(members_ - 1, absl::Seconds(30)));
    EXPECT_TRUE(
        Eventually(absl::Seconds(20), [&] { return SharedRegions() == 0; }))
        << SharedRegions() << " are left";
  }

  const bool is_evaluated_;
  const int members_;
  TestCluster cluster_;
  std::unique_ptr<RunningProgram> watcher_;
};

TEST_F(ProcessLossTest, KilledPs) { KillAndReplace("ps-1", PS, 1, "ps 1 at "); }

TEST_F(ProcessLossTest, KilledWorker) {
  KillAndReplace("worker-1", WORKER, 1, "worker 1 at ");
}

TEST_F(ProcessLossTest, KilledChief) {
  KillAndReplace("chief-0", CHIEF, 0, "chief 0 at ");
}

class EvaluatorLossTest : public ProcessLossTest {
 protected:
  EvaluatorLossTest() : ProcessLossTest(/*evaluators=*/1) {}
};

TEST_F(EvaluatorLossTest, Killed) {
  KillAndReplace("evaluator-0", EVALUATOR, 0, "evaluator 0 at ");
}

TEST_F(EvaluatorLossTest, FrozenItIsLostAndComesBack) {
  StartJob();
  const absl::Time frozen = absl::Now();
  cluster_.daemon("evaluator-0").Signal(SIGSTOP);
  const RunningProgram::Result told = ExpectTold(frozen);
  EXPECT_EQ(told.exit.code, 138);
  EXPECT_THAT(told.err, AllOf(HasSubstr("evaluator 0 at 127.0.0.1:"),
                              HasSubstr("silent"), HasSubstr("last clock ")));
  cluster_.daemon("evaluator-0").Signal(SIGCONT);
  ExpectNextJobRuns();
}

TEST_F(ProcessLossTest, AWorkerKilledInAFoldOfStatistics) {
  StartFoldingJob();
  Task task;
  task.set_type(WORKER);
  task.set_index(1);
  const std::string address = AddressOf(task);
  FreezeInAFold();
  const absl::Time killed = absl::Now();
  cluster_.daemon("worker-1").Signal(SIGKILL);
  const RunningProgram::Result told = ExpectTold(killed);
  EXPECT_EQ(told.exit.code, 138);
  EXPECT_THAT(told.err, AllOf(HasSubstr("worker 1 at "), HasSubstr(address),
                              HasSubstr("was lost"), HasSubstr("last clock ")));
  EXPECT_OK(cluster_.WaitForFreeMembers(members_ - 1, absl::Seconds(30)));
  ASSERT_OK(cluster_.StartDaemon("worker-1"));
  ExpectNextJobRuns();
}

// Only the ps of rank 0 adds statistics up.
TEST_F(ProcessLossTest, APsKilledInAFoldOfStatistics) {
  StartFoldingJob();
  Task task;
  task.set_type(PS);
  task.set_index(0);
  const std::string address = AddressOf(task);
  FreezeInAFold();
  const absl::Time killed = absl::Now();
  cluster_.daemon("ps-0").Signal(SIGKILL);
  cluster_.daemon("worker-1").Signal(SIGCONT);
  const RunningProgram::Result told = ExpectTold(killed);
  EXPECT_EQ(told.exit.code, 138);
  EXPECT_THAT(told.err, AllOf(HasSubstr("ps 0 at "), HasSubstr(address),
                              HasSubstr("was lost")));
  EXPECT_OK(cluster_.WaitForFreeMembers(members_ - 1, absl::Seconds(30)));
  ASSERT_OK(cluster_.StartDaemon("ps-0"));
  ExpectNextJobRuns();
}

TEST_F(ProcessLossTest, AKilledWorkerLeavesNoSharedMemory) {
  KillWhoSharesMemory("worker-1");
}

TEST_F(ProcessLossTest, AKilledPsLeavesNoSharedMemory) {
  KillWhoSharesMemory("ps-0");
}

TEST_F(ProcessLossTest, AFrozenPsIsLostAndComesBack) {
  StartJob();
  const absl::Time frozen = absl::Now();
  cluster_.daemon("ps-0").Signal(SIGSTOP);
  const RunningProgram::Result told = ExpectTold(frozen);
  EXPECT_EQ(told.exit.code, 138);
  EXPECT_THAT(told.err, AllOf(HasSubstr("ps 0 at 127.0.0.1:"),
                              HasSubstr("silent"), HasSubstr("last clock ")));
  EXPECT_OK(cluster_.WaitForFreeMembers(members_ - 1, absl::Seconds(30)));
  // The ps wakes up, learns that its job is over, and is a member again.
  cluster_.daemon("ps-0").Signal(SIGCONT);
  ExpectNextJobRuns();
}

TEST_F(ProcessLossTest, AFrozenWorkerIsLostAndComesBack) {
  StartJob();
  const absl::Time frozen = absl::Now();
  cluster_.daemon("worker-0").Signal(SIGSTOP);
  const RunningProgram::Result told = ExpectTold(frozen);
  EXPECT_EQ(told.exit.code, 138);
  EXPECT_THAT(told.err, AllOf(HasSubstr("worker 0 at 127.0.0.1:"),
                              HasSubstr("silent"), HasSubstr("last clock ")));
  cluster_.daemon("worker-0").Signal(SIGCONT);
  ExpectNextJobRuns();
}

TEST_F(ProcessLossTest, LossesWithoutAJobCostNothing) {
  cluster_.daemon("ps-0").Signal(SIGKILL);
  cluster_.daemon("worker-1").Signal(SIGKILL);
  ASSERT_OK(cluster_.WaitForFreeMembers(members_ - 2, absl::Seconds(30)));
  ASSERT_OK(cluster_.StartDaemon("ps-0"));
  ASSERT_OK(cluster_.StartDaemon("worker-1"));
  ExpectNextJobRuns();
}

// A synctl that waits for a profile is told as well.
TEST_F(ProcessLossTest, AProfileOfALostWorkerIsNotWaitedFor) {
  JobSpec job = EndlessJob();
  job.mutable_resources()->set_workers(3);
  job.mutable_resources()->set_ps(2);
  // A thousand steps outlast the test.
  job.mutable_training()->set_batch_size(512);
  ASSERT_OK_AND_ASSIGN(
      const std::string id,
      cluster_.Submit(WriteJob(cluster_.dir(), job, MlpModel(784, 1024, 10))));
  ASSERT_OK(cluster_.WaitForClock(id, 1, absl::Seconds(60)));
  ASSERT_OK_AND_ASSIGN(
      const auto profile,
      cluster_.StartSynctl({"profile", id, "--rank", "1", "--steps", "1000"}));
  cluster_.daemon("worker-0").Signal(SIGKILL);
  ASSERT_OK_AND_ASSIGN(const auto told, profile->Finish(absl::Seconds(60)));
  EXPECT_EQ(told.exit.code, 1);
  EXPECT_THAT(told.err, HasSubstr("is FAILED"));
  EXPECT_EQ(told.out, "");
}

}  // namespace
}  // namespace syncline
