// Goal: an outage is told in time and with its true length, a short one is not.
// Method: what came of calls, at invented times.

#include "common/base/peer_reach.h"

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
  EXPECT_EQ(reach_.OnFailure(At(2)), std::nullopt);
  reach_.OnAnswer(At(2));
  EXPECT_EQ(reach_.OnFailure(At(4.1)), std::nullopt)
      << "this one has only begun";
}

TEST_F(PeerReachTest, AnOutageIsToldAgainAndAgain) {
  reach_.OnAnswer(At(0));
  EXPECT_EQ(reach_.OnFailure(At(1)), std::nullopt);
  EXPECT_EQ(reach_.OnFailure(At(3)), absl::Seconds(2));
  EXPECT_EQ(reach_.OnFailure(At(4)), std::nullopt) << "just told";
  EXPECT_EQ(reach_.OnFailure(At(5)), absl::Seconds(4));
}

// A caller that gives up soon tells sooner.
TEST_F(PeerReachTest, ALittlePatienceMeansToTellEarlier) {
  PeerReach reach(absl::Seconds(8));
  EXPECT_EQ(reach.OnFailure(At(1)), std::nullopt);
  EXPECT_EQ(reach.OnFailure(At(1.4)), std::nullopt);
  EXPECT_EQ(reach.OnFailure(At(1.6)), absl::Seconds(0.6));
  PeerReach patient(absl::Seconds(60));
  EXPECT_EQ(patient.OnFailure(At(1)), std::nullopt);
  EXPECT_EQ(patient.OnFailure(At(2.9)), std::nullopt);
  EXPECT_EQ(patient.OnFailure(At(3)), absl::Seconds(2));
}

TEST_F(PeerReachTest, AnUnansweredQuestionCountsFromWhenItWasAsked) {
  EXPECT_EQ(reach_.OnSilence(At(5), At(7)), absl::Seconds(2));
  reach_.OnAnswer(At(7));
  EXPECT_EQ(reach_.OnSilence(At(8), At(9)), std::nullopt);
  EXPECT_EQ(reach_.OnSilence(At(9), At(11)), absl::Seconds(3));
}

// One of several questions was lost; the peer has answered another one since.
TEST_F(PeerReachTest, AnOlderQuestionSaysNothingAfterAnAnswer) {
  reach_.OnAnswer(At(6));
  EXPECT_EQ(reach_.OnSilence(At(5), At(8)), std::nullopt);
  EXPECT_EQ(reach_.OnFailure(At(9)), std::nullopt) << "it begins here";
  reach_.OnAnswer(At(10));
  EXPECT_EQ(reach_.OnSilence(At(10), At(12)), absl::Seconds(2));
}

// A call may have been parked at the peer for long before the connection broke.
TEST_F(PeerReachTest, ItBeginsWithTheFirstFailure) {
  EXPECT_EQ(reach_.OnFailure(At(30)), std::nullopt);
  reach_.OnAnswer(At(30));
  EXPECT_EQ(reach_.OnFailure(At(53)), std::nullopt);
  EXPECT_EQ(reach_.OnFailure(At(56)), absl::Seconds(3));
}

}  // namespace
}  // namespace syncline
