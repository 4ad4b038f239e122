// Goal: a repeated evaluation is known as one, and the history of a long job
// stays bounded, with its first and its newest evaluation.
// Method: evaluations in order, repeats, and more of them than are kept.

#include "scheduler/core/job/evaluation_history.h"

#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

Evaluation At(uint32_t epoch, int64_t clock, bool final = false) {
  Evaluation evaluation;
  evaluation.set_epoch(epoch);
  evaluation.set_clock(clock);
  evaluation.set_final(final);
  return evaluation;
}

TEST(EvaluationHistoryTest, OnlyLaterEvaluationsAreNew) {
  JobStatus job;
  EXPECT_TRUE(IsNewEvaluation(At(0, 0), job));
  AddEvaluation(At(2, 20), &job);
  EXPECT_FALSE(IsNewEvaluation(At(2, 20), job));
  EXPECT_FALSE(IsNewEvaluation(At(1, 30), job));
  EXPECT_TRUE(IsNewEvaluation(At(2, 21), job));
  EXPECT_TRUE(IsNewEvaluation(At(2, 20, /*final=*/true), job));
}

TEST(EvaluationHistoryTest, EverySecondOneGoesAndTheFirstStays) {
  JobStatus job;
  for (int64_t clock = 0; clock <= kEvaluationsMax; ++clock) {
    AddEvaluation(At(0, clock), &job);
  }
  ASSERT_EQ(job.evaluations_size(), kEvaluationsMax / 2 + 1);
  EXPECT_EQ(job.evaluations(0).clock(), 0);
  EXPECT_EQ(job.evaluations(1).clock(), 2);
  EXPECT_EQ(job.evaluations().rbegin()->clock(), kEvaluationsMax);
}

TEST(EvaluationHistoryTest, TheBestOneIsForgottenAndTheRestStays) {
  JobStatus job;
  EXPECT_FALSE(ForgetBest(&job));
  for (const bool best : {true, false, true}) {
    Evaluation evaluation;
    evaluation.set_best(best);
    evaluation.set_samples(7);
    AddEvaluation(evaluation, &job);
  }
  EXPECT_TRUE(ForgetBest(&job));
  EXPECT_FALSE(ForgetBest(&job));
  ASSERT_EQ(job.evaluations_size(), 3);
  EXPECT_EQ(job.evaluations(2).samples(), 7u);
}

}  // namespace
}  // namespace syncline::scheduler
