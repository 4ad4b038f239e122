// Goal: an outage is told in time and with its true length, a short one is not.
// Method: what came of calls, at invented times.

#include "worker/peer_reach.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

class PeerReachTest : public testing::Test {
 protected:
  // `seconds` after the beginning.
  static absl::Time At(double seconds) {
    return absl::UnixEpoch() + absl::Seconds(seconds);
  }
  PeerReach reach_;
};

TEST_F(PeerReachTest, AShortOutageIsNotTold) {
  reach_.OnAnswer(At(0));
  EXPECT_EQ(reach_.OnFailure(At(1), At(2)), std::nullopt);
  reach_.OnAnswer(At(2.5));
  EXPECT_EQ(reach_.OnFailure(At(4), At(4.1)), std::nullopt)
      << "this one has only begun";
}

TEST_F(PeerReachTest, AnOutageIsToldAgainAndAgain) {
  reach_.OnAnswer(At(0));
  EXPECT_EQ(reach_.OnFailure(At(1), At(1)), std::nullopt);
  EXPECT_EQ(reach_.OnFailure(At(3), At(3)), absl::Seconds(2));
  EXPECT_EQ(reach_.OnFailure(At(4), At(4)), std::nullopt) << "just told";
  EXPECT_EQ(reach_.OnFailure(At(5), At(5)), absl::Seconds(4));
}

// A call that is parked at the peer for long has not failed before it fails.
TEST_F(PeerReachTest, ItBeginsWithTheLastAnswerOrTheFirstCallThatFailed) {
  reach_.OnAnswer(At(10));
  EXPECT_EQ(reach_.OnFailure(At(0), At(15)), absl::Seconds(5))
      << "another call was answered after this one was started";
  reach_.OnAnswer(At(20));
  EXPECT_EQ(reach_.OnFailure(At(50), At(53)), absl::Seconds(3))
      << "nobody called in between";
}

}  // namespace
}  // namespace syncline
