// Goal: a job changes how it trains while it runs, without a restart, as a user
// asks with synctl: all steps of all workers count, and where the order of
// gradients does not matter the model has the bits of a job that never changed.
// An impossible change has one clear message. A ps that is lost or frozen while
// the regime changes leaves the old regime, or fails the job by name.
// Method: the real executables.

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kModelBytesMax = 64 << 20;
constexpr absl::Duration kPatience = absl::Minutes(4);

class RunningRegimeTest : public ::testing::Test {
 protected:
  RunningRegimeTest()
      : cluster_({.ps = 2, .workers = 2, .step_pause = absl::Milliseconds(5)}) {
  }
  void SetUp() override { ASSERT_OK(cluster_.Start()); }

  // `clocks` for each worker; the workers take samples of 8.
  JobSpec Job(const std::string& name, uint32_t workers, int64_t clocks) {
    JobSpec job = DigitsJob();
    job.set_name(name);
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(
        static_cast<uint64_t>(clocks) * 8 * workers);
    job.mutable_training()->set_batch_size(8);
    job.mutable_resources()->set_workers(workers);
    job.mutable_resources()->set_ps(2);
    return job;
  }
  std::string Submit(const JobSpec& job) {
    const auto id =
        cluster_.Submit(WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10)));
    EXPECT_OK(id);
    return id.ok() ? *id : "";
  }
  // All that synctl printed.
  std::string Regime(const std::string& id, std::vector<std::string> flags,
                     int expected_code = 0) {
    std::vector<std::string> arguments = {"regime", id};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const auto result = cluster_.Synctl(arguments);
    EXPECT_OK(result);
    if (!result.ok()) return "";
    EXPECT_EQ(result->exit.code, expected_code) << result->err;
    return absl::StrCat(result->out, result->err);
  }
  // The id in "submitted j-0002 ...".
  static std::string SubmittedIn(const std::string& out) {
    const size_t at = out.find("submitted ");
    return at == std::string::npos ? "" : out.substr(at + 10, 6);
  }
  std::string ModelBytes(const JobStatus& job) {
    const auto file = cluster_.FetchModel(job.job_id());
    EXPECT_OK(file);
    const auto bytes = ReadFile(*file, kModelBytesMax);
    EXPECT_OK(bytes);
    return bytes.value_or("");
  }
  // Of a job with the rule `then`, and one that goes on from a checkpoint of
  // the clock of that change with the edit.
  void ExpectBitsOfOneThatGoesOn(const std::string& then,
                                 const std::function<void(JobSpec*)>& edit) {
    JobSpec job = Job("changes", 2, 300);
    job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    JobSpec changes = job;
    changes.MergeFrom(JobFromText(
        absl::StrCat("regimes { when { clock: 100 } then { ", then, " } }")));
    ASSERT_OK_AND_ASSIGN(const JobStatus changed,
                         cluster_.WaitForEnd(Submit(changes), kPatience));
    ASSERT_EQ(changed.regimes_size(), 2) << changed.ShortDebugString();
    const int64_t clock = changed.regimes(1).regime().first_clock();

    job.set_name("saves");
    job.mutable_checkpoint()->set_every_clocks(clock);
    job.mutable_checkpoint()->set_directory(cluster_.dir().File("checkpoints"));
    ASSERT_OK(MakeDirs(job.checkpoint().directory()));
    ASSERT_OK_AND_ASSIGN(const JobStatus saved,
                         cluster_.WaitForEnd(Submit(job), kPatience));
    ASSERT_EQ(saved.checkpoints(0).clock(), clock);
    EXPECT_FALSE(ModelBytes(changed) == ModelBytes(saved));

    job.set_name("goes-on");
    job.clear_checkpoint();
    edit(&job);
    const std::string file =
        WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10));
    ASSERT_OK_AND_ASSIGN(
        const auto submitted,
        cluster_.Synctl({"submit", file, "--from",
                         absl::StrCat(saved.job_id(), "@", clock)}));
    ASSERT_EQ(submitted.exit.code, 0) << submitted.err;
    ASSERT_OK_AND_ASSIGN(
        const JobStatus other,
        cluster_.WaitForEnd(SubmittedIn(submitted.out), kPatience));
    EXPECT_TRUE(ModelBytes(changed) == ModelBytes(other));
  }

  TestCluster cluster_;
};

