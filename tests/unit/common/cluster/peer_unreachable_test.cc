// Goal: a report of a peer that is out of reach names job and peer, and its
// text can be sent whatever the network said. Method: examples.

#include "common/cluster/peer_unreachable.h"

#include <string>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(PeerUnreachableTest, NamesJobPeerTimeAndError) {
  Member peer;
  peer.set_address("h:1");
  peer.set_incarnation(7);
  const PeerUnreachable report =
      MakePeerUnreachable("j-0001", peer, absl::Milliseconds(2500),
                          absl::UnavailableError("connection refused"));
  EXPECT_EQ(report.job_id(), "j-0001");
  EXPECT_EQ(report.peer().address(), "h:1");
  EXPECT_EQ(report.peer().incarnation(), 7u);
  EXPECT_EQ(report.seconds(), 2.5);
  EXPECT_EQ(report.error(), "connection refused");
}

TEST(PeerUnreachableTest, TheTextIsShortAndUtf8) {
  const PeerUnreachable report = MakePeerUnreachable(
      "j", Member(), absl::Seconds(1),
      absl::UnavailableError("\xff" + std::string(5000, 'x')));
  EXPECT_LE(report.error().size(), 512u);
  std::string bytes;
  EXPECT_TRUE(report.SerializeToString(&bytes));
  EXPECT_TRUE(PeerUnreachable().ParseFromString(bytes));
}

}  // namespace
}  // namespace syncline
