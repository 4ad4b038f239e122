// Goal: a checkpoint answers the requests that came before its clock was
// reached, and no others. Method: requests and answers one by one.

#include "scheduler/core/job/checkpoint_requests.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kNow = absl::UnixEpoch();

TEST(CheckpointRequestsTest, ACheckpointAnswersWhatWasAskedBefore) {
  CheckpointRequests requests;
  requests.Add(1, 10, "", kNow + absl::Seconds(5));
  requests.Add(2, 30, "", kNow + absl::Seconds(9));
  EXPECT_THAT(requests.TakeReached(9, "/c/9"), IsEmpty());
  EXPECT_THAT(requests.TakeReached(29, "/c/29"), ElementsAre(1));
  EXPECT_FALSE(requests.Contains(1));
  EXPECT_TRUE(requests.Contains(2));
  EXPECT_THAT(requests.TakeReached(30, "/c/30"), ElementsAre(2));
  EXPECT_TRUE(requests.empty());
}

// In ASYNC while the slowest worker is in a long step.
TEST(CheckpointRequestsTest, AnotherOneOfTheSameClockAnswers) {
  CheckpointRequests requests;
  requests.Add(1, 50, "/c/50-a", kNow + absl::Seconds(5));
  EXPECT_THAT(requests.TakeReached(50, "/c/50-a"), IsEmpty()) << "a repeat";
  EXPECT_THAT(requests.TakeReached(50, "/c/50-b"), ElementsAre(1));
}

TEST(CheckpointRequestsTest, EachEndsInTime) {
  CheckpointRequests requests;
  requests.Add(1, 10, "", kNow + absl::Seconds(5));
  requests.Add(2, 10, "", kNow + absl::Seconds(9));
  EXPECT_THAT(requests.TakeOverdue(kNow + absl::Seconds(4)), IsEmpty());
  EXPECT_THAT(requests.TakeOverdue(kNow + absl::Seconds(5)), ElementsAre(1));
  EXPECT_THAT(requests.TakeAll(), ElementsAre(2));
  EXPECT_THAT(requests.TakeAll(), IsEmpty());
}

}  // namespace
}  // namespace syncline::scheduler
