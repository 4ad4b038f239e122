// Goal: a job is given more workers and fewer while it runs, with ps and
// without, and its curve is that of a job which always had the same number:
// each clock has the same samples. A job that may go on with fewer does so when
// a worker is killed: through ps in the same attempt. Method: the real
// executables.

#include <algorithm>
#include <cmath>
#include <csignal>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/own_samples.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Minutes(5);
constexpr int kHidden = 64;
const std::string kAtClock = "goes on from the checkpoint at clock ";

class ElasticTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(cluster_.Start());
    folder_ = cluster_.dir().File("checkpoints");
    ASSERT_OK(MakeDirs(folder_));
  }

  // 125 clocks an epoch, each of 64 samples, which is evaluated.
  JobSpec Job(const std::string& name, Strategy strategy,
              uint32_t workers) const {
    JobSpec job = DigitsJob();
    job.set_name(name);
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(8'000);
    job.mutable_data()->mutable_test()->mutable_digits()->set_count(200);
    job.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
    job.mutable_optimizer()->set_kind(OptimizerSpec::MOMENTUM);
    job.mutable_learning_rate()->set_base(0.02);
    job.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
    job.mutable_training()->set_batch_size(32);
    job.mutable_training()->set_global_batch(64);
    job.mutable_training()->set_epochs(8);
    job.mutable_resources()->set_workers(workers);
    job.mutable_resources()->set_ps(1);
    job.set_strategy(strategy);
    if (strategy != PARAMETER_SERVER) job.mutable_resources()->clear_ps();
    job.mutable_checkpoint()->set_every_seconds(1e6);
    job.mutable_checkpoint()->set_directory(folder_);
    return job;
  }
  // Smooth: at the kink of a Relu the rounding of a sum in another order can
  // decide whether a sample's gradient passes, and curves part by a thousandth.
  std::string Submit(const JobSpec& job) {
    const auto id = cluster_.Submit(WriteJob(
        cluster_.dir(), job,
        absl::StrReplaceAll(MlpModel(784, kHidden, 10), {{"Relu", "Tanh"}})));
    EXPECT_OK(id);
    return id.value_or("");
  }
  JobStatus End(const std::string& id) {
    const auto end = cluster_.WaitForEnd(id, kPatience);
    EXPECT_OK(end);
    if (!end.ok()) return JobStatus();
    EXPECT_EQ(end->state(), SUCCEEDED) << end->ShortDebugString();
    return *end;
  }
  std::string Scale(const std::string& id, const std::string& workers) {
    const auto result = cluster_.Synctl(
        {"scale", id, "--workers", workers, "--reason", "test"});
    EXPECT_OK(result);
    if (!result.ok()) return "";
    return absl::StrCat(result->exit.code, " ", result->out, result->err);
  }
  // It runs with so many, and has made a clock of this attempt.
  void AwaitWorkers(const std::string& id, int workers) {
    ASSERT_TRUE(Eventually(kPatience, [&] {
      const auto job = cluster_.Get(id);
      if (!job.ok() || job->workers_size() != workers) return false;
      if (job->state() > RUNNING) return true;
      const int64_t start =
          job->checkpoints().empty() ? 0 : job->checkpoints().rbegin()->clock();
      return job->state() == RUNNING && job->progress().clock() > start;
    })) << cluster_.Get(id)->ShortDebugString();
  }
  static void ExpectSameCurve(const JobStatus& a, const JobStatus& b) {
    EXPECT_EQ(a.progress().clocks_total(), b.progress().clocks_total());
    ASSERT_EQ(a.evaluations_size(), b.evaluations_size());
    ASSERT_EQ(a.evaluations_size(), 8);
    for (int i = 0; i < a.evaluations_size(); ++i) {
      EXPECT_EQ(a.evaluations(i).clock(), b.evaluations(i).clock());
      EXPECT_NEAR(a.evaluations(i).loss(), b.evaluations(i).loss(),
                  1e-5 * (std::abs(a.evaluations(i).loss()) + 0.01));
    }
  }

  // No job ends before what it is to meet.
  TestCluster cluster_{
      {.ps = 1, .workers = 3, .step_pause = absl::Milliseconds(6)}};
  std::string folder_;
};

