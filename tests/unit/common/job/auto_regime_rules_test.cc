// Goal: a job that is to find its regime by itself tries what it can train by,
// in windows that its share of clocks allows, or is refused by field. Method:
// jobs in text, and what each must report.

#include "common/job/auto_regime_rules.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "common/job/regime_rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr char kWorkers[] = "resources { workers: 3 } ";

std::vector<std::string> Problems(const std::string& edit) {
  return ValidateJobSpec(JobFromText(kImageJob, absl::StrCat(kWorkers, edit)));
}

// Regimes that the job tries, the one that it begins in first; or why none.
std::vector<std::string> Tries(const std::string& edit, uint32_t workers = 3) {
  const auto regimes = AutoRegimesOf(
      JobFromText(kImageJob, absl::StrCat(kWorkers, edit)), workers);
  if (!regimes.ok()) return {std::string(regimes.status().message())};
  std::vector<std::string> texts;
  for (const Regime& regime : *regimes) texts.push_back(RegimeText(regime));
  return texts;
}

TEST(AutoRegimeRulesTest, AJobTriesTheModesThatItIsNotIn) {
  EXPECT_THAT(Tries("auto_regime {}"),
              ElementsAre("SYNC",
                          "BOUNDED_STALENESS, bound 4, learning rate x "
                          "0.333333",
                          "ASYNC, learning rate x 0.333333"));
  EXPECT_THAT(Tries("consistency { mode: ASYNC } auto_regime {}"),
              ElementsAre("ASYNC", "SYNC", "BOUNDED_STALENESS, bound 4"));
  EXPECT_THAT(Tries("consistency { mode: BOUNDED_STALENESS staleness_bound: 2 }"
                    "auto_regime {}"),
              ElementsAre("BOUNDED_STALENESS, bound 2", "SYNC",
                          "BOUNDED_STALENESS, bound 4", "ASYNC"));
  EXPECT_THAT(Problems("auto_regime {}"), IsEmpty());
}

TEST(AutoRegimeRulesTest, CandidatesAreThoseOfTheJob) {
  EXPECT_THAT(Tries("auto_regime { candidates { mode: ASYNC } "
                    "candidates { learning_rate_factor: 2 } "
                    "candidates { strategy: ALL_REDUCE } }"),
              ElementsAre("SYNC", "ASYNC, learning rate x 0.333333",
                          "SYNC, learning rate x 2", "ALL_REDUCE SYNC"));
  EXPECT_THAT(
      Problems("auto_regime { candidates { mode: ASYNC } candidates {} }"),
      ElementsAre(HasSubstr("auto_regime.candidates[1]: is required")));
  EXPECT_THAT(Problems("auto_regime { candidates { mode: SYNC } }"),
              ElementsAre(HasSubstr("auto_regime.candidates[0].mode: the job "
                                    "trains so already: SYNC")));
  EXPECT_THAT(Problems("auto_regime { candidates { mode: ASYNC } "
                       "candidates { mode: BOUNDED_STALENESS } }"),
              ElementsAre("auto_regime.candidates[1].staleness_bound: "
                          "BOUNDED_STALENESS needs one"));
  EXPECT_THAT(Problems("auto_regime { candidates { mode: ASYNC } "
                       "candidates { mode: ASYNC } }"),
              ElementsAre(HasSubstr(
                  "auto_regime.candidates[1]: repeats another one: ASYNC")));
  EXPECT_THAT(Tries("auto_regime { candidates { compression: INT8 } }"),
              ElementsAre("SYNC", "SYNC, compressed by INT8"));
  EXPECT_THAT(
      Problems("auto_regime { candidates { compression: DGC } }"),
      ElementsAre(HasSubstr("auto_regime.candidates[0].compression: ")));
  std::string many;
  for (int i = 0; i < 9; ++i) {
    absl::StrAppend(&many, "candidates { learning_rate_factor: ", 2 + i, " }");
  }
  EXPECT_THAT(Problems(absl::StrCat("auto_regime {", many, "}")),
              ElementsAre("auto_regime.candidates: 9 of them, at most 8"));
}

