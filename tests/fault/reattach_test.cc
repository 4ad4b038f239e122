// Goal: a scheduler that is killed and starts again finds its jobs where they
// are: in PREPARING, in the middle of an epoch, at their end, or stored; they
// end in their first attempt with the same bits as if nothing had been. One
// that was frozen and replaced changes nothing any more. A state that was
// restored from a backup knows what daemons have seen since. Method: the real
// executables, SIGKILL, SIGSTOP, copies of the state folder.

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/relay.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kModelBytesMax = 64 << 20;
constexpr absl::Duration kPatience = absl::Minutes(4);

// 900 clocks.
JobSpec Mlp(const std::string& name) {
  JobSpec job = DigitsJob();
  job.set_name(name);
  job.mutable_data()->mutable_train()->mutable_digits()->set_count(4'800);
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  job.mutable_learning_rate()->set_base(0.002);
  job.mutable_training()->set_batch_size(8);
  job.mutable_training()->set_epochs(3);
  job.mutable_training()->set_threads(1);
  job.mutable_resources()->set_workers(2);
  job.mutable_resources()->set_ps(2);
  return job;
}

class ReattachTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(cluster_.Start()); }

  std::string Submit(const JobSpec& job) {
    const auto id =
        cluster_.Submit(WriteJob(cluster_.dir(), job, MlpModel(784, 16, 10)));
    EXPECT_OK(id);
    return id.value_or("");
  }
  void Kill() {
    cluster_.daemon("scheduler").Signal(SIGKILL);
    ASSERT_TRUE(cluster_.daemon("scheduler")
                    .WaitUntil(absl::Now() + absl::Seconds(30))
                    .has_value());
  }
  std::string State() const { return cluster_.dir().File("state"); }
  // The state folder of a scheduler that does not run, or does not move.
  static void Copy(const std::string& from, const std::string& to) {
    ASSERT_OK(RemoveTree(to));
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  }
  bool AwaitLog(const std::string& daemon, const std::string& text) {
    return Eventually(kPatience, [&] {
      return cluster_.LogOf(daemon).find(text) != std::string::npos;
    });
  }
  // The trained model's file, of a job that has ended in its first attempt.
  std::string ModelOf(const std::string& id) {
    const auto end = cluster_.WaitForEnd(id, kPatience);
    EXPECT_OK(end);
    if (!end.ok()) return "";
    EXPECT_EQ(end->state(), SUCCEEDED) << end->ShortDebugString();
    EXPECT_EQ(end->attempt(), 1u) << end->ShortDebugString();
    EXPECT_EQ(end->transitions_size(), 4) << end->ShortDebugString();
    const auto file = cluster_.FetchModel(id);
    EXPECT_OK(file);
    if (!file.ok()) return "";
    return ReadFile(*file, kModelBytesMax).value_or("");
  }

  TestCluster cluster_{
      {.ps = 2, .workers = 2, .step_pause = absl::Milliseconds(6)}};
};

TEST_F(ReattachTest, AKilledSchedulerLeavesNoTraceInTheModel) {
  const std::string reference = ModelOf(Submit(Mlp("reference")));
  ASSERT_FALSE(reference.empty());

  // In the middle of an epoch, twice, and it stays away for a while.
  const std::string running = Submit(Mlp("running"));
  for (const int64_t clock : {60, 180}) {
    ASSERT_OK(cluster_.WaitForClock(running, clock, kPatience));
    ASSERT_NO_FATAL_FAILURE(Kill());
    // The job must not end meanwhile: it makes at most 170 clocks a second.
    absl::SleepFor(absl::Milliseconds(500));
    ASSERT_OK(cluster_.StartDaemon("scheduler"));
    ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.Get(running));
    EXPECT_TRUE(job.state() == RUNNING || job.state() == SUCCEEDED);
  }
  EXPECT_TRUE(ModelOf(running) == reference);

  // While a member prepares: it has not even read its command.
  cluster_.daemon("ps-1").Signal(SIGSTOP);
  const std::string preparing = Submit(Mlp("preparing"));
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.Get(preparing));
  EXPECT_EQ(job.state(), PREPARING);
  ASSERT_NO_FATAL_FAILURE(Kill());
  cluster_.daemon("ps-1").Signal(SIGCONT);
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  EXPECT_TRUE(ModelOf(preparing) == reference);

  // At the end: the model is stored once there is a scheduler again.
  const std::string ended = Submit(Mlp("ended"));
  ASSERT_OK(cluster_.WaitForClock(ended, 300, kPatience));
  ASSERT_NO_FATAL_FAILURE(Kill());
  ASSERT_TRUE(AwaitLog("chief-0", "result not stored"));
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  EXPECT_TRUE(ModelOf(ended) == reference);
  ASSERT_OK(cluster_.WaitForFreeMembers(4, absl::Minutes(1)));
  EXPECT_THAT(cluster_.LogOf("scheduler"),
              HasSubstr("a member has come back to its job"));
}

// The ones are there again at once, the others are lost by their names.
TEST_F(ReattachTest, AMemberThatDoesNotComeBackIsLostByItsName) {
  const std::string id = Submit(Mlp("lost"));
  ASSERT_OK(cluster_.WaitForClock(id, 100, kPatience));
  ASSERT_NO_FATAL_FAILURE(Kill());
  cluster_.daemon("worker-0").Signal(SIGKILL);
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  ASSERT_OK_AND_ASSIGN(const JobStatus end, cluster_.WaitForEnd(id, kPatience));
  EXPECT_EQ(end.state(), FAILED);
  EXPECT_EQ(end.exit_code(), 138);
  EXPECT_THAT(end.transitions().rbegin()->reason(),
              AllOf(HasSubstr("worker 0 at 127.0.0.1:"),
                    HasSubstr("does not answer at its address any more; the "
                              "scheduler was restarted at ")));
  ASSERT_OK(cluster_.WaitForFreeMembers(3, absl::Minutes(1)));
}

