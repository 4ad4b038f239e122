// Goal: whatever process dies, fails or stands still in the middle of a change
// of the strategy, the job goes on by the strategy before or by the next one
// and ends with the bits of one that nothing happened to, or fails by name.
// Method: the real executables; a job with checkpoints and `restart`, whose
// rules have it leave its ps and come back; the points of a change in
// common/base/fault_points.h, of the chief, another worker and the ps, in both
// directions. Each must have been reached.

#include <csignal>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_fixture.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

class StrategyFaultsTest : public FaultFixture {
 protected:
  // Members report twice a second, which rules wait for: the job lasts for some
  // reports on any machine.
  static constexpr int64_t kClocks = 400;

  JobSpec Undisturbed() override { return SavingJob(kClocks, 60); }

  JobSpec ThereAndBack() {
    JobSpec job = Undisturbed();
    job.set_name("there-and-back");
    for (const Strategy strategy : {ALL_REDUCE, PARAMETER_SERVER}) {
      RegimeRule& rule = *job.add_regimes();
      rule.mutable_when()->set_clock(job.regimes_size());
      rule.mutable_then()->set_strategy(strategy);
    }
    // Ranks wait for the half of it for one that has no part in a change.
    job.mutable_limits()->set_step_timeout_seconds(10);
    return job;
  }

  // Arms `fault`, "NAME:COUNT:ACTION", in `victim`, and submits the job.
  std::string Begin(const std::string& victim, const std::string& fault,
                    const JobSpec& job) {
    log_before_ = cluster_.LogOf(victim).size();
    Restart(victim, {absl::StrCat("--fault=", fault)});
    if (HasFatalFailure()) return "";
    const auto id = Submit(job);
    EXPECT_OK(id);
    return id.value_or("");
  }
  bool Reached(const std::string& victim) const {
    return absl::StrContains(cluster_.LogOf(victim).substr(log_before_),
                             " reached for the ");
  }
  // The end of a job that must have the bits, and its record.
  JobStatus ExpectSameBits(const std::string& id, const std::string& victim) {
    const absl::StatusOr<std::string> model = EndOf(id, victim);
    EXPECT_OK(model);
    EXPECT_TRUE(Reached(victim)) << cluster_.LogOf(victim).substr(log_before_);
    if (model.ok()) {
      EXPECT_TRUE(*model == reference_) << "other bits";
    }
    const auto job = cluster_.Get(id);
    EXPECT_OK(job);
    return job.value_or(JobStatus());
  }
  void Die(const std::string& victim, const std::string& point) {
    SCOPED_TRACE(absl::StrCat(victim, " dies at ", point));
    const std::string id =
        Begin(victim, absl::StrCat(point, ":exit"), ThereAndBack());
    ASSERT_NE(id, "");
    const JobStatus job = ExpectSameBits(id, victim);
    EXPECT_EQ(job.attempt(), 2u) << job.ShortDebugString();
  }
  // A fault of one rank costs the change; the job goes on in its attempt.
  void FailToPrepare(const std::string& victim, const std::string& point) {
    SCOPED_TRACE(absl::StrCat(victim, " fails at ", point));
    const std::string id =
        Begin(victim, absl::StrCat(point, ":error"), ThereAndBack());
    ASSERT_NE(id, "");
    const JobStatus job = ExpectSameBits(id, victim);
    EXPECT_EQ(job.attempt(), 1u) << job.ShortDebugString();
    // The chief may hear first of another rank that waits for this one.
    EXPECT_TRUE(absl::c_any_of(
        job.regimes(),
        [](const RegimeTransition& change) { return !change.error().empty(); }))
        << job.ShortDebugString();
  }

  size_t log_before_ = 0;
};

TEST_F(StrategyFaultsTest, DeathsOnTheWayToTheRanks) {
  Die("chief-0", "switch.prepare:1");
  Die("chief-0", "regime.commit:1");
  Die("ps-1", "state.piece:2");
}

// Where a shard has been told that the state is the ranks', and another has
// not. Without a checkpoint the first cut that ends is that of the change, and
// the job begins anew.
TEST_F(StrategyFaultsTest, APsDiesWhenTheChangeIsCommitted) {
  JobSpec job = ThereAndBack();
  job.mutable_checkpoint()->clear_every_clocks();
  job.mutable_checkpoint()->set_every_seconds(1e6);
  const std::string id = Begin("ps-1", "cut.end:1:exit", job);
  ASSERT_NE(id, "");
  EXPECT_EQ(ExpectSameBits(id, "ps-1").attempt(), 2u);
}

TEST_F(StrategyFaultsTest, DeathsOnTheWayBackToThePs) {
  Die("chief-0", "regime.committed:2");
  Die("worker-0", "switch.prepare:2");
  Die("ps-0", "state.take_back:1");
}

TEST_F(StrategyFaultsTest, WhoCannotPrepareCostsTheChange) {
  FailToPrepare("chief-0", "switch.prepared:1");
  FailToPrepare("worker-0", "switch.prepare:1");
  FailToPrepare("ps-1", "state.piece:3");
}

// Nobody knows by then who has the state: the job goes back, and says why.
TEST_F(StrategyFaultsTest, AnErrorOfTheCommitSendsTheJobBack) {
  for (const auto& [victim, point] : {std::pair("chief-0", "regime.commit:1"),
                                      std::pair("ps-0", "state.take_back:1")}) {
    SCOPED_TRACE(absl::StrCat(victim, " fails at ", point));
    const std::string id =
        Begin(victim, absl::StrCat(point, ":error"), ThereAndBack());
    ASSERT_NE(id, "");
    const JobStatus job = ExpectSameBits(id, victim);
    EXPECT_EQ(job.attempt(), 2u);
  }
}

// A rank stands still for less than the lease while the others wait for it.
TEST_F(StrategyFaultsTest, AFrozenRankHoldsTheChangeUp) {
  for (const char* const point : {"switch.prepared:1", "switch.prepare:2"}) {
    SCOPED_TRACE(point);
    const std::string id =
        Begin("worker-0", absl::StrCat(point, ":hang:1"), ThereAndBack());
    ASSERT_NE(id, "");
    ASSERT_TRUE(Eventually(kPatience, [&] { return Reached("worker-0"); }));
    cluster_.daemon("worker-0").Signal(SIGSTOP);
    absl::SleepFor(absl::Seconds(2));
    cluster_.daemon("worker-0").Signal(SIGCONT);
    const JobStatus job = ExpectSameBits(id, "worker-0");
    EXPECT_EQ(job.attempt(), 1u) << job.ShortDebugString();
  }
}

}  // namespace
}  // namespace syncline