TEST_F(ElasticTest, AScaledJobHasTheCurveOfOneThatWasNot) {
  const JobStatus reference =
      End(Submit(Job("reference", PARAMETER_SERVER, 2)));
  for (const Strategy strategy : {PARAMETER_SERVER, ALL_REDUCE}) {
    SCOPED_TRACE(Strategy_Name(strategy));
    const std::string id =
        Submit(Job(absl::StrCat("scaled-", strategy), strategy, 2));
    ASSERT_OK(cluster_.WaitForClock(id, 1, kPatience));
    EXPECT_THAT(Scale(id, "2"), HasSubstr("has 2 workers already"));
    EXPECT_THAT(Scale(id, "3"), HasSubstr("goes on with 3 workers"));
    AwaitWorkers(id, 3);
    EXPECT_THAT(Scale(id, "1"), HasSubstr("goes on with 1 worker"));
    AwaitWorkers(id, 1);
    const JobStatus end = End(id);
    EXPECT_EQ(end.attempt(), 3u) << "the job has ended too early for the test";
    ExpectSameCurve(reference, end);
  }
}

TEST_F(ElasticTest, WithoutPsAKilledWorkerCostsTheOpenClock) {
  const JobStatus reference =
      End(Submit(Job("reference", PARAMETER_SERVER, 2)));
  JobSpec job = Job("elastic", ALL_REDUCE, 3);
  job.mutable_resources()->set_min_workers(2);
  job.mutable_checkpoint()->clear_every_seconds();
  job.mutable_checkpoint()->set_every_clocks(20);
  job.mutable_restart()->set_max(3);
  job.mutable_restart()->set_backoff_seconds(0);
  const std::string id = Submit(job);
  ASSERT_OK_AND_ASSIGN(const JobStatus before,
                       cluster_.WaitForClock(id, 50, kPatience));
  cluster_.daemon("worker-1").Signal(SIGKILL);
  AwaitWorkers(id, 2);
  const absl::Time seen = absl::Now();
  ASSERT_OK_AND_ASSIGN(const JobStatus running, cluster_.Get(id));
  for (const JobTransition& transition : running.transitions()) {
    if (transition.state() != QUEUED || transition.reason().empty()) continue;
    // The chief has saved what it had, though it saves every 20 clocks alone.
    const size_t at = transition.reason().find(kAtClock);
    ASSERT_NE(at, std::string::npos) << transition.reason();
    EXPECT_GE(std::stoll(transition.reason().substr(at + kAtClock.size())),
              before.progress().clock())
        << transition.reason();
    std::cout << "from the loss's detection to a clock of the next "
                 "attempt, as synctl sees it: "
              << absl::FormatDuration(
                     seen - absl::FromUnixNanos(transition.time().seconds() *
                                                    1'000'000'000 +
                                                transition.time().nanos()))
              << std::endl;
  }
  const auto why = cluster_.Synctl({"why", id});
  ASSERT_OK(why);
  EXPECT_THAT(why->out, HasSubstr("was lost"));
  for (const char* worker : {"chief-0", "worker-0"}) {
    EXPECT_THAT(
        cluster_.LogOf(worker),
        HasSubstr(absl::StrCat("job=", id, " trace=", running.trace_id(),
                               " msg=\"the data "
                               "of the attempt before are used\" "
                               "data=data.train")));
  }
  ExpectSameCurve(reference, End(id));
  ASSERT_OK(cluster_.StartDaemon("worker-1"));
  ASSERT_OK(cluster_.WaitForFreeMembers(4, kPatience));
}

