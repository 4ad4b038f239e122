// Goal: examples of how folds of statistics begin, end and are refused; that
// they survive any history is the simulation's business.

#include "common/update/statistics_reducer.h"

#include <limits>
#include <vector>

#include "common/wire/statistics_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const absl::Time kStart = absl::UnixEpoch();
const absl::Time kDeadline = kStart + absl::Seconds(5);

class ThreeWorkers : public ::testing::Test {
 protected:
  using Answers = StatisticsReducer::Answers;

  Answers Send(uint64_t token, uint32_t rank, StatisticsReducer::Point at,
               std::vector<double> values, absl::Time now = kStart) {
    Answers answers;
    reducer_.OnPart({.token = token,
                     .rank = rank,
                     .incarnation = 10 + rank,
                     .at = at,
                     .values = values,
                     .deadline = kDeadline},
                    now, &answers);
    return answers;
  }
  Answers Leave(uint64_t token, uint32_t rank, StatisticsReducer::Point at) {
    Answers answers;
    reducer_.OnPart({.token = token,
                     .rank = rank,
                     .incarnation = 10 + rank,
                     .at = at,
                     .absent = true},
                    kStart, &answers);
    return answers;
  }
  // The one answer to it.
  absl::Status Refused(const StatisticsReducer::Part& part) {
    Answers answers;
    reducer_.OnPart(part, kStart, &answers);
    EXPECT_THAT(answers, SizeIs(1));
    return answers.at(0).status;
  }
  static std::string Text(const absl::Status& status) {
    return std::string(status.message());
  }

  StatisticsReducer reducer_{{{10, "worker:0 at a:1"},
                              {11, "worker:1 at b:2"},
                              {12, "worker:2 at c:3"}},
                             "job j on ps:0"};
};

TEST_F(ThreeWorkers, TheLastPartEndsAllCallsWithTheSumsInOrderOfRank) {
  // In another order 1 would be lost.
  EXPECT_THAT(Send(1, 2, {0, 0}, {1, 5}), IsEmpty());
  EXPECT_THAT(Send(2, 1, {0, 0}, {-1e30, 5}), IsEmpty());
  const Answers answers = Send(3, 0, {0, 0}, {1e30, 5});
  ASSERT_THAT(answers, SizeIs(3));
  for (const auto& answer : answers) {
    EXPECT_EQ(answer.status, absl::OkStatus());
    EXPECT_THAT(answer.sums, ElementsAre(1, 15));
  }
}

TEST_F(ThreeWorkers, WhoIsAbsentIsNotWaitedForUntilTheNextClock) {
  EXPECT_THAT(Send(1, 0, {4, 0}, {1}), IsEmpty());
  const Answers gone = Leave(2, 1, {4, 0});
  ASSERT_THAT(gone, SizeIs(1));
  EXPECT_EQ(gone[0].status, absl::OkStatus());
  EXPECT_THAT(gone[0].sums, IsEmpty());
  EXPECT_THAT(Send(3, 2, {4, 0}, {2}), SizeIs(2));
  EXPECT_THAT(Leave(4, 1, {4, 0}), SizeIs(1)) << "a repeat";
  EXPECT_THAT(Send(5, 0, {4, 1}, {1}), IsEmpty());
  // Absence ends a fold, too.
  const Answers last = Leave(6, 2, {4, 1});
  ASSERT_THAT(last, SizeIs(2));
  EXPECT_THAT(last[1].sums, ElementsAre(1));
  EXPECT_THAT(Send(7, 0, {4, 2}, {3}), SizeIs(1)) << "alone";
  EXPECT_THAT(Send(8, 0, {5, 0}, {1}), IsEmpty());
  EXPECT_THAT(Leave(9, 2, {4, 1}), SizeIs(1)) << "a late repeat";
  EXPECT_THAT(Send(10, 1, {5, 0}, {1}), IsEmpty());
  EXPECT_THAT(Send(11, 2, {5, 0}, {1}), SizeIs(3));
}

TEST_F(ThreeWorkers, AClockWithoutSamplesFoldsNothing) {
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(Leave(rank + 1, rank, {0, 0}), SizeIs(1));
  }
  EXPECT_THAT(Send(4, 0, {1, 0}, {1}), IsEmpty());
}

TEST_F(ThreeWorkers, ARepeatOfTheLastFoldIsAnsweredAtOnce) {
  Send(1, 0, {0, 0}, {1});
  Send(2, 1, {0, 0}, {2});
  ASSERT_THAT(Send(3, 2, {0, 0}, {4}), SizeIs(3));
  Send(4, 1, {0, 1}, {1});
  const Answers again = Send(5, 0, {0, 0}, {1});
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_THAT(again[0].sums, ElementsAre(7));
}

TEST_F(ThreeWorkers, ARepeatTakesThePlaceOfAParkedCall) {
  Send(1, 0, {0, 0}, {1});
  const Answers first = Send(2, 0, {0, 0}, {1});
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].token, 1u);
  EXPECT_EQ(first[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(reducer_.parked_count(), 1u);
}

TEST_F(ThreeWorkers, AnOverdueCallNamesTheMissing) {
  Send(1, 1, {7, 0}, {1});
  Answers answers;
  reducer_.OnTick(kDeadline - absl::Seconds(1), &answers);
  EXPECT_THAT(answers, IsEmpty());
  reducer_.OnTick(kDeadline, &answers);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(answers[0].status),
              AllOf(HasSubstr("statistics of clock 7, fold 0 ran out of time"),
                    HasSubstr("missing: worker:0 at a:1 (not heard of yet), "
                              "worker:2 at c:3 (not heard of yet)"),
                    Not(HasSubstr("worker:1"))));
  // The values that were sent first count.
  EXPECT_THAT(Send(2, 0, {7, 0}, {1}), IsEmpty());
  EXPECT_THAT(Send(3, 2, {7, 0}, {1}), SizeIs(2));
  for (const uint32_t rank : {1, 2}) Send(4 + rank, rank, {7, 1}, {1});
  answers.clear();
  reducer_.OnTick(kDeadline, &answers);
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_THAT(Text(answers[0].status),
              HasSubstr("missing: worker:0 at a:1 (last heard of in clock 7, "
                        "fold 0)"));
}

