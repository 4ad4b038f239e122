// Goal: a job with `auto_regime {}` tries the modes that it may train in while
// it runs, keeps within its share of clocks, trains as well as a job without,
// and tells each decision with its reason. A user's change ends the trials, and
// a job that is too short is refused.
// Method: workers and ps in this process, with real gRPC between them.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/auto_regime_rules.h"
#include "common/job/regime_rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kWindow = 20;

class AutoRegimeTest : public ::testing::Test {
 protected:
  // Two workers, whose epochs have so many steps.
  static JobSpec Job(uint32_t steps, uint32_t epochs) {
    JobSpec spec = DigitsJob();
    spec.mutable_data()->mutable_train()->mutable_digits()->set_count(steps *
                                                                      8 * 2);
    *spec.mutable_data()->mutable_test() = spec.data().train();
    spec.mutable_data()->mutable_test()->mutable_digits()->set_count(200);
    spec.mutable_data()->mutable_test()->mutable_digits()->set_seed(9);
    spec.mutable_training()->set_batch_size(8);
    spec.mutable_training()->set_epochs(epochs);
    spec.mutable_training()->set_threads(1);
    spec.mutable_limits()->set_step_timeout_seconds(60);
    return spec;
  }
  TrainingCluster::Options Cluster() {
    return {.workers = 2,
            .ps = 2,
            .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
            .data_root = dir_.path()};
  }
  static std::vector<RegimeTransition> Told(TrainingCluster* cluster) {
    std::vector<RegimeTransition> told;
    for (const DaemonMessage& message : cluster->Messages(0)) {
      if (message.report().has_regime()) {
        told.push_back(message.report().regime());
      }
    }
    return told;
  }

  TempDir dir_;
  int clusters_ = 0;
};

TEST_F(AutoRegimeTest, AJobMakesItsTrialsWithinItsBudget) {
  // Epochs end while a candidate is tried, for instance at clocks 31 and 527.
  constexpr int64_t kClocks = 31 * 32;
  JobSpec spec = Job(31, 32);
  TrainingCluster plain(Cluster());
  const TrainingCluster::Outcome kept =
      plain.RunJob(spec, MlpModel(784, 16, 10));
  ASSERT_OK(kept.status);
  spec.mutable_auto_regime()->set_trial_share(0.1);
  spec.mutable_auto_regime()->set_window_clocks(kWindow);
  TrainingCluster cluster(Cluster());
  const TrainingCluster::Outcome outcome =
      cluster.RunJob(spec, MlpModel(784, 16, 10));
  ASSERT_OK(outcome.status);
  EXPECT_EQ(outcome.last_progress.clock(), kClocks);

  // Which of the modes is the fastest here is nobody's business.
  const std::vector<RegimeTransition> told = Told(&cluster);
  int64_t spent = 0;
  int trials = 0;
  int decisions = 0;
  for (size_t i = 0; i < told.size(); ++i) {
    SCOPED_TRACE(told[i].reason());
    EXPECT_EQ(told[i].error(), "");
    EXPECT_THAT(told[i].reason(), StartsWith(kAutoReason));
    decisions += absl::StrContains(told[i].reason(), "loss/s: ") ? 1 : 0;
    if (!absl::StrContains(told[i].reason(), "auto: trying ")) continue;
    ++trials;
    ASSERT_LT(i + 1, told.size());
    EXPECT_THAT(told[i + 1].reason(), HasSubstr("auto: back to "));
    const int64_t clocks =
        told[i + 1].regime().first_clock() - told[i].regime().first_clock();
    // In ASYNC a worker may be past the clock at which a trial was to end.
    const bool is_async =
        told[i].regime().consistency().mode() == ConsistencySpec::ASYNC;
    EXPECT_LE(clocks, is_async ? 2 * kWindow : kWindow);
    EXPECT_NE(RegimeText(told[i].regime()), RegimeText(told[i + 1].regime()));
    spent += clocks;
  }
  EXPECT_EQ(trials, 4);  // two rounds of two
  EXPECT_EQ(decisions, 2);
  EXPECT_LE(spent, kClocks / 10);
  std::vector<std::string> reasons;
  for (const RegimeTransition& one : told) reasons.push_back(one.reason());
  EXPECT_THAT(reasons, Contains(AllOf(AnyOf(HasSubstr(" stays; loss/s: "),
                                            HasSubstr(" is kept; loss/s: ")),
                                      HasSubstr(" against "))));
  // Digits are learned whatever was tried.
  ASSERT_EQ(outcome.evaluations.size(), kept.evaluations.size());
  EXPECT_LT(outcome.evaluations.back().loss(), kept.evaluations.front().loss());
  EXPECT_GT(outcome.evaluations.back().accuracy(),
            kept.evaluations.back().accuracy() - 0.1);
}

// The change is asked for while a candidate is tried, and does not wait for the
// end of the trial.
TEST_F(AutoRegimeTest, AUsersChangeEndsTheTrials) {
  // The first trial is of the clocks from about 1,000 to 2,000, the last ends
  // behind 26,000; the job is stopped long before.
  JobSpec spec = Job(500, 64);
  spec.mutable_auto_regime()->set_trial_share(0.5);
  spec.mutable_auto_regime()->set_window_clocks(1'000);
  TrainingCluster cluster(Cluster());
  ASSERT_OK(cluster.Prepare(spec, MlpModel(784, 16, 10)));
  cluster.Run();
  ASSERT_TRUE(cluster.AwaitClock(0, 1'010, absl::Minutes(2)));
  SchedulerMessage command;
  ChangeRegime* const change = command.mutable_change_regime();
  change->set_job_id("t-1");
  change->set_attempt(kTestPass.attempt);
  change->mutable_change()->set_learning_rate_factor(0.125);
  change->set_reason("synctl regime");
  cluster.Send(0, command);
  std::vector<RegimeTransition> told;
  const auto has_ended = [&] {
    told = Told(&cluster);
    return !told.empty() && absl::StrContains(told.back().reason(), "no more");
  };
  ASSERT_TRUE(Eventually(absl::Minutes(2), has_ended));
  ASSERT_OK(cluster.Stop(absl::Seconds(30)));
  ASSERT_GE(told.size(), 2u);
  EXPECT_EQ(told.back().reason(),
            "auto: no more is tried: somebody else has changed the regime");
  const RegimeTransition& users = told[told.size() - 2];
  EXPECT_EQ(users.reason(), "synctl regime");
  EXPECT_EQ(users.error(), "");
  EXPECT_EQ(users.regime().learning_rate_factor(), 0.125);
  EXPECT_EQ(told.back().regime().first_clock(), users.regime().first_clock());
}

TEST_F(AutoRegimeTest, AJobThatIsTooShortIsRefused) {
  JobSpec spec = Job(50, 4);
  spec.mutable_auto_regime();
  TrainingCluster cluster(Cluster());
  EXPECT_THAT(
      std::string(cluster.Prepare(spec, MlpModel(784, 16, 10)).message()),
      HasSubstr("auto_regime.trial_share: 0.02 of the job's 200 clocks is 4 of "
                "them, fewer than one window of 10"));
  EXPECT_OK(cluster.Stop(absl::Seconds(30)));
}

}  // namespace
}  // namespace syncline