// A sample that was lost or trained twice would show.
TEST_F(ElasticTest, LeasedSamplesCountOnceThoughWorkersComeAndGo) {
  const std::string data = cluster_.dir().File("own.libsvm");
  ASSERT_OK(WriteFileAtomically(data, OwnSamplesText()));
  constexpr int kEpochs = 60;
  JobSpec job = OwnSamplesJob(data, kEpochs, /*rate=*/0.0001f);
  job.MergeFrom(JobFromText(R"pb(
    resources { workers: 3 min_workers: 1 ps: 1 }
    checkpoint { every_clocks: 80 }
    restart { max: 5 backoff_seconds: 0 }
  )pb"));
  job.mutable_checkpoint()->set_directory(folder_);
  const auto id =
      cluster_.Submit(WriteJob(cluster_.dir(), job, kOwnSamplesModel));
  ASSERT_OK(id);
  ASSERT_OK(cluster_.WaitForClock(*id, 200, kPatience));
  ASSERT_OK_AND_ASSIGN(const auto regime,
                       cluster_.Synctl({"regime", *id, "--bound", "16"}));
  EXPECT_EQ(regime.exit.code, 0) << regime.err;
  ASSERT_OK(cluster_.WaitForClock(*id, 400, kPatience));
  cluster_.daemon("worker-1").Signal(SIGKILL);
  ASSERT_TRUE(Eventually(kPatience, [&] {
    const auto now = cluster_.Get(*id);
    return now.ok() && now->lost_workers_size() == 1;
  }));
  // One that is slow makes fewer clocks.
  cluster_.daemon("worker-0").Signal(SIGSTOP);
  absl::SleepFor(absl::Milliseconds(300));
  cluster_.daemon("worker-0").Signal(SIGCONT);
  EXPECT_THAT(Scale(*id, "1"), HasSubstr("goes on with 1 worker"));
  AwaitWorkers(*id, 1);
  const JobStatus end = End(*id);
  EXPECT_EQ(end.attempt(), 2u) << "the job has ended too early for the test";
  EXPECT_EQ(end.progress().clocks_total(), kEpochs * 60);
  const auto model = cluster_.FetchModel(*id);
  ASSERT_OK(model);
  const auto weights = ReadWeights(*model);
  ASSERT_OK(weights);
  const std::vector<float>& w = weights->at("w");
  EXPECT_THAT(w, testing::Each(w[0]));
  // Once in an epoch, of a rate of 2 x 0.0001 / 4.
  EXPECT_NEAR(w[0], 1 - std::pow(1 - 0.00005, kEpochs), 1e-5);
  ASSERT_OK(cluster_.StartDaemon("worker-1"));
  ASSERT_OK(cluster_.WaitForFreeMembers(4, kPatience));
}

// No answer with values comes before the whole gradient has.
TEST_F(ElasticTest, AGradientMayBeLargerThanTheMemorySharedWithAPs) {
  JobSpec job = Job("large", PARAMETER_SERVER, 2);
  job.mutable_resources()->set_min_workers(1);
  job.mutable_restart()->set_max(1);
  job.mutable_data()->mutable_train()->mutable_digits()->set_count(640);
  job.mutable_training()->set_epochs(1);
  const auto id = cluster_.Submit(
      WriteJob(cluster_.dir(), job, MlpModel(784, 4000, 10)));  // 12 MiB
  ASSERT_OK(id);
  EXPECT_EQ(End(*id).attempt(), 1u);
}

// The ps have the state again, at a later clock.
TEST_F(ElasticTest, TheStrategyOfAJobThatOutlivesWorkersChangesBothWays) {
  JobSpec job = Job("changes", PARAMETER_SERVER, 3);
  job.mutable_resources()->set_min_workers(1);
  job.mutable_restart()->set_max(1);
  const std::string id = Submit(job);
  ASSERT_OK(cluster_.WaitForClock(id, 20, kPatience));
  for (const char* strategy : {"all-reduce", "parameter-server"}) {
    ASSERT_OK_AND_ASSIGN(
        const auto change,
        cluster_.Synctl({"regime", id, "--strategy", strategy}));
    EXPECT_EQ(change.exit.code, 0) << change.err;
  }
  ASSERT_OK_AND_ASSIGN(const JobStatus back, cluster_.Get(id));
  ASSERT_OK(cluster_.WaitForClock(id, back.progress().clock() + 20, kPatience));
  cluster_.daemon("worker-1").Signal(SIGKILL);
  const JobStatus end = End(id);
  EXPECT_EQ(end.attempt(), 1u);
  EXPECT_EQ(end.lost_workers_size(), 1);
  ASSERT_OK(cluster_.StartDaemon("worker-1"));
  ASSERT_OK(cluster_.WaitForFreeMembers(4, kPatience));
}

// The scale doubles after four steps that did not overflow, so that many do.
TEST_F(ElasticTest, TheOthersKeepOneLossScaleWhenAWorkerIsLost) {
  JobSpec job = Job("scaled", PARAMETER_SERVER, 3);
  job.mutable_resources()->set_min_workers(1);
  job.mutable_restart()->set_max(1);
  job.set_precision(FLOAT16);
  job.mutable_loss_scale()->set_window(4);
  const std::string id = Submit(job);
  ASSERT_OK_AND_ASSIGN(const JobStatus before,
                       cluster_.WaitForClock(id, 100, kPatience));
  cluster_.daemon("worker-1").Signal(SIGKILL);
  const JobStatus end = End(id);
  EXPECT_EQ(end.attempt(), 1u);
  ASSERT_EQ(end.lost_workers_size(), 1);
  std::vector<uint64_t> overflowed;
  std::vector<double> scales;
  for (const WorkerProgress& worker : end.progress().workers()) {
    if (worker.rank() == end.lost_workers(0).rank()) continue;
    overflowed.push_back(worker.overflowed_steps());
    scales.push_back(worker.loss_scale());
  }
  ASSERT_EQ(scales.size(), 2u);
  EXPECT_EQ(overflowed[0], overflowed[1]);
  EXPECT_EQ(scales[0], scales[1]);
  EXPECT_GT(overflowed[0], before.progress().workers(0).overflowed_steps());
  // The last one changes no scale any more.
  EXPECT_LE(end.progress().skipped_clocks() - overflowed[0], 1u);
  EXPECT_LT(end.evaluations().rbegin()->loss(), 0.5 * std::log(10));
  ASSERT_OK(cluster_.StartDaemon("worker-1"));
  ASSERT_OK(cluster_.WaitForFreeMembers(4, kPatience));
}

// Of 240 samples an epoch has 20 clocks of 12. What a lost worker had of the
// open clock may be lost, and then the others' part weighs more there; nothing
// else differs.
TEST_F(ElasticTest, AJobInSyncGoesOnWithoutTheWorkersThatItLoses) {
  const std::string data = cluster_.dir().File("own.libsvm");
  ASSERT_OK(WriteFileAtomically(data, OwnSamplesText()));
  constexpr int kEpochs = 80;
  constexpr float kRate = 0.0003f;
  JobSpec job = OwnSamplesJob(data, kEpochs, kRate);
  job.mutable_data()->clear_sharing();
  job.MergeFrom(JobFromText(R"pb(
    resources { workers: 3 min_workers: 1 ps: 1 }
    checkpoint { every_clocks: 100 }
    restart { max: 5 backoff_seconds: 0 }
  )pb"));
  job.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  job.mutable_consistency()->clear_staleness_bound();
  job.mutable_checkpoint()->set_directory(folder_);
  const auto id =
      cluster_.Submit(WriteJob(cluster_.dir(), job, kOwnSamplesModel));
  ASSERT_OK(id);
  const auto await_losses = [&](int count) {
    return Eventually(kPatience, [&] {
      const auto now = cluster_.Get(*id);
      return now.ok() && now->lost_workers_size() == count;
    });
  };
  ASSERT_OK(cluster_.WaitForClock(*id, 100, kPatience));
  cluster_.daemon("worker-1").Signal(SIGTERM);
  ASSERT_TRUE(await_losses(1));
  ASSERT_OK_AND_ASSIGN(const JobStatus after, cluster_.Get(*id));
  ASSERT_OK(
      cluster_.WaitForClock(*id, after.progress().clock() + 100, kPatience));
  ASSERT_OK_AND_ASSIGN(const auto why, cluster_.Synctl({"why", *id}));
  EXPECT_THAT(why.out, HasSubstr("the job goes on with 2 workers"));
  cluster_.daemon("worker-0").Signal(SIGKILL);
  ASSERT_TRUE(await_losses(2));
  const JobStatus end = End(*id);
  EXPECT_EQ(end.attempt(), 1u) << end.ShortDebugString();
  EXPECT_EQ(end.progress().clocks_total(), kEpochs * 20);
  const auto model = cluster_.FetchModel(*id);
  ASSERT_OK(model);
  const auto weights = ReadWeights(*model);
  ASSERT_OK(weights);
  std::map<float, int> groups;
  for (const float w : weights->at("w")) ++groups[w];
  std::vector<float> values;
  for (const auto& [value, count] : groups) {
    std::cout << count << " elements are " << value << std::endl;
    values.push_back(value);
  }
  // Untouched, and for each loss at most one that lacks an update and one whose
  // update was larger.
  EXPECT_LE(groups.size(), 5u);
  const auto most = std::max_element(
      groups.begin(), groups.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_GE(most->second, kOwnSamples - 24);
  const double step = 2 * kRate / 12;
  constexpr double kRounding = 2e-5;
  EXPECT_NEAR(most->first, 1 - std::pow(1 - step, kEpochs), kRounding);
  // Both losses may be at the same clock of an epoch.
  EXPECT_GT(values.front(), 1 - std::pow(1 - step, kEpochs - 2) - kRounding);
  EXPECT_LT(values.back(), 1 - std::pow(1 - step, kEpochs + 2) + kRounding);
  for (const char* worker : {"worker-0", "worker-1"}) {
    ASSERT_OK(cluster_.StartDaemon(worker));
  }
  ASSERT_OK(cluster_.WaitForFreeMembers(4, kPatience));
}

TEST_F(ElasticTest, ALostWorkerThatComesBackIsTakenAgain) {
  cluster_.daemon("scheduler").Signal(SIGTERM);
  ASSERT_TRUE(cluster_.daemon("scheduler").WaitUntil(absl::Now() + kPatience));
  ASSERT_OK(cluster_.StartDaemon("scheduler", {"--grow-pause-seconds=0.5"}));
  ASSERT_OK(cluster_.WaitForFreeMembers(4, kPatience));
  JobSpec job = Job("grows", PARAMETER_SERVER, 3);
  job.mutable_resources()->set_min_workers(2);
  job.mutable_restart()->set_max(1);
  const std::string id = Submit(job);
  ASSERT_OK(cluster_.WaitForClock(id, 50, kPatience));
  cluster_.daemon("worker-1").Signal(SIGKILL);
  ASSERT_TRUE(Eventually(kPatience, [&] {
    const auto now = cluster_.Get(id);
    return now.ok() && now->lost_workers_size() == 1;
  }));
  ASSERT_OK_AND_ASSIGN(const JobStatus alone, cluster_.Get(id));
  EXPECT_EQ(alone.attempt(), 1u) << alone.ShortDebugString();
  ASSERT_OK(cluster_.StartDaemon("worker-1"));
  ASSERT_TRUE(Eventually(kPatience, [&] {
    const auto now = cluster_.Get(id);
    return now.ok() && now->attempt() == 2;
  })) << "the worker that came back is not taken";
  const JobStatus end = End(id);
  EXPECT_EQ(end.workers_size(), 3) << end.ShortDebugString();
  EXPECT_EQ(end.attempt(), 2u) << end.ShortDebugString();
  EXPECT_EQ(end.progress().clocks_total(), alone.progress().clocks_total());
}

// Goal: with leased data and two ps a worker may be lost at any moment of its
// step. Method: each sample trains an element on each ps, so that they show how
// often it counted there.
class LeasedLossTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(cluster_.Start());
    folder_ = cluster_.dir().File("checkpoints");
    ASSERT_OK(MakeDirs(folder_));
  }

  TestCluster cluster_{
      {.ps = 2, .workers = 4, .step_pause = absl::Milliseconds(6)}};
  std::string folder_;
};

constexpr char kTwoElementsModel[] = R"(
< ir_version: 8, opset_import: ["" : 13] >
own (float[N, 240] x, float[240, 1] w, float[240, 1] v) => (float[N, 1] y) {
  a = MatMul (x, w)
  b = MatMul (x, v)
  y = Add (a, b)
})";