TEST(AutoRegimeRulesTest, AJobWithNothingToChooseFromIsRefused) {
  EXPECT_THAT(Problems("resources { workers: 1 } auto_regime {}"),
              ElementsAre(HasSubstr("auto_regime: there is nothing to choose "
                                    "from: with one worker all modes")));
  EXPECT_THAT(Problems("resources { workers: 1 } auto_regime { candidates { "
                       "learning_rate_factor: 2 } }"),
              IsEmpty());
  EXPECT_THAT(Problems("optimizer { kind: LAMB } auto_regime {}"),
              ElementsAre(HasSubstr(
                  "auto_regime: there is nothing to choose from: mode: cannot "
                  "change while this job runs: optimizer.kind: LAMB")));
  EXPECT_THAT(Problems("strategy: ALL_REDUCE auto_regime {}"),
              ElementsAre(HasSubstr("auto_regime: there is nothing to choose "
                                    "from: strategy: ALL_REDUCE: without ps")));
  EXPECT_THAT(Problems("compression { kind: INT8 } auto_regime {}"), IsEmpty());
  EXPECT_THAT(Problems("consistency { mode: SYNC_WITH_BACKUPS needed: 2 } "
                       "auto_regime {}"),
              ElementsAre(AllOf(HasSubstr("auto_regime: there is nothing"),
                                HasSubstr("SYNC_WITH_BACKUPS"))));
  EXPECT_THAT(
      Problems("consistency { mode: LOCAL } auto_regime { gain: 0.5 }"),
      UnorderedElementsAre(HasSubstr("auto_regime: does not go with LOCAL"),
                           HasSubstr("auto_regime.gain: ")))
      << "each once";
}

TEST(AutoRegimeRulesTest, WhatDoesNotGoWithItIsNamed) {
  EXPECT_THAT(
      Problems("auto_regime {} regimes { when { clock: 5 } "
               "then { mode: ASYNC } }"),
      ElementsAre(HasSubstr("auto_regime: not together with `regimes`")));
  EXPECT_THAT(Problems("training { global_batch: 96 } auto_regime {}"),
              ElementsAre(HasSubstr("training.global_batch: does not go with "
                                    "auto_regime: ")));
}