TEST_F(ReattachTest, ARestoredStateKnowsWhatDaemonsHaveSeenSince) {
  const std::string first = Submit(EndlessJob());
  ASSERT_OK(cluster_.WaitForClock(first, 5, kPatience));
  ASSERT_NO_FATAL_FAILURE(Kill());
  const std::string backup = cluster_.dir().File("backup");
  Copy(State(), backup);
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  const std::string second = Submit(EndlessJob());
  ASSERT_OK(cluster_.WaitForClock(second, 5, kPatience));
  ASSERT_NO_FATAL_FAILURE(Kill());
  Copy(backup, State());
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  // The one that it knows goes on, in the attempt that it knows.
  ASSERT_OK_AND_ASSIGN(const JobStatus known, cluster_.Get(first));
  EXPECT_EQ(known.state(), RUNNING);
  ASSERT_OK(
      cluster_.WaitForClock(first, known.progress().clock() + 5, kPatience));
  ASSERT_OK_AND_ASSIGN(const JobStatus after, cluster_.Get(first));
  EXPECT_EQ(after.attempt(), 1u);
  // The members of the other one are freed, and its number is not given again.
  EXPECT_TRUE(Eventually(absl::Minutes(1), [&] {
    const auto members = cluster_.Members();
    return members.ok() && members->members_size() == 4 &&
           std::count_if(members->members().begin(), members->members().end(),
                         [](const ClusterStatus::Entry& entry) {
                           return entry.job_id().empty();
                         }) == 2;
  }));
  EXPECT_THAT(
      cluster_.LogOf("scheduler"),
      HasSubstr("the state of this scheduler is older than its cluster"));
  EXPECT_EQ(Submit(EndlessJob()), "j-0003");
  for (const std::string& id : {first, std::string("j-0003")}) {
    ASSERT_OK(cluster_.Synctl({"cancel", id}));
  }
  ASSERT_OK(cluster_.WaitForFreeMembers(4, absl::Minutes(1)));
}

// Two schedulers, whose daemons find them by one name: a relay's address.
class ReplacedSchedulerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(older_.Start());
    relay_ = std::make_unique<Relay>(older_.scheduler_address());
    for (const std::string& task :
         {std::string("ps:0"), std::string("chief:0")}) {
      std::vector<std::string> argv = {
          absl::StrCat(BinaryDir(),
                       task == "ps:0" ? "/syncline-ps" : "/syncline-worker"),
          "--listen=127.0.0.1:0", "--task=" + task,
          "--scheduler=" + relay_->address()};
      if (task != "ps:0") argv.push_back("--threads=1");
      ASSERT_OK_AND_ASSIGN(
          daemons_.emplace_back(),
          RunningProgram::Start(older_.dir().path(), argv,
                                {{"TF_CONFIG", std::nullopt}}));
    }
    ASSERT_OK(older_.WaitForFreeMembers(2, absl::Minutes(1)));
  }
  void Switch(const TestCluster& to) {
    relay_->SetTarget(to.scheduler_address());
    relay_->Break();
  }

  TestCluster older_{{.ps = 0, .workers = 0}};
  TestCluster newer_{{.ps = 0, .workers = 0}};
  std::unique_ptr<Relay> relay_;
  std::vector<std::unique_ptr<RunningProgram>> daemons_;
};

TEST_F(ReplacedSchedulerTest, OneThatWasFrozenChangesNothing) {
  ASSERT_OK_AND_ASSIGN(const std::string id,
                       older_.Submit(WriteJob(older_.dir(), EndlessJob(),
                                              MlpModel(784, 32, 10))));
  ASSERT_OK(older_.WaitForClock(id, 5, kPatience));
  older_.daemon("scheduler").Signal(SIGSTOP);
  std::filesystem::copy(older_.dir().File("state"), newer_.dir().File("state"),
                        std::filesystem::copy_options::recursive);
  ASSERT_OK(newer_.StartDaemon("scheduler"));
  Switch(newer_);
  ASSERT_OK_AND_ASSIGN(const JobStatus taken, newer_.Get(id));
  EXPECT_EQ(taken.state(), RUNNING);
  ASSERT_OK(newer_.WaitForClock(id, taken.progress().clock() + 5, kPatience));
  // The chief's reports alone would do for that.
  ASSERT_TRUE(Eventually(kPatience, [&] {
    return newer_.LogOf("scheduler")
               .find("msg=\"member registered\" member=\"ps 0") !=
           std::string::npos;
  }));

  // Awake, it even gets the daemons' next streams, and they do not listen.
  older_.daemon("scheduler").Signal(SIGCONT);
  Switch(older_);
  EXPECT_TRUE(Eventually(kPatience, [&] {
    return older_.LogOf("scheduler").find("has been replaced: ") !=
           std::string::npos;
  }));
  ASSERT_OK(older_.Synctl({"cancel", id}));
  absl::SleepFor(absl::Seconds(2));
  Switch(newer_);
  ASSERT_OK_AND_ASSIGN(const JobStatus kept, newer_.Get(id));
  EXPECT_EQ(kept.state(), RUNNING);
  ASSERT_OK_AND_ASSIGN(
      const JobStatus end,
      newer_.WaitForClock(id, kept.progress().clock() + 50, kPatience));
  EXPECT_EQ(end.attempt(), 1u);
  ASSERT_OK(newer_.Synctl({"cancel", id}));
  EXPECT_OK(newer_.WaitForFreeMembers(2, absl::Minutes(1)));
}

}  // namespace
}  // namespace syncline