TEST_F(RunningRegimeTest, SyncToAsyncToBoundedToSyncLosesNoStep) {
  constexpr int64_t kClocks = 2'000;
  JobSpec job = Job("there-and-back", 2, kClocks);
  job.mutable_optimizer()->set_clip_norm(1);
  job.set_non_finite(SKIP_STEP);
  const std::string id = Submit(job);
  ASSERT_OK(cluster_.WaitForClock(id, 50, kPatience));
  EXPECT_THAT(Regime(id, {"--mode", "async", "--reason", "a slow host"}),
              AllOf(HasSubstr("ASYNC"), HasSubstr("learning rate x 0.5")));
  EXPECT_THAT(Regime(id, {"--mode", "async"}, 1),
              HasSubstr("trains so already"));
  EXPECT_THAT(Regime(id, {"--mode", "bounded-staleness", "--bound", "3"}),
              HasSubstr("BOUNDED_STALENESS, bound 3"));
  EXPECT_THAT(Regime(id, {"--bound", "1"}), HasSubstr("bound 1"));
  EXPECT_THAT(Regime(id, {"--mode", "sync"}),
              AllOf(HasSubstr("SYNC"), Not(HasSubstr("learning rate"))));
  ASSERT_OK_AND_ASSIGN(const JobStatus done,
                       cluster_.WaitForEnd(id, kPatience));
  ASSERT_EQ(done.state(), SUCCEEDED)
      << done.transitions(done.transitions_size() - 1).reason();
  EXPECT_EQ(done.attempt(), 1u);
  EXPECT_EQ(done.progress().clock(), kClocks);
  EXPECT_EQ(done.progress().skipped_clocks(), 0u);
  ASSERT_EQ(done.regimes_size(), 5);
  EXPECT_EQ(done.regimes(1).reason(), "synctl regime: a slow host");
  for (int i = 1; i < done.regimes_size(); ++i) {
    EXPECT_GT(done.regimes(i).regime().first_clock(),
              done.regimes(i - 1).regime().first_clock());
    EXPECT_EQ(done.regimes(i).error(), "");
    EXPECT_GT(done.regimes(i).pause_seconds(), 0);
  }
  ASSERT_OK_AND_ASSIGN(const auto text, cluster_.Synctl({"get", id}));
  EXPECT_THAT(text.out, AllOf(HasSubstr("regimes"), HasSubstr("a slow host")));
  EXPECT_THAT(Regime(id, {"--mode", "async"}, 1),
              HasSubstr("is SUCCEEDED; the regime of a running job alone"));
}

// With one worker each mode applies its gradients one after the other.
TEST_F(RunningRegimeTest, OneWorkersModelHasTheSameBits) {
  constexpr int64_t kClocks = 1'200;
  JobSpec job = Job("plain", 1, kClocks);
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  job.mutable_learning_rate()->set_base(0.002);
  job.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  ASSERT_OK_AND_ASSIGN(
      const JobStatus plain,
      cluster_.Train(WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10))));
  job.set_name("changed");
  const std::string id = Submit(job);
  ASSERT_OK(cluster_.WaitForClock(id, 50, kPatience));
  Regime(id, {"--mode", "async"});
  Regime(id, {"--mode", "sync"});
  Regime(id, {"--mode", "bounded-staleness", "--bound", "2"});
  ASSERT_OK_AND_ASSIGN(const JobStatus done,
                       cluster_.WaitForEnd(id, kPatience));
  ASSERT_EQ(done.state(), SUCCEEDED);
  EXPECT_EQ(done.regimes_size(), 4);
  EXPECT_TRUE(ModelBytes(done) == ModelBytes(plain));
}

