// Goal: the checker of the chaos test accepts exactly the states that the
// promises allow: a push that is lost, applied twice, applied above a cut or
// applied with a forgotten slot is found, and a checkpoint that was told of and
// is not gone back to. Method: states and histories made by hand, and random
// ones with one fault in each.

#include "tests/fault/chaos/history_checker.h"

#include <cmath>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using Rule = CountingJob::Rule;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr CountingJob kJob = {
    .rule = Rule::kSgd, .workers = 2, .samples = 6, .epochs = 3};

float ValueOf(Rule rule, int64_t times) {
  if (rule == Rule::kSgd) return static_cast<float>(times);
  float sum = 0;
  for (int64_t n = 1; n <= times; ++n) {
    sum += 1 / std::sqrt(static_cast<float>(n));
  }
  return sum;
}

CountedValues StateOf(const CountingJob& job,
                      const std::vector<int64_t>& clocks) {
  std::vector<float> values;
  for (const int64_t times : TimesExpected(job, clocks)) {
    values.push_back(ValueOf(job.rule, times));
  }
  return {{"a", values}, {"rows", values}};
}

TEST(HistoryCheckerTest, StepsCutEpochsByRank) {
  EXPECT_THAT(TimesExpected(kJob, {0, 0}), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(TimesExpected(kJob, {2, 1}), ElementsAre(1, 1, 1, 0, 0, 0));
  EXPECT_THAT(TimesExpected(kJob, {4, 6}), ElementsAre(2, 2, 1, 2, 1, 2));
  EXPECT_THAT(TimesExpected(kJob, {9, 9}), ElementsAre(3, 3, 3, 3, 3, 3));
}

TEST(HistoryCheckerTest, ValuesSayHowOften) {
  for (const Rule rule : {Rule::kSgd, Rule::kAdagrad}) {
    for (int64_t times = 0; times < 200; ++times) {
      EXPECT_EQ(TimesApplied(rule, ValueOf(rule, times)), times);
    }
    EXPECT_EQ(TimesApplied(rule, -1), std::nullopt);
    EXPECT_EQ(TimesApplied(rule, std::nanf("")), std::nullopt);
    EXPECT_EQ(TimesApplied(rule, INFINITY), std::nullopt);
  }
  EXPECT_EQ(TimesApplied(Rule::kSgd, 1.5), std::nullopt);
  // The slot was forgotten after the first update.
  EXPECT_EQ(TimesApplied(Rule::kAdagrad, 2), std::nullopt);
}

// Every state but the right one is found.
TEST(HistoryCheckerTest, OneFaultInAnyStateIsFound) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    CountingJob job;
    job.rule = random.Below(2) == 0 ? Rule::kSgd : Rule::kAdagrad;
    job.workers = 1 + static_cast<int64_t>(random.Below(3));
    job.samples = job.workers * (1 + static_cast<int64_t>(random.Below(5)));
    job.epochs = 1 + static_cast<int64_t>(random.Below(8));
    std::vector<int64_t> clocks;
    for (int64_t rank = 0; rank < job.workers; ++rank) {
      clocks.push_back(
          static_cast<int64_t>(random.Below(job.clocks_total() + 1)));
    }
    CountedValues state = StateOf(job, clocks);
    ASSERT_TRUE(CheckState(job, "s", clocks, state).ok());
    const std::vector<int64_t> times = TimesExpected(job, clocks);
    const size_t at = random.Below(times.size());
    float& value = state["rows"][at];
    switch (random.Below(3)) {
      case 0: {
        value = ValueOf(job.rule, times[at] + 1);
        EXPECT_EQ(CheckState(job, "s", clocks, state).doubled, 1);
        break;
      }
      case 1: {
        if (times[at] == 0) break;
        value = ValueOf(job.rule, times[at] - 1);
        EXPECT_EQ(CheckState(job, "s", clocks, state).lost, 1);
        break;
      }
      default: {
        if (job.rule == Rule::kSgd || times[at] < 2) break;
        // Its slot began anew at some update.
        const int64_t anew =
            1 + static_cast<int64_t>(random.Below(times[at] - 1));
        value = ValueOf(job.rule, anew) + ValueOf(job.rule, times[at] - anew);
        EXPECT_FALSE(CheckState(job, "s", clocks, state).ok());
      }
    }
  }
}

TEST(HistoryCheckerTest, ProblemsNameThePush) {
  CountedValues state = StateOf(kJob, {4, 6});
  state["a"][3] = 1;
  const Verdict verdict = CheckState(kJob, "checkpoint 7", {4, 6}, state);
  EXPECT_EQ(verdict.lost, 1);
  ASSERT_EQ(verdict.problems.size(), 1u);
  EXPECT_THAT(verdict.problems[0],
              HasSubstr("checkpoint 7: a[3], pushed by worker 1 in step 1 of "
                        "each epoch, is 1: 1 updates, 2 expected"));
}

TEST(HistoryCheckerTest, AStateOfAnotherShapeIsBroken) {
  EXPECT_EQ(CheckState(kJob, "s", {1}, StateOf(kJob, {1, 1})).broken, 1);
  EXPECT_EQ(CheckState(kJob, "s", {1, 1}, {}).broken, 1);
  EXPECT_EQ(CheckState(kJob, "s", {0, 0}, {{"a", {0, 0}}}).broken, 1);
}

TEST(HistoryCheckerTest, NoAttemptBeginsBeforeACheckpointThatWasToldOf) {
  const absl::Time now = absl::UnixEpoch();
  const std::vector<Sighting> seen = {
      {.time = now, .attempt = 1, .clock = 120, .checkpoint = 100},
      {.time = now + absl::Seconds(4),
       .attempt = 2,
       .clock = 130,
       .checkpoint = 100},
      {.time = now + absl::Seconds(5),
       .attempt = 3,
       .clock = 110,
       .checkpoint = 100},
  };
  EXPECT_TRUE(CheckAttempts(seen, {{1, 0}, {2, 100}, {3, 100}}).ok());
  EXPECT_TRUE(CheckAttempts(seen, {{1, 0}, {2, 120}}).ok())
      << "a later one may not have been told yet";
  EXPECT_EQ(CheckAttempts(seen, {{1, 0}, {2, 100}, {3, 50}}).broken, 1);
  const HistoryTotals totals =
      Summarize(kJob, seen, {{1, 0}, {2, 100}, {3, 100}});
  EXPECT_EQ(totals.acknowledged, 2 * (120 + 30 + 10));
  EXPECT_EQ(totals.made_again, 2 * (20 + 30));
  EXPECT_EQ(totals.longest_pause, absl::Seconds(4));
}

}  // namespace
}  // namespace syncline
