// Goal: with backups a job goes on while one of its workers does not, that
// worker goes on with it later, and a user sees what that has cost. Method: the
// real executables; SIGSTOP and SIGCONT for one worker of four, of which three
// are needed.

#include <csignal>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
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

constexpr int kEpochs = 20;
// A job that is still running when the test has seen what it looks for, however
// fast the machine is: the test cancels it.
constexpr int kLastingEpochs = 100'000;
constexpr absl::Duration kPatience = absl::Minutes(2);
constexpr int kStopped = 3;  // the rank of worker-2
constexpr int kStops = 3;
// After so long in a stop the others, who report every 500 ms, have said where
// they have come to in it.
constexpr absl::Duration kReported = absl::Milliseconds(800);
// A member that is silent for 5 s is lost, and its job fails.
constexpr absl::Duration kStop = absl::Milliseconds(1200);

class BackupsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(cluster_.Start()); }

  static JobSpec Digits() {
    JobSpec job = DigitsJob();
    job.set_name("backups");
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(1600);
    job.mutable_data()->mutable_test()->mutable_digits()->set_count(200);
    job.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
    job.mutable_training()->set_batch_size(8);
    job.mutable_training()->set_epochs(kEpochs);
    job.mutable_training()->set_threads(1);
    job.mutable_resources()->set_workers(4);
    job.mutable_resources()->set_ps(2);
    job.mutable_consistency()->set_mode(ConsistencySpec::SYNC_WITH_BACKUPS);
    job.mutable_consistency()->set_needed(3);
    return job;
  }
  int64_t ClockOf(const std::string& id, int rank) {
    const auto job = cluster_.Get(id);
    EXPECT_OK(job);
    if (!job.ok() || job->progress().workers_size() <= rank) return -1;
    return job->progress().workers(rank).clock();
  }
  // As the ps count it.
  uint64_t LeftBehindAt(const std::string& id) {
    const auto job = cluster_.Get(id);
    EXPECT_OK(job);
    if (!job.ok() || job->progress().blame_size() <= kStopped) return 0;
    return job->progress().blame(kStopped).left_behind_clocks();
  }

  // Rows of a table: three ids a sample, most of them even where the label
  // is 1.
  JobSpec Clicks() {
    Random random(5);
    std::string csv;
    for (int i = 0; i < 1600; ++i) {
      std::string ids;
      int even = 0;
      for (int id = 0; id < 3; ++id) {
        const uint64_t key = random.Below(60);
        even += key % 2 == 0;
        absl::StrAppend(&ids, ",", key);
      }
      absl::StrAppend(&csv, even >= 2 ? 1 : 0, ids, "\n");
    }
    JobSpec job = Digits();
    job.clear_metrics();
    job.add_metrics(AUC);
    job.mutable_loss()->set_kind(LossSpec::SIGMOID_CROSS_ENTROPY);
    job.mutable_model()->clear_initialize();
    job.mutable_model()->add_initialize()->set_pattern("w");
    job.mutable_model()->mutable_initialize(0)->set_scheme(
        InitializerRule::CONSTANT);
    job.mutable_model()->mutable_initialize(0)->set_value(0.5f);
    DataSpec data;
    data.mutable_train()->mutable_csv()->set_path(
        cluster_.dir().Write("clicks.csv", csv));
    *data.mutable_test() = data.train();
    data.add_feeds()->set_input("bag");
    data.mutable_feeds(0)->set_field("1:4");
    data.mutable_label()->set_field("0");
    *job.mutable_data() = data;
    job.add_tables()->set_name("emb");
    return job;
  }
  // Workers whose logs say that late gradients of job `id` were applied.
  int WorkersThatAppliedLate(const std::string& id) {
    int workers = 0;
    for (const char* worker : {"chief-0", "worker-0", "worker-1", "worker-2"}) {
      for (const absl::string_view line :
           absl::StrSplit(cluster_.LogOf(worker), '\n')) {
        workers += absl::StrContains(line, absl::StrCat("job=", id, " ")) &&
                   absl::StrContains(line, "came too late were applied");
      }
    }
    return workers;
  }

  TestCluster cluster_{{.ps = 2, .workers = 4}};
};

constexpr char kClicksModel[] = R"(
< ir_version: 8, opset_import: ["" : 13] >
clicks (int64[N, 3] bag, float[ROWS, 4] emb, float[4, 1] w)
  => (float[N, 1] logit)
<int64[1] one = {1}>
{
  items = Gather (emb, bag)
  sum = ReduceSum <keepdims = 0> (items, one)
  logit = MatMul (sum, w)
})";