// regime_change_test has the bits of clocks whose type is another one.
TEST_F(RunningRegimeTest, TheWireTypeChangesThereAndBack) {
  JobSpec job = Job("rules", 2, 400);
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  job.MergeFrom(JobFromText(R"pb(
    regimes {
      when { clock: 100 }
      then { wire_type: WIRE_BFLOAT16 }
    }
    regimes {
      when { clock: 200 }
      then { wire_type: WIRE_FLOAT32 }
    }
  )pb"));
  ASSERT_OK_AND_ASSIGN(const JobStatus ruled,
                       cluster_.WaitForEnd(Submit(job), kPatience));
  ASSERT_EQ(ruled.state(), SUCCEEDED) << ruled.ShortDebugString();
  ASSERT_EQ(ruled.regimes_size(), 3) << ruled.ShortDebugString();
  EXPECT_EQ(ruled.regimes(1).regime().wire_type(), WIRE_BFLOAT16);
  EXPECT_EQ(ruled.regimes(2).regime().wire_type(), WIRE_FLOAT32);
  JobSpec asked = Job("asked", 2, 2'000);
  asked.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  const std::string id = Submit(asked);
  ASSERT_OK(cluster_.WaitForClock(id, 50, kPatience));
  EXPECT_THAT(Regime(id, {"--wire-type", "float16"}),
              HasSubstr("ASYNC, WIRE_FLOAT16"));
  EXPECT_THAT(Regime(id, {"--mode", "sync", "--wire-type", "bfloat16"}),
              HasSubstr("SYNC, WIRE_BFLOAT16"));
  EXPECT_THAT(Regime(id, {"--wire-type", "float32"}), HasSubstr("SYNC"));
  ASSERT_OK_AND_ASSIGN(const JobStatus done,
                       cluster_.WaitForEnd(id, kPatience));
  EXPECT_EQ(done.state(), SUCCEEDED) << done.ShortDebugString();
  EXPECT_EQ(done.progress().clock(), 2'000);
}

// A job that changes has the bits of one that goes on from a checkpoint of that
// clock with the other type.
TEST_F(RunningRegimeTest, AChangedWireTypeHasItsBits) {
  ExpectBitsOfOneThatGoesOn("wire_type: WIRE_BFLOAT16", [](JobSpec* job) {
    job->set_wire_type(WIRE_BFLOAT16);
  });
}

// Workers that begin to compress have kept nothing back yet, as those of a job
// that goes on from a checkpoint.
TEST_F(RunningRegimeTest, AChangedCompressionHasItsBits) {
  ExpectBitsOfOneThatGoesOn("compression: TOP_K", [](JobSpec* job) {
    job->mutable_compression()->set_kind(CompressionSpec::TOP_K);
  });
}

TEST_F(RunningRegimeTest, TheCompressionChangesThereAndBack) {
  JobSpec job = Job("asked", 2, 2'000);
  job.set_non_finite(SKIP_STEP);
  const std::string id = Submit(job);
  ASSERT_OK(cluster_.WaitForClock(id, 50, kPatience));
  EXPECT_THAT(Regime(id, {"--compression", "zip"}, 2),
              HasSubstr("--compression: 'zip' is none"));
  EXPECT_THAT(Regime(id, {"--compression", "dgc"}, 1),
              HasSubstr("compression: DGC has the momentum at the workers"));
  EXPECT_THAT(Regime(id, {"--compression", "top-k"}),
              HasSubstr("SYNC, compressed by TOP_K"));
  EXPECT_THAT(Regime(id, {"--compression", "int8", "--mode", "async"}),
              HasSubstr("ASYNC, compressed by INT8"));
  EXPECT_THAT(Regime(id, {"--compression", "terngrad", "--mode", "sync"}),
              HasSubstr("SYNC, compressed by TERNGRAD"));
  EXPECT_THAT(Regime(id, {"--compression", "none"}), HasSubstr("SYNC"));
  ASSERT_OK_AND_ASSIGN(const JobStatus done,
                       cluster_.WaitForEnd(id, kPatience));
  EXPECT_EQ(done.state(), SUCCEEDED) << done.ShortDebugString();
  EXPECT_EQ(done.regimes_size(), 5);
  EXPECT_EQ(done.progress().clock(), 2'000);
}

TEST_F(RunningRegimeTest, WhatCannotBeHasOneClearMessage) {
  const std::string id = Submit(EndlessJob());
  ASSERT_OK(cluster_.WaitForClock(id, 5, kPatience));
  EXPECT_THAT(Regime("j-9999", {"--mode", "async"}, 1), HasSubstr("j-9999"));
  EXPECT_THAT(Regime(id, {}, 2), HasSubstr("nothing is to change"));
  EXPECT_THAT(Regime(id, {"--learning-rate-factor", "1e30"}, 1),
              HasSubstr("learning_rate_factor: is 1e+30, must be > 0 and at"));
  EXPECT_THAT(Regime(id, {"--mode", "quickly"}, 2),
              HasSubstr("--mode: 'quickly' is none"));
  EXPECT_THAT(Regime(id, {"--mode", "local"}, 1),
              HasSubstr("mode: a running job cannot change to LOCAL yet"));
  EXPECT_THAT(Regime(id, {"--mode", "bounded-staleness"}, 1),
              HasSubstr("staleness_bound: BOUNDED_STALENESS needs one"));
  EXPECT_THAT(Regime(id, {"--strategy", "hybrid"}, 1),
              HasSubstr("strategy: HYBRID cannot begin or end"));
  EXPECT_THAT(Regime(id, {"--wire-type", "int4"}, 2),
              HasSubstr("--wire-type: 'int4' is none"));
  EXPECT_THAT(
      Regime(id, {"--wire-type", "bfloat16", "--strategy", "all-reduce"}, 1),
      HasSubstr("wire_type: changes alone"));
  // The next job waits for a ps or a worker.
  JobSpec waiting = EndlessJob();
  waiting.set_name("waiting");
  waiting.mutable_resources()->set_workers(2);
  const std::string queued = Submit(waiting);
  EXPECT_THAT(Regime(queued, {"--mode", "async"}, 1),
              HasSubstr("is QUEUED; the regime of a running job alone"));
}

// A frozen ps: the change waits, and another one is refused meanwhile. Awake,
// it goes on, or the change has failed by then; the job is never torn.
TEST_F(RunningRegimeTest, AFrozenPsLeavesOneRegime) {
  JobSpec job = EndlessJob();
  job.mutable_resources()->set_workers(2);
  job.mutable_resources()->set_ps(2);
  const std::string id = Submit(job);
  ASSERT_OK(cluster_.WaitForClock(id, 20, kPatience));
  cluster_.daemon("ps-1").Signal(SIGSTOP);
  ASSERT_OK_AND_ASSIGN(const auto change,
                       cluster_.StartSynctl({"regime", id, "--mode", "async"}));
  EXPECT_FALSE(change->Finish(absl::Seconds(2)).ok());
  EXPECT_THAT(Regime(id, {"--mode", "async"}, 138), HasSubstr("is under way"));
  cluster_.daemon("ps-1").Signal(SIGCONT);
  ASSERT_OK_AND_ASSIGN(const auto ended, change->Finish(kPatience));
  ASSERT_OK_AND_ASSIGN(const JobStatus status, cluster_.Get(id));
  ASSERT_EQ(status.regimes_size(), 2);
  EXPECT_EQ(ended.exit.code == 0, status.regimes(1).error().empty())
      << ended.out << ended.err;
  ASSERT_EQ(status.state(), RUNNING);
  ASSERT_OK(
      cluster_.WaitForClock(id, status.progress().clock() + 20, kPatience));
}

// Not that there is no scheduler.
TEST_F(RunningRegimeTest, AChangeThatTakesLongerIsSaidToBeUnderWay) {
  JobSpec job = EndlessJob();
  job.mutable_resources()->set_workers(2);
  job.mutable_resources()->set_ps(2);
  const std::string id = Submit(job);
  ASSERT_OK(cluster_.WaitForClock(id, 20, kPatience));
  cluster_.daemon("ps-1").Signal(SIGSTOP);
  EXPECT_THAT(Regime(id, {"--mode", "async", "--timeout", "1"}, 3),
              HasSubstr("the change is still under way after 1s"));
  cluster_.daemon("ps-1").Signal(SIGCONT);
}

TEST_F(RunningRegimeTest, ALostPsEndsTheChangeAndTheJobByName) {
  JobSpec job = EndlessJob();
  job.mutable_resources()->set_workers(2);
  job.mutable_resources()->set_ps(2);
  const std::string id = Submit(job);
  ASSERT_OK(cluster_.WaitForClock(id, 20, kPatience));
  cluster_.daemon("ps-1").Signal(SIGSTOP);
  ASSERT_OK_AND_ASSIGN(const auto change,
                       cluster_.StartSynctl({"regime", id, "--mode", "async"}));
  EXPECT_FALSE(change->Finish(absl::Seconds(1)).ok());
  cluster_.daemon("ps-1").Signal(SIGKILL);
  ASSERT_OK_AND_ASSIGN(const auto ended, change->Finish(kPatience));
  EXPECT_NE(ended.exit.code, 0);
  EXPECT_THAT(ended.err, AnyOf(HasSubstr("before its regime has changed"),
                               HasSubstr("has not changed")));
  ASSERT_OK_AND_ASSIGN(const JobStatus status,
                       cluster_.WaitForEnd(id, kPatience));
  EXPECT_EQ(status.state(), FAILED);
  EXPECT_THAT(status.transitions(status.transitions_size() - 1).reason(),
              HasSubstr("ps 1 at"));
}

}  // namespace
}  // namespace syncline