TEST_F(ThreeWorkers, SaysWhenItLastMoved) {
  EXPECT_EQ(reducer_.moved_at(), absl::InfinitePast());
  Send(1, 0, {0, 0}, {1}, kStart + absl::Seconds(1));
  Send(2, 0, {0, 0}, {1}, kStart + absl::Seconds(2));
  EXPECT_EQ(reducer_.moved_at(), kStart + absl::Seconds(1)) << "a repeat is no "
                                                               "news";
}

TEST_F(ThreeWorkers, WhatMovedAfterAFreezeDidNotMoveInTheFuture) {
  Send(1, 0, {0, 0}, {1}, kStart);
  reducer_.OnFrozen(absl::Seconds(60), kStart + absl::Seconds(61));
  EXPECT_EQ(reducer_.moved_at(), kStart + absl::Seconds(60));
  reducer_.OnFrozen(absl::Seconds(60), kStart + absl::Seconds(61));
  EXPECT_EQ(reducer_.moved_at(), kStart + absl::Seconds(61));
}

TEST_F(ThreeWorkers, WhatIsNotFiniteIsFoldedLikeEverythingElse) {
  Send(1, 0, {0, 0}, {std::numeric_limits<double>::quiet_NaN(), 1});
  Send(2, 1, {0, 0}, {1, 1});
  const Answers answers = Send(3, 2, {0, 0}, {1, 1});
  ASSERT_THAT(answers, SizeIs(3));
  EXPECT_THAT(answers[0].sums, ElementsAre(::testing::IsNan(), 3));
}

TEST_F(ThreeWorkers, RefusesWhatCannotBe) {
  const std::vector<double> two = {1, 2};
  StatisticsReducer::Part part = {.token = 9,
                                  .rank = 1,
                                  .incarnation = 11,
                                  .at = {3, 0},
                                  .values = two,
                                  .deadline = kDeadline};
  const auto with = [&](auto change) {
    StatisticsReducer::Part changed = part;
    change(&changed);
    return Refused(changed);
  };
  using Part = StatisticsReducer::Part;
  EXPECT_THAT(Text(with([](Part* p) { p->rank = 3; })),
              HasSubstr("the job has ranks 0 to 2"));
  const absl::Status replaced = with([](Part* p) { p->incarnation = 12; });
  EXPECT_EQ(replaced.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(replaced), HasSubstr("of worker:1 at b:2, which was"));
  EXPECT_THAT(Text(with([](Part* p) { p->at.fold = 1; })),
              HasSubstr("clock 3, fold 1 from worker:1 at b:2, expected fold "
                        "0 of a clock"));
  const std::vector<double> many(kFoldedValuesMax + 1);
  EXPECT_THAT(Text(with([&](Part* p) { p->values = many; })),
              HasSubstr("65537 values, expected 1 to 65536"));
  EXPECT_THAT(Text(with([](Part* p) { p->values = {}; })),
              HasSubstr("0 values"));

  Send(1, 0, {3, 0}, {1});
  EXPECT_THAT(Text(Refused(part)),
              HasSubstr("2 values, expected 1 as from the others"));
  EXPECT_THAT(Text(with([](Part* p) {
                p->at = {4, 0};
              })),
              HasSubstr("expected clock 3, fold 0"));
  EXPECT_THAT(Text(with([](Part* p) {
                p->at = {2, 0};
              })),
              HasSubstr("expected clock 3, fold 0"));
  EXPECT_THAT(Text(with([](Part* p) {
                p->rank = 0;
                p->incarnation = 10;
                p->absent = true;
              })),
              HasSubstr("has taken part in it and is absent now"));
  Leave(2, 1, {3, 0});
  EXPECT_THAT(Text(Refused(part)), HasSubstr("takes part in this clock no "
                                             "more"));
  // None of it has left a trace.
  const Answers answers = Send(3, 2, {3, 0}, {1});
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_THAT(answers[0].sums, ElementsAre(2));
}

TEST_F(ThreeWorkers, WhoGivesUpHasStillSentHisPart) {
  Send(1, 0, {0, 0}, {1});
  Answers answers;
  reducer_.OnCancel(1, &answers);
  reducer_.OnCancel(1, &answers);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].status.code(), absl::StatusCode::kCancelled);
  Send(2, 1, {0, 0}, {1});
  EXPECT_THAT(Send(3, 2, {0, 0}, {1}), SizeIs(2));
}

TEST_F(ThreeWorkers, ClosingEndsEveryCall) {
  Send(1, 0, {0, 0}, {1});
  Answers answers;
  reducer_.Close(absl::CancelledError("over"), &answers);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].status, absl::CancelledError("over"));
  EXPECT_EQ(Send(2, 1, {0, 0}, {1}).at(0).status, absl::CancelledError("over"));
  EXPECT_EQ(reducer_.parked_count(), 0u);
}

}  // namespace
}  // namespace syncline
