// Goal: each of a job's rules changes its regime once, as soon as its condition
// has come true, in the order of the list. Method: what members would report,
// one thing at a time.

#include "scheduler/core/job/regime_policy.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "scheduler/core/job/regime_history.h"

namespace syncline::scheduler {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

class RegimePolicyTest : public ::testing::Test {
 protected:
  void Open(const std::string& rules, uint32_t workers = 3) {
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        rules, job_.mutable_spec()));
    policy_.emplace(job_.spec(), workers, job_);
  }
  // Why the next rule is applied; empty: none is.
  std::string Next() {
    const auto decision = policy_->Next();
    return decision.has_value() ? decision->reason : "";
  }
  void Evaluate(double loss) {
    Evaluation evaluation;
    evaluation.set_loss(loss);
    policy_->OnEvaluation(evaluation);
  }
  JobStatus job_;
  std::optional<RegimePolicy> policy_;
};

TEST_F(RegimePolicyTest, ClocksAndEpochs) {
  Open(R"(regimes { when { epoch: 2 } then { mode: ASYNC } }
          regimes { when { clock: 30 } then { mode: SYNC } })");
  policy_->OnClock(19, 1);
  EXPECT_EQ(Next(), "");
  policy_->OnClock(20, 2);
  EXPECT_EQ(Next(), "rule 1: epoch 2 is done");
  EXPECT_EQ(Next(), "") << "once";
  policy_->OnClock(35, 3);
  EXPECT_EQ(Next(), "rule 2: clock 30");
  EXPECT_EQ(Next(), "");
}

TEST_F(RegimePolicyTest, TheOrderOfTheListDecides) {
  Open(R"(regimes { when { clock: 9 } then { mode: ASYNC } }
          regimes { when { clock: 8 } then { mode: SYNC } })");
  policy_->OnClock(10, 0);
  EXPECT_EQ(Next(), "rule 1: clock 9");
  EXPECT_EQ(Next(), "rule 2: clock 8");
}

TEST_F(RegimePolicyTest, LossBelow) {
  Open("regimes { when { loss_below: 0.5 } then { mode: ASYNC } }");
  policy_->OnLoss(0.5);
  policy_->OnLoss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(Next(), "");
  policy_->OnLoss(0.48);
  EXPECT_EQ(Next(), "rule 1: mean training loss 0.48 is below 0.5");
}

TEST_F(RegimePolicyTest, Plateau) {
  Open(R"(regimes { when { plateau { evaluations: 2 min_improvement: 0.1 } }
                    then { mode: SYNC } })");
  Evaluate(1.0);
  Evaluate(0.95);  // not by a tenth
  Evaluate(0.89);  // of 1, by more
  Evaluate(0.85);
  Evaluate(0.8);  // less than a tenth better than the one before, but not 0.89
  Evaluate(0.79);
  EXPECT_EQ(Next(), "");
  Evaluate(0.81);
  EXPECT_EQ(Next(),
            "rule 1: no improvement of the test loss 0.8 in 2 evaluations");
}

TEST_F(RegimePolicyTest, AStragglerIsSlowForAMinute) {
  Open("regimes { when { straggler: 2 } then { mode: ASYNC } }");
  // Steps of 0.1, 0.1 and `slow` seconds.
  const auto work = [&](int from, int to, double slow) {
    for (int second = from; second <= to; ++second) {
      for (uint32_t rank = 0; rank < 3; ++rank) {
        policy_->OnWork(rank, second, second * (rank == 2 ? slow : 0.1),
                        kStart + absl::Seconds(second));
      }
    }
  };
  work(0, 62, 0.15);
  EXPECT_EQ(Next(), "");
  work(63, 100, 0.5);
  EXPECT_EQ(Next(), "");
  work(101, 190, 0.5);
  EXPECT_THAT(Next(), ::testing::HasSubstr("rule 1: worker 2 has taken"));
}

TEST_F(RegimePolicyTest, OfTwoWorkersTheFasterOneIsTheMedian) {
  Open("regimes { when { straggler: 2 } then { mode: ASYNC } }", 2);
  for (int second = 0; second <= 130; ++second) {
    policy_->OnWork(0, second, second * 0.1, kStart + absl::Seconds(second));
    policy_->OnWork(1, second, second * 0.3, kStart + absl::Seconds(second));
  }
  EXPECT_THAT(Next(), ::testing::HasSubstr("worker 1 has taken"));
}

// An attempt that goes on behind a rule's change does not apply it again; one
// that has lost the change does.
TEST_F(RegimePolicyTest, WhatStillHoldsIsNotAppliedAgain) {
  job_.set_attempt(1);
  BeginRegimes(0, kStart, &job_);
  RegimeTransition change;
  change.set_reason("rule 1: clock 9");
  change.mutable_regime()->set_first_clock(11);
  ASSERT_TRUE(TakeRegime(change, kStart, &job_));
  Open("regimes { when { clock: 9 } then { mode: ASYNC } }");
  policy_->OnClock(20, 0);
  EXPECT_EQ(Next(), "");
  job_.set_attempt(2);
  BeginRegimes(5, kStart, &job_);
  policy_.emplace(job_.spec(), 3, job_);
  policy_->OnClock(20, 0);
  EXPECT_EQ(Next(), "rule 1: clock 9");
}

}  // namespace
}  // namespace syncline::scheduler
