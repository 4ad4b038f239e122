#include "server/consistency/quorum_arbiter.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const absl::Time kStart = absl::UnixEpoch();

// Two shards, three workers, of which two are needed.
class QuorumArbiterTest : public testing::Test {
 protected:
  void Open(std::optional<absl::Duration> timeout = {},
            bool loses_workers = false) {
    arbiter_.emplace(QuorumArbiter::Options{
        .needed = loses_workers ? 3u : 2u,
        .timeout = timeout,
        .loses_workers = loses_workers,
        .shards = {{10, "ps:0 at a:1"}, {11, "ps:1 at b:2"}, {12, "c", false}},
        .workers = {"chief:0", "worker:0", "worker:1"},
        .label = "job j on ps:0"});
  }
  // The answers that it causes; the token is 100 * clock + shard.
  QuorumArbiter::Answers Closes(uint32_t shard, int64_t clock,
                                std::vector<uint32_t> ranks,
                                absl::Duration at = absl::ZeroDuration(),
                                uint64_t incarnation = 0) {
    QuorumArbiter::Answers answers;
    arbiter_->OnCloses(static_cast<uint64_t>(100 * clock) + shard, shard,
                       incarnation == 0 ? 10 + shard : incarnation, clock,
                       ranks, kStart + absl::Seconds(9), kStart + at, &answers);
    return answers;
  }
  QuorumArbiter::Answers Tick(absl::Duration at) {
    QuorumArbiter::Answers answers;
    arbiter_->OnTick(kStart + at, &answers);
    return answers;
  }

  std::optional<QuorumArbiter> arbiter_;
};

TEST_F(QuorumArbiterTest, AWorkerCountsOnceAllShardsHaveItsClose) {
  Open();
  EXPECT_THAT(Closes(0, 7, {0, 1, 2}), IsEmpty());
  EXPECT_THAT(Closes(1, 7, {2}), IsEmpty());
  const auto answers = Closes(1, 7, {1, 2});
  ASSERT_EQ(answers.size(), 3u) << "the shard that does not take part is not "
                                   "waited for";
  for (const auto& answer : answers) {
    EXPECT_OK(answer.status);
    EXPECT_THAT(answer.ranks, ElementsAre(1, 2));
  }
  EXPECT_EQ(arbiter_->clock(), 8);
  EXPECT_EQ(arbiter_->waiting(), 0u);
}

TEST_F(QuorumArbiterTest, ASetThatIsFixedStays) {
  Open();
  Closes(0, 0, {0, 1});
  Closes(1, 0, {0, 1});
  const auto late = Closes(0, 0, {0, 1, 2});
  ASSERT_EQ(late.size(), 1u);
  EXPECT_THAT(late[0].ranks, ElementsAre(0, 1));
  // A late close counts for no other clock.
  EXPECT_THAT(Closes(0, 1, {2}), IsEmpty());
  EXPECT_THAT(Closes(1, 1, {2}), IsEmpty());
}

TEST_F(QuorumArbiterTest, WithATimeoutItWaitsForAllUntilThen) {
  Open(absl::Seconds(2));
  Closes(0, 0, {0, 1}, absl::Seconds(1));
  EXPECT_THAT(Closes(1, 0, {0, 1}, absl::Seconds(1)), IsEmpty());
  EXPECT_THAT(Tick(absl::Milliseconds(2900)), IsEmpty());
  const auto answers = Tick(absl::Seconds(3));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_THAT(answers[0].ranks, ElementsAre(0, 1));
  // All of them need no timeout; too few of them wait on.
  Closes(0, 1, {0, 1, 2}, absl::Seconds(4));
  EXPECT_EQ(Closes(1, 1, {0, 1, 2}, absl::Seconds(4)).size(), 2u);
  Closes(0, 2, {0}, absl::Seconds(4));
  EXPECT_THAT(Tick(absl::Seconds(8)), IsEmpty());
}

TEST_F(QuorumArbiterTest, TimeInWhichThisProcessWasFrozenDoesNotCount) {
  Open(absl::Seconds(2));
  Closes(0, 0, {0, 1});
  Closes(1, 0, {0, 1});
  arbiter_->OnFrozen(absl::Seconds(20));
  EXPECT_THAT(Tick(absl::Seconds(20)), IsEmpty());
  EXPECT_EQ(Tick(absl::Seconds(22)).size(), 2u);
}

TEST_F(QuorumArbiterTest, ACallThatIsOverdueNamesWhoIsMissingAndWhere) {
  Open();
  Closes(0, 3, {0, 2});
  Closes(1, 3, {2});
  const auto answers = Tick(absl::Seconds(9));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(answers[0].status));
  EXPECT_THAT(std::string(answers[0].status.message()),
              AllOf(HasSubstr("job j on ps:0: 1 of the 2 workers that clock 3 "
                              "needs"),
                    HasSubstr("chief:0 (on ps:1 at b:2)"),
                    HasSubstr("worker:0 (on ps:0 at a:1, ps:1 at b:2)")));
  // It may ask again.
  EXPECT_EQ(Closes(1, 3, {0, 2}).size(), 1u);
}

