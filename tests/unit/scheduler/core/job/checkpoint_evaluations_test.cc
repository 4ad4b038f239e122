// Goal: the evaluator is given the newest checkpoint that waits, the last one
// in any case, and is told once that no other one comes.
// Method: by hand; and many seeded orders of checkpoints, answers and
// deletions, with the promises checked after each.

#include "scheduler/core/job/checkpoint_evaluations.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CheckpointInfo At(int64_t clock) {
  CheckpointInfo checkpoint;
  checkpoint.set_clock(clock);
  checkpoint.set_path(absl::StrCat("/c/", clock));
  return checkpoint;
}

TEST(CheckpointEvaluationsTest, TheNewestThatWaitsIsNextAndOthersAreNamed) {
  CheckpointEvaluations evaluations;
  EXPECT_EQ(evaluations.Next(), std::nullopt);
  evaluations.OnWhole(At(10));
  EXPECT_EQ(evaluations.Next()->path(), "/c/10");
  EXPECT_EQ(evaluations.Next(), std::nullopt) << "one at a time";
  evaluations.OnWhole(At(20));
  evaluations.OnWhole(At(30));
  EXPECT_EQ(evaluations.Next(), std::nullopt);
  EXPECT_THAT(
      evaluations.TakeNotes(),
      ElementsAre("the checkpoint at clock 20 is not evaluated: the evaluator "
                  "is still at another one, and the one at clock 30 has come"));
  evaluations.OnEvaluated("/c/10");
  EXPECT_EQ(evaluations.Next()->path(), "/c/30");
  EXPECT_THAT(evaluations.TakeNotes(), IsEmpty());
}

TEST(CheckpointEvaluationsTest, TheEndWaitsForTheLastOne) {
  CheckpointEvaluations evaluations;
  evaluations.OnWhole(At(10));
  EXPECT_EQ(evaluations.Next()->path(), "/c/10");
  evaluations.OnWhole(At(20));
  evaluations.OnWorkersDone(/*final_clock=*/20);
  EXPECT_EQ(evaluations.Next(), std::nullopt);
  evaluations.OnEvaluated("/c/10");
  EXPECT_EQ(evaluations.Next()->path(), "/c/20");
  EXPECT_FALSE(evaluations.finishing());
  evaluations.OnEvaluated("/c/20");
  EXPECT_EQ(evaluations.Next()->path(), "");
  EXPECT_TRUE(evaluations.finishing());
  EXPECT_EQ(evaluations.Next(), std::nullopt) << "once";
  EXPECT_THAT(evaluations.TakeNotes(), IsEmpty());
}

TEST(CheckpointEvaluationsTest, AResultWithoutACheckpointIsSaid) {
  CheckpointEvaluations evaluations;
  evaluations.OnEvaluatedBefore(10);
  evaluations.OnWorkersDone(/*final_clock=*/20);
  EXPECT_EQ(evaluations.Next()->path(), "");
  EXPECT_THAT(evaluations.TakeNotes(),
              ElementsAre(HasSubstr("of clock 20, is not evaluated")));
}

TEST(CheckpointEvaluationsTest, WhatCannotBeReadIsNamedOnceAndTheNextFollows) {
  CheckpointEvaluations evaluations;
  evaluations.OnWhole(At(10));
  ASSERT_TRUE(evaluations.Next().has_value());
  evaluations.OnWhole(At(20));
  evaluations.OnFailed("/c/10", "a byte is wrong");
  EXPECT_THAT(evaluations.TakeNotes(),
              ElementsAre(AllOf(HasSubstr("warning: the checkpoint in /c/10"),
                                HasSubstr("training goes on"),
                                HasSubstr("a byte is wrong"))));
  evaluations.OnFailed("/c/10", "a byte is wrong");
  EXPECT_THAT(evaluations.TakeNotes(), IsEmpty());
  EXPECT_EQ(evaluations.Next()->path(), "/c/20");
}

TEST(CheckpointEvaluationsTest, OneThatIsDeletedWhileItWaitsIsSkipped) {
  CheckpointEvaluations evaluations;
  evaluations.OnWhole(At(10));
  evaluations.OnDeleted("/c/9");
  evaluations.OnDeleted("/c/10");
  EXPECT_EQ(evaluations.Next(), std::nullopt);
  EXPECT_THAT(evaluations.TakeNotes(), ElementsAre(HasSubstr("was deleted")));
}

TEST(CheckpointEvaluationsTest, ARepeatChangesNothing) {
  CheckpointEvaluations evaluations;
  evaluations.OnEvaluatedBefore(10);
  evaluations.OnWhole(At(10));
  EXPECT_EQ(evaluations.Next(), std::nullopt);
  evaluations.OnWhole(At(20));
  ASSERT_TRUE(evaluations.Next().has_value());
  evaluations.OnWhole(At(20));
  EXPECT_EQ(evaluations.under_way()->path(), "/c/20");
  evaluations.OnEvaluated("/c/20");
  evaluations.OnEvaluated("/c/20");
  evaluations.OnWhole(At(20));
  EXPECT_EQ(evaluations.Next(), std::nullopt);
}

TEST(CheckpointEvaluationsTest, ClocksAscendAndTheLastIsAnsweredInEachOrder) {
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    CheckpointEvaluations evaluations;
    std::optional<CheckpointInfo> given;
    int64_t last_given = -1;
    int64_t last_whole = -1;
    int answered = 0;
    int notes = 0;
    int came = 0;
    bool finished = false;
    const auto look = [&] {
      notes += static_cast<int>(evaluations.TakeNotes().size());
      const auto next = evaluations.Next();
      if (!next.has_value()) return;
      ASSERT_FALSE(given.has_value());
      if (next->path().empty()) {
        finished = true;
        return;
      }
      ASSERT_GT(next->clock(), last_given);
      last_given = next->clock();
      given = next;
    };
    const auto answer = [&] {
      if (!given.has_value()) return;
      ++answered;
      if (random.Below(5) == 0) {
        evaluations.OnFailed(given->path(), "why");
        --notes;  // that note is of an answer
      } else {
        evaluations.OnEvaluated(given->path());
      }
      given.reset();
    };
    for (int step = 0; step < 20; ++step) {
      switch (random.Below(3)) {
        case 0:
          last_whole += 1 + static_cast<int64_t>(random.Below(3));
          ++came;
          evaluations.OnWhole(At(last_whole));
          break;
        case 1:
          answer();
          break;
        default:
          break;
      }
      look();
    }
    evaluations.OnWorkersDone(/*final_clock=*/0);
    for (int step = 0; step < 4 && !finished; ++step) {
      look();
      answer();
    }
    ASSERT_TRUE(finished);
    ASSERT_EQ(last_given, last_whole) << "the last one is evaluated";
    ASSERT_EQ(answered + notes, came) << "what is not evaluated is said";
  }
}

}  // namespace
}  // namespace syncline::scheduler