TEST_F(LeasedLossTest, TheChiefMakesTheClocksOfLostWorkers) {
  const std::string data = cluster_.dir().File("own.libsvm");
  ASSERT_OK(WriteFileAtomically(data, OwnSamplesText()));
  constexpr int kEpochs = 40;
  constexpr float kRate = 0.0004f;
  JobSpec job = OwnSamplesJob(data, kEpochs, kRate);
  job.MergeFrom(JobFromText(R"pb(
    resources { workers: 4 min_workers: 1 ps: 2 }
    checkpoint { every_clocks: 30 }
    restart { max: 5 backoff_seconds: 0 }
  )pb"));
  job.mutable_checkpoint()->set_directory(folder_);
  const auto id =
      cluster_.Submit(WriteJob(cluster_.dir(), job, kTwoElementsModel));
  ASSERT_OK(id);
  int64_t clock = 100;
  int losses = 0;
  for (const char* worker : {"worker-1", "worker-2", "worker-0"}) {
    ASSERT_OK(cluster_.WaitForClock(*id, clock, kPatience));
    cluster_.daemon(worker).Signal(SIGKILL);
    ++losses;
    ASSERT_TRUE(Eventually(kPatience, [&] {
      const auto now = cluster_.Get(*id);
      return now.ok() && now->lost_workers_size() == losses &&
             !now->lost_workers(losses - 1).leases().empty();
    })) << cluster_.Get(*id)->ShortDebugString();
    ASSERT_OK_AND_ASSIGN(const JobStatus now, cluster_.Get(*id));
    clock = now.progress().clock() + 100;
  }
  ASSERT_OK_AND_ASSIGN(const auto events, cluster_.Synctl({"events", *id}));
  EXPECT_THAT(events.out, HasSubstr("what was leased to this one is made by "
                                    "the chief"));
  const auto end = cluster_.WaitForEnd(*id, kPatience);
  ASSERT_OK(end);
  ASSERT_EQ(end->state(), SUCCEEDED) << end->ShortDebugString();
  EXPECT_EQ(end->attempt(), 1u) << end->ShortDebugString();
  size_t torn = 0;
  for (const JobStatus::Lost& lost : end->lost_workers()) {
    std::cout << lost.leases() << std::endl;
    if (lost.leases().find("torn") != std::string::npos) ++torn;
  }
  ASSERT_OK_AND_ASSIGN(const std::string model, cluster_.FetchModel(*id));
  ASSERT_OK_AND_ASSIGN(auto weights, ReadWeights(model));
  // In an update each of the two takes 2 x rate / 4 of what both lack.
  size_t others = 0;
  for (int i = 0; i < kOwnSamples; ++i) {
    const double lacks = 1 - weights.at("w")[i] - weights.at("v")[i];
    const double updates = std::log(lacks) / std::log(1 - kRate);
    if (std::abs(updates - kEpochs) > 0.1) ++others;
  }
  EXPECT_LE(others, 4 * torn) << "a batch of 4 for each clock that is torn";
}

}  // namespace
}  // namespace syncline
