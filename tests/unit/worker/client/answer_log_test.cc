// Goal: the time of a wait is told by its latest causes, and a gradient that a
// shard found not finite is counted once. Method: answers made up here.

#include "worker/client/answer_log.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/fakes/test_metrics.h"

namespace syncline::worker {
namespace {

using syncline::testing::TestCounter;

PullResponseHeader Waited(double seconds) {
  PullResponseHeader header;
  header.set_waited_seconds(seconds);
  return header;
}

PullResponseHeader NonFinite(uint64_t count) {
  PullResponseHeader header;
  header.set_non_finite(count);
  return header;
}

class AnswerLogTest : public ::testing::Test {
 protected:
  AnswerLogTest() {
    telemetry_.pulled_bytes = &pulled_bytes_;
    telemetry_.non_finite = &non_finite_;
    log_.emplace(/*shards=*/2, telemetry_, &told_);
  }

  static absl::Time At(double seconds) {
    return absl::UnixEpoch() + absl::Seconds(seconds);
  }

  TestCounter pulled_bytes_;
  TestCounter non_finite_;
  ClientTelemetry telemetry_;
  std::optional<uint64_t> told_ = 0;
  std::optional<AnswerLog> log_;
};

TEST_F(AnswerLogTest, TheLatestAnswerOfEachKindSplitsAWait) {
  log_->BeginStep();
  log_->OnValues(0, Waited(2), 0, At(11));  // readable at 13
  log_->OnValues(1, Waited(0.5), 0, At(12));
  log_->OnPushed(At(10.5));
  const auto times = log_->TimesOf(At(10), At(16));
  EXPECT_EQ(times.push, absl::Seconds(2));
  EXPECT_EQ(times.wait, absl::Seconds(1));
  EXPECT_EQ(times.pull, absl::Seconds(3));
}

TEST_F(AnswerLogTest, TimesLieWithinTheWait) {
  log_->BeginStep();
  log_->OnValues(0, Waited(100), 0, At(3));  // left before the wait began
  const auto times = log_->TimesOf(At(10), At(16));
  EXPECT_EQ(times.push, absl::ZeroDuration());
  EXPECT_EQ(times.wait, absl::Seconds(6));
  EXPECT_EQ(times.pull, absl::ZeroDuration());
}

TEST_F(AnswerLogTest, AStepDoesNotKnowTheOneBefore) {
  log_->BeginStep();
  log_->OnPushed(At(12));
  log_->BeginStep();
  EXPECT_EQ(log_->TimesOf(At(10), At(16)).push, absl::ZeroDuration());
}

TEST_F(AnswerLogTest, OnlyMoreThanBeforeIsNewsOfAShard) {
  log_->OnValues(0, NonFinite(3), 10, At(1));
  log_->OnValues(0, NonFinite(3), 20, At(1));
  log_->OnValues(0, NonFinite(2), 0, At(1));  // an answer that came late
  EXPECT_EQ(non_finite_.value(), 3);
  log_->OnValues(1, NonFinite(1), 0, At(1));
  log_->OnValues(0, NonFinite(5), 0, At(1));
  EXPECT_EQ(non_finite_.value(), 6);
  EXPECT_EQ(pulled_bytes_.value(), 30);
}

// The counts of former shards are with any of the new ones.
TEST_F(AnswerLogTest, OtherShardsRepeatNoNews) {
  log_->OnValues(0, NonFinite(3), 0, At(1));
  log_->OnValues(1, NonFinite(1), 0, At(1));
  log_.emplace(/*shards=*/3, telemetry_, &told_);
  log_->OnValues(2, NonFinite(4), 0, At(1));
  log_->OnValues(0, NonFinite(0), 0, At(1));
  EXPECT_EQ(non_finite_.value(), 4);
  log_->OnValues(0, NonFinite(1), 0, At(1));
  EXPECT_EQ(non_finite_.value(), 5);
}

TEST_F(AnswerLogTest, WhatAnEarlierProcessHasToldIsNoNews) {
  told_.reset();
  log_.emplace(/*shards=*/2, telemetry_, &told_);
  log_->OnValues(0, NonFinite(3), 0, At(1));
  log_->OnValues(1, NonFinite(2), 0, At(1));
  EXPECT_EQ(non_finite_.value(), 0);
  log_->OnValues(1, NonFinite(3), 0, At(1));
  EXPECT_EQ(non_finite_.value(), 1);
  log_.emplace(/*shards=*/1, telemetry_, &told_);
  log_->OnValues(0, NonFinite(7), 0, At(1));
  EXPECT_EQ(non_finite_.value(), 2);
}

TEST_F(AnswerLogTest, TheOpenClockAndTheLatestAppliedOneAreKept) {
  PullResponseHeader header;
  header.set_min_clock(3);
  log_->OnValues(0, header, 0, At(0));
  EXPECT_EQ(log_->OpenClock(), 0) << "all workers are waited for";
  EXPECT_EQ(log_->AppliedClocks(), 0);
  header.set_open_clock(7);
  log_->OnValues(0, header, 0, At(0));
  header.set_open_clock(6);
  header.set_min_clock(2);
  log_->OnValues(1, header, 0, At(0));
  EXPECT_EQ(log_->OpenClock(), 7);
  EXPECT_EQ(log_->AppliedClocks(), 3);
}

TEST_F(AnswerLogTest, WorkersThatWereLostAreKeptWhicheverAnswerComesLast) {
  EXPECT_TRUE(log_->Lost().empty());
  PullResponseHeader before;
  PullResponseHeader header;
  const auto add = [&header](uint32_t rank, int64_t first_clock) {
    header.add_lost_workers()->set_rank(rank);
    header.mutable_lost_workers()->rbegin()->set_first_clock(first_clock);
  };
  add(2, 7);
  log_->OnValues(0, header, 0, At(0));
  log_->OnValues(1, before, 0, At(0));
  before = header;
  add(1, 9);
  log_->OnValues(1, header, 0, At(0));
  log_->OnValues(0, before, 0, At(0));
  const auto lost = log_->Lost();
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0].rank, 2u);
  EXPECT_EQ(lost[0].first_clock, 7);
  EXPECT_EQ(lost[1].rank, 1u);
  EXPECT_EQ(lost[1].first_clock, 9);
}

TEST_F(AnswerLogTest, ClocksOfLostWorkersAreTakenOnce) {
  PullResponseHeader header;
  ReturnedClock* const returned = header.add_returned();
  returned->set_rank(2);
  returned->set_clock(7);
  returned->set_next_clock(9);
  EXPECT_FALSE(log_->HasReturned());
  log_->OnValues(0, header, 0, At(1));
  log_->OnValues(1, header, 0, At(1));
  log_->OnValues(1, {}, 0, At(2));
  EXPECT_TRUE(log_->HasReturned());
  EXPECT_EQ(log_->TakeReturned(),
            (std::vector<ParameterExchange::ReturnedClock>{{2, 7, 9}}));
  EXPECT_FALSE(log_->HasReturned());
}

TEST_F(AnswerLogTest, TheLatestSkippedClockIsKept) {
  EXPECT_EQ(log_->SkippedThrough(), 0);
  PullResponseHeader header;
  header.set_skipped_through(5);
  log_->OnValues(1, header, 0, At(1));
  log_->BeginStep();
  log_->OnValues(0, PullResponseHeader(), 0, At(2));
  EXPECT_EQ(log_->SkippedThrough(), 5);
}

}  // namespace
}  // namespace syncline::worker
