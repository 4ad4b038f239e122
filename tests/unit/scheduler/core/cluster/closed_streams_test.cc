// Goal: a member whose stream has closed is asked until its fate is known: an
// answer of its own keeps it, a dead address ends it, silence decides nothing,
// and no wait is longer than the limit. Method: answers by hand, time
// as a number.

#include "scheduler/core/cluster/closed_streams.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Outcome = ClosedStreams::Outcome;

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr absl::Duration kLimit = absl::Seconds(10);

TEST(ClosedStreamsTest, AMemberIsAskedAtOnceAndAgainAfterEachAnswer) {
  ClosedStreams streams(kLimit);
  EXPECT_FALSE(streams.Contains(1));
  streams.Add(1, kStart);
  EXPECT_TRUE(streams.Contains(1));
  EXPECT_THAT(streams.TakeDue(kStart), ElementsAre(1));
  EXPECT_THAT(streams.TakeDue(kStart + absl::Hours(1)), IsEmpty());  // asked
  absl::Time now = kStart + absl::Seconds(1);
  EXPECT_EQ(streams.OnAnswer(1, absl::OkStatus(), now), Outcome::kAlive);
  EXPECT_THAT(streams.TakeDue(now), IsEmpty());
  EXPECT_THAT(streams.TakeDue(now + absl::Milliseconds(250)), ElementsAre(1));
  streams.Remove(1);
  EXPECT_FALSE(streams.Contains(1));
  EXPECT_THAT(streams.TakeDue(now + absl::Hours(1)), IsEmpty());
}

TEST(ClosedStreamsTest, OnlyAnAnswerOfSomebodyElseMeansDeath) {
  ClosedStreams streams(kLimit);
  streams.Add(1, kStart);
  for (const absl::Status& dead :
       {absl::NotFoundError("connection refused"),
        absl::FailedPreconditionError("another process"),
        absl::UnimplementedError("no such service")}) {
    EXPECT_EQ(streams.OnAnswer(1, dead, kStart), Outcome::kDead) << dead;
  }
  for (const absl::Status& unknown :
       {absl::UnavailableError("no route to host"),
        absl::UnavailableError("socket closed"),
        absl::DeadlineExceededError("no answer"),
        absl::CancelledError("stopping")}) {
    EXPECT_EQ(streams.OnAnswer(1, unknown, kStart), Outcome::kUnknown)
        << unknown;
  }
}

TEST(ClosedStreamsTest, AMemberThatAnswersIsNotWaitedForForEver) {
  ClosedStreams streams(kLimit);
  streams.Add(1, kStart);
  streams.Add(2, kStart + absl::Seconds(1));
  streams.OnAnswer(1, absl::OkStatus(), kStart + absl::Seconds(9));
  EXPECT_THAT(streams.Overdue(kStart + absl::Milliseconds(9999)), IsEmpty());
  EXPECT_THAT(streams.Overdue(kStart + kLimit), ElementsAre(1));
  EXPECT_THAT(streams.Overdue(kStart + kLimit + absl::Seconds(1)),
              ElementsAre(1, 2));
}

}  // namespace
}  // namespace syncline::scheduler