TEST_F(BackupsTest, TheOthersGoOnAndTheStoppedWorkerComesBack) {
  JobSpec lasting = Digits();
  lasting.mutable_training()->set_epochs(kLastingEpochs);
  ASSERT_OK_AND_ASSIGN(const std::string id,
                       cluster_.Submit(WriteJob(cluster_.dir(), lasting,
                                                MlpModel(784, 16, 10))));
  ASSERT_OK(cluster_.WaitForClock(id, 20, kPatience));
  uint64_t others = 0;  // clocks that were made while it was stopped
  int64_t clock = 0;
  for (int i = 0; i < kStops; ++i) {
    cluster_.daemon("worker-2").Signal(SIGSTOP);
    absl::SleepFor(kReported);
    const auto before = cluster_.Get(id);
    absl::SleepFor(kStop);
    const auto after = cluster_.Get(id);
    cluster_.daemon("worker-2").Signal(SIGCONT);
    ASSERT_OK(before);
    ASSERT_OK(after);
    ASSERT_EQ(after->state(), RUNNING) << after->DebugString();
    clock = after->progress().clock();
    ASSERT_GT(clock, before->progress().clock())
        << "the others have waited for the stopped worker";
    others += static_cast<uint64_t>(clock - before->progress().clock());
  }
  EXPECT_TRUE(Eventually(kPatience, [&] {
    return ClockOf(id, kStopped) >= clock;
  })) << "the worker does not go on where the others are";
  // At each stop a push of its own may have been under way.
  EXPECT_TRUE(Eventually(kPatience,
                         [&] { return LeftBehindAt(id) + kStops >= others; }))
      << "left behind at " << LeftBehindAt(id) << " clocks of " << others;

  ASSERT_OK(cluster_.Synctl({"cancel", id}));
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.WaitForEnd(id, kPatience));
  EXPECT_EQ(job.state(), CANCELLED) << job.DebugString();
  ASSERT_EQ(job.progress().blame_size(), 4);
  EXPECT_EQ(job.progress().blame(kStopped).rank(),
            static_cast<uint32_t>(kStopped));
  // The last report of the ps may come after the end.
  EXPECT_TRUE(Eventually(kPatience, [&] {
    const std::string line = absl::StrCat("worker:2 was left behind at ",
                                          LeftBehindAt(id), " clocks");
    const auto get = cluster_.Synctl({"get", id});
    return get.ok() && absl::StrContains(get->out, line);
  }));
}

TEST_F(BackupsTest, SuchAJobTrainsToItsEnd) {
  ASSERT_OK_AND_ASSIGN(const std::string id,
                       cluster_.Submit(WriteJob(cluster_.dir(), Digits(),
                                                MlpModel(784, 16, 10))));
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.WaitForEnd(id, kPatience));
  ASSERT_EQ(job.state(), SUCCEEDED) << job.DebugString();
  EXPECT_EQ(job.progress().clock(), 50 * kEpochs);
  ASSERT_EQ(job.evaluations_size(), kEpochs);
  EXPECT_LT(job.evaluations(kEpochs - 1).loss(), job.evaluations(0).loss() / 2);
  EXPECT_GT(job.evaluations(kEpochs - 1).accuracy(), 0.7);
  // Three of four end each clock, so over all of them some came too late.
  ASSERT_OK_AND_ASSIGN(const auto watch, cluster_.Synctl({"watch", id}));
  EXPECT_THAT(watch.out, HasSubstr(" was left behind at "));
}

TEST_F(BackupsTest, LateGradientsArePushedAtTheOpenClock) {
  for (const auto late :
       {ConsistencySpec::SCALE, ConsistencySpec::COMPENSATE}) {
    SCOPED_TRACE(ConsistencySpec::Late_Name(late));
    JobSpec spec = Digits();
    spec.mutable_consistency()->set_late(late);
    ASSERT_OK_AND_ASSIGN(
        const std::string id,
        cluster_.Submit(WriteJob(cluster_.dir(), spec, MlpModel(784, 16, 10))));
    ASSERT_OK_AND_ASSIGN(const JobStatus job,
                         cluster_.WaitForEnd(id, kPatience));
    ASSERT_EQ(job.state(), SUCCEEDED) << job.DebugString();
    EXPECT_GT(job.evaluations(kEpochs - 1).accuracy(), 0.7);
    // Three of four end each clock, so over all of them some came too late.
    EXPECT_GT(WorkersThatAppliedLate(id), 0);
  }
}

TEST_F(BackupsTest, LateRowsArePushedAtTheOpenClock) {
  for (const auto late :
       {ConsistencySpec::SCALE, ConsistencySpec::COMPENSATE}) {
    SCOPED_TRACE(ConsistencySpec::Late_Name(late));
    JobSpec spec = Clicks();
    spec.mutable_consistency()->set_late(late);
    ASSERT_OK_AND_ASSIGN(
        const std::string id,
        cluster_.Submit(WriteJob(cluster_.dir(), spec, kClicksModel)));
    ASSERT_OK_AND_ASSIGN(const JobStatus job,
                         cluster_.WaitForEnd(id, kPatience));
    ASSERT_EQ(job.state(), SUCCEEDED) << job.DebugString();
    EXPECT_EQ(job.progress().clock(), 50 * kEpochs);
    EXPECT_GT(job.evaluations(kEpochs - 1).auc(), 0.95);
    EXPECT_GT(WorkersThatAppliedLate(id), 0);
  }
}

TEST_F(BackupsTest, WhatSuchAJobCostsIsSaidBefore) {
  const std::string file =
      WriteJob(cluster_.dir(), Digits(), MlpModel(784, 16, 10));
  ASSERT_OK_AND_ASSIGN(const auto plan, cluster_.Synctl({"plan", file}));
  EXPECT_THAT(absl::StrCat(plan.out, plan.err),
              AllOf(HasSubstr("consistency.mode SYNC_WITH_BACKUPS"),
                    HasSubstr("not trained in that epoch")));
}

}  // namespace
}  // namespace syncline