TEST_F(QuorumArbiterTest, AWorkerThatIsRemovedIsNoLongerWaitedFor) {
  Open(/*timeout=*/{}, /*loses_workers=*/true);
  EXPECT_THAT(Closes(0, 3, {0, 1}), IsEmpty());
  EXPECT_THAT(Closes(1, 3, {0, 1}), IsEmpty());
  QuorumArbiter::Answers answers;
  EXPECT_OK(arbiter_->OnRemoved(2, kStart, &answers));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_THAT(answers[1].ranks, ElementsAre(0, 1));
  EXPECT_THAT(answers[1].removed, ElementsAre(2));
  answers.clear();
  EXPECT_OK(arbiter_->OnRemoved(2, kStart, &answers));  // a repeat
  EXPECT_THAT(answers, IsEmpty());
  // A shard that asks late, once another one is lost.
  EXPECT_OK(arbiter_->OnRemoved(1, kStart, &answers));
  const auto late = Closes(1, 3, {0, 1});
  ASSERT_EQ(late.size(), 1u);
  EXPECT_THAT(late[0].removed, ElementsAre(2));
  Closes(0, 4, {0});
  const auto next = Closes(1, 4, {0});
  ASSERT_EQ(next.size(), 2u);
  EXPECT_THAT(next[0].ranks, ElementsAre(0));
  EXPECT_THAT(next[0].removed, ElementsAre(1, 2));
}

TEST_F(QuorumArbiterTest,
       AGradientThatAllShardsHaveCountsThoughItsWorkerIsLost) {
  Open(/*timeout=*/{}, /*loses_workers=*/true);
  QuorumArbiter::Answers answers;
  EXPECT_THAT(Closes(0, 0, {1, 2}), IsEmpty());
  EXPECT_OK(arbiter_->OnRemoved(2, kStart, &answers));
  EXPECT_THAT(Closes(1, 0, {0, 1, 2}), IsEmpty());
  const auto fixed = Closes(0, 0, {0, 1, 2});
  ASSERT_EQ(fixed.size(), 3u);
  EXPECT_THAT(fixed[0].ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(fixed[0].removed, ElementsAre(2));
}

TEST_F(QuorumArbiterTest, TheJobMayComeBackAtALaterClock) {
  Open();
  Closes(0, 3, {0, 1});
  Closes(1, 3, {0, 1});
  // The workers had the state meanwhile.
  EXPECT_THAT(Closes(1, 9, {0, 1}), IsEmpty());
  EXPECT_EQ(Closes(0, 9, {0, 1}).size(), 2u);
  EXPECT_EQ(arbiter_->clock(), 10);
  Closes(0, 10, {0});
  const auto ahead = Closes(1, 12, {0});
  ASSERT_EQ(ahead.size(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(ahead[0].status));
}

TEST_F(QuorumArbiterTest, WhoCannotBeRemoved) {
  QuorumArbiter::Answers answers;
  Open();
  EXPECT_TRUE(
      absl::IsFailedPrecondition(arbiter_->OnRemoved(1, kStart, &answers)))
      << "the mode goes on without late ones as it is";
  Open(/*timeout=*/{}, /*loses_workers=*/true);
  for (const uint32_t rank : {0u, 3u}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(arbiter_->OnRemoved(rank, kStart, &answers)));
  }
  arbiter_->Close(absl::CancelledError("closed"), &answers);
  EXPECT_TRUE(absl::IsCancelled(arbiter_->OnRemoved(1, kStart, &answers)));
}

TEST_F(QuorumArbiterTest, BadReports) {
  Open();
  Closes(0, 5, {0});
  const auto refused = [&](const QuorumArbiter::Answers& answers) {
    EXPECT_EQ(answers.size(), 1u);
    return answers.empty() ? absl::OkStatus() : answers[0].status;
  };
  EXPECT_TRUE(absl::IsInvalidArgument(refused(Closes(1, 4, {0}))));
  EXPECT_TRUE(absl::IsInvalidArgument(refused(Closes(1, 6, {0}))));
  EXPECT_TRUE(absl::IsInvalidArgument(refused(Closes(2, 5, {0}))));
  EXPECT_TRUE(absl::IsInvalidArgument(refused(Closes(7, 5, {0}))));
  EXPECT_TRUE(absl::IsInvalidArgument(refused(Closes(1, 5, {3}))));
  EXPECT_TRUE(absl::IsInvalidArgument(refused(Closes(1, 5, {1, 0}))));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      refused(Closes(1, 5, {0, 1}, absl::ZeroDuration(), 99))));
  EXPECT_THAT(Closes(1, 5, {0}), IsEmpty()) << "none of them counts";
}

TEST_F(QuorumArbiterTest, Close) {
  Open();
  Closes(0, 0, {0});
  QuorumArbiter::Answers answers;
  arbiter_->Close(absl::CancelledError("over"), &answers);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(absl::IsCancelled(answers[0].status));
  EXPECT_TRUE(absl::IsCancelled(Closes(1, 0, {0})[0].status));
}

}  // namespace
}  // namespace syncline::ps