TEST(AutoRegimeRulesTest, RangesAreChecked) {
  EXPECT_THAT(Problems("auto_regime { window_clocks: 9 }"),
              ElementsAre("auto_regime.window_clocks: 9 is outside "
                          "10..1000000000"));
  EXPECT_THAT(Problems("auto_regime { window_clocks: 1000000001 }"),
              ElementsAre(HasSubstr("auto_regime.window_clocks: ")));
  EXPECT_THAT(Problems("auto_regime { trial_share: 0.51 }"),
              ElementsAre("auto_regime.trial_share: 0.51 is outside (0, 0.5]"));
  EXPECT_THAT(Problems("auto_regime { trial_share: -0.1 }"),
              ElementsAre(HasSubstr("auto_regime.trial_share: ")));
  EXPECT_THAT(Problems("auto_regime { gain: 0.5 }"),
              ElementsAre("auto_regime.gain: 0.5 is outside [1, 100]"));
  EXPECT_THAT(Problems("auto_regime { gain: 101 }"),
              ElementsAre(HasSubstr("auto_regime.gain: ")));
  JobSpec spec = JobFromText(kImageJob, absl::StrCat(kWorkers,
                                                     "auto_regime { gain: 1 "
                                                     "trial_share: 0.5 }"));
  EXPECT_THAT(ValidateJobSpec(spec), IsEmpty());
  spec.mutable_auto_regime()->set_gain(
      std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(ValidateJobSpec(spec).empty());
}

TEST(AutoRegimeRulesTest, AJobThatIsTooShortIsRefused) {
  EXPECT_THAT(
      Problems("training { max_clocks: 499 } auto_regime {}"),
      ElementsAre("auto_regime.trial_share: 0.02 of the job's 499 clocks is 9 "
                  "of them, fewer than one window of 10; raise it, train for "
                  "longer, or leave auto_regime out"));
  EXPECT_THAT(Problems("training { max_clocks: 500 } auto_regime {}"),
              IsEmpty());
  EXPECT_THAT(Problems("training { max_clocks: 5000 } "
                       "auto_regime { window_clocks: 101 }"),
              ElementsAre(HasSubstr("fewer than one window of 101")));
  EXPECT_THAT(Problems("training { max_clocks: 39 } "
                       "auto_regime { trial_share: 0.5 }"),
              ElementsAre(HasSubstr("auto_regime: the job's 39 clocks are too "
                                    "few to try anything")));
  // Unknown until the data is read.
  EXPECT_THAT(Problems("auto_regime { window_clocks: 1000000 }"), IsEmpty());
}

TrialPlan Plan(const std::string& text, int candidates, int64_t clocks) {
  AutoRegimeSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  const auto plan = PlanTrials(spec, candidates, clocks);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value_or(TrialPlan());
}

TEST(AutoRegimeRulesTest, WindowsAreAsLongAsTheShareAllows) {
  EXPECT_EQ(Plan("", 2, 500), (TrialPlan{10, 10, 1}));
  EXPECT_EQ(Plan("", 2, 5'000), (TrialPlan{100, 50, 1}));
  EXPECT_EQ(Plan("", 2, 10'000), (TrialPlan{200, 50, 2}));
  EXPECT_EQ(Plan("", 2, 20'000), (TrialPlan{400, 50, 4}));
  EXPECT_EQ(Plan("", 2, 100'000), (TrialPlan{2000, 250, 4}));
  EXPECT_EQ(Plan("", 2, 10'000'000), (TrialPlan{200'000, 1000, 4}));
  EXPECT_EQ(Plan("trial_share: 0.5", 1, 40), (TrialPlan{20, 10, 1}));
  EXPECT_EQ(Plan("window_clocks: 100", 2, 20'000), (TrialPlan{400, 100, 2}));
  EXPECT_EQ(Plan("window_clocks: 300", 2, 20'000), (TrialPlan{400, 300, 1}));
}

TEST(AutoRegimeRulesTest, EachRegimeIsReachedFromEachOther) {
  const JobSpec spec = JobFromText(
      kImageJob, absl::StrCat(kWorkers,
                              "consistency { mode: SYNC } auto_regime { "
                              "candidates { mode: ASYNC } candidates { mode: "
                              "BOUNDED_STALENESS staleness_bound: 7 "
                              "learning_rate_factor: 0.5 } candidates { "
                              "learning_rate_factor: 3 } }"));
  const auto regimes = AutoRegimesOf(spec, 3);
  ASSERT_TRUE(regimes.ok()) << regimes.status();
  for (const Regime& from : *regimes) {
    for (const Regime& to : *regimes) {
      if (TrainTheSame(from, to)) continue;
      const auto next = ChangedRegime(spec, 3, from, ChangeBetween(from, to));
      ASSERT_TRUE(next.ok()) << next.status();
      EXPECT_EQ(RegimeText(*next), RegimeText(to));
    }
  }
  Regime reduced = (*regimes)[0];
  reduced.set_strategy(SHARDED);
  reduced.set_sharding_stage(1);
  const RegimeChange change = ChangeBetween((*regimes)[0], reduced);
  EXPECT_EQ(change.strategy(), SHARDED);
  EXPECT_EQ(change.mode(), ConsistencySpec::MODE_UNSPECIFIED);
}

TEST(AutoRegimeRulesTest, TrialsOfThePastAreThoseAsShortAsAWindow) {
  const auto at = [](const std::vector<int64_t>& clocks) {
    std::vector<Regime> regimes;
    for (const int64_t clock : clocks) {
      regimes.emplace_back().set_first_clock(clock);
    }
    return regimes;
  };
  EXPECT_EQ(TrialClocksIn(at({0}), 50), 0);
  EXPECT_EQ(TrialClocksIn(at({0, 52}), 50), 0);
  EXPECT_EQ(TrialClocksIn(at({0, 52, 102, 154, 170, 221}), 50), 50 + 16);
}

TEST(AutoRegimeRulesTest, WhetherAJobMayComeToSync) {
  const auto tries = [](const std::string& edit) {
    return TriesSync(JobFromText(kImageJob, absl::StrCat(kWorkers, edit)));
  };
  EXPECT_FALSE(tries("consistency { mode: ASYNC }"));
  EXPECT_TRUE(tries("consistency { mode: ASYNC } auto_regime {}"));
  EXPECT_FALSE(
      tries("consistency { mode: ASYNC } auto_regime { candidates { "
            "learning_rate_factor: 2 } }"));
}

TEST(AutoRegimeRulesTest, WhatStaysIsNoChange) {
  JobStatus job;
  const auto add = [&job](int64_t clock, const std::string& reason,
                          const std::string& error = "") {
    RegimeTransition* const entry = job.add_regimes();
    entry->mutable_regime()->set_first_clock(clock);
    entry->set_reason(reason);
    entry->set_error(error);
    return IsStay(job.regimes(), job.regimes_size() - 1);
  };
  EXPECT_FALSE(add(0, "as submitted"));
  EXPECT_FALSE(add(52, "auto: trying ASYNC for 50 clocks"));
  EXPECT_FALSE(add(102, "auto: back to SYNC after 50 clocks of ASYNC"));
  EXPECT_FALSE(add(0, "auto: trying ASYNC for 50 clocks", "torn"));
  EXPECT_TRUE(add(102, "auto: SYNC stays; loss/s: ASYNC 0.1 against 0.2"));
  EXPECT_FALSE(add(102, "synctl regime"));
}

}  // namespace
}  // namespace syncline
