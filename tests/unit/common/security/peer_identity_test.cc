// Goal: names in certificates are read strictly, and say exactly which calls
// and tasks they allow. Method: tables.

#include "common/security/peer_identity.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<PeerIdentity> Are(const std::vector<std::string>& texts) {
  std::vector<PeerIdentity> identities;
  for (const std::string& text : texts) {
    identities.push_back(*ParseIdentity("prod", text));
  }
  return identities;
}

TEST(PeerIdentityTest, AUriIsReadAndWrittenAlike) {
  for (const char* uri :
       {"syncline://prod/scheduler", "syncline://prod/worker/3",
        "syncline://prod/worker", "syncline://a-b.c_1/ps/4294967295",
        "syncline://prod/client/alice", "syncline://prod/client",
        "syncline://prod/chief/0", "syncline://prod/evaluator"}) {
    const auto identity = ParseIdentityUri(uri);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ(identity->ToUri(), uri);
  }
}

TEST(PeerIdentityTest, OtherSpellingsAreRefused) {
  for (const char* uri : {"",
                          "syncline:",
                          "syncline://",
                          "syncline://prod",
                          "syncline://prod/",
                          "syncline:///worker/3",
                          "https://prod/worker/3",
                          "SYNCLINE://prod/worker/3",
                          "syncline://prod/Worker/3",
                          "syncline://prod/worker/",
                          "syncline://prod/worker/03",
                          "syncline://prod/worker/+3",
                          "syncline://prod/worker/-1",
                          "syncline://prod/worker/3/4",
                          "syncline://prod/worker/4294967296",
                          "syncline://prod/scheduler/0",
                          "syncline://prod/client/",
                          "syncline://prod/client/a b",
                          "syncline://prod/client/a\n",
                          "syncline://prod/root",
                          "syncline://pr*d/worker",
                          "syncline://prod/worker/3 "}) {
    EXPECT_FALSE(ParseIdentityUri(uri).ok()) << uri;
  }
  const std::string with_zero("syncline://prod/worker\0/3", 25);
  EXPECT_FALSE(ParseIdentityUri(with_zero).ok());
}

TEST(PeerIdentityTest, NamesOfAnotherClusterCountForNothing) {
  const std::vector<std::string> uris = {
      "syncline://other/scheduler", "https://prod/ps", "syncline://prod/ps/1"};
  EXPECT_THAT(IdentitiesOf("prod", uris), SizeIs(1));
  EXPECT_THAT(IdentitiesOf("third", uris), IsEmpty());
}

TEST(PeerIdentityTest, EachServiceIsForItsRoles) {
  struct Case {
    const char* path;
    std::vector<std::string> may;
    std::vector<std::string> may_not;
  };
  const std::vector<Case> cases = {
      {"/syncline.Jobs/Cancel",
       {"client/alice", "client"},
       {"scheduler", "ps/0", "worker/3", "chief", "evaluator"}},
      {"/syncline.Daemons/Session",
       {"ps/0", "worker/3", "chief/0", "evaluator"},
       {"scheduler", "client/alice"}},
      {"/syncline.Identity/Confirm",
       {"scheduler"},
       {"ps/0", "worker", "client/alice"}},
      {"/syncline.ParameterServer/PushPull",
       {"worker/3", "chief", "evaluator/0", "ps/1"},
       {"scheduler", "client/alice"}},
      {"/syncline.ParameterServer/FoldNorm",
       {"ps/1"},
       {"worker/3", "chief", "scheduler", "client"}},
      {"/syncline.Quorum/FixClock",
       {"ps/1"},
       {"worker/3", "chief", "scheduler", "client"}},
      {"/syncline.Peers/Meet", {"worker/1", "chief"}, {"ps", "client"}},
      {"/grpc.health.v1.Health/Check",
       {"client", "ps", "scheduler", "worker/1"},
       {}},
      {"/syncline.Unknown/Call", {}, {"scheduler", "client", "ps", "worker"}},
      {"", {}, {"scheduler"}},
      {"syncline.Jobs/Cancel", {}, {"client"}},
  };
  for (const Case& c : cases) {
    for (const std::string& who : c.may) {
      EXPECT_TRUE(CheckCall(c.path, Are({who})).ok()) << c.path << " " << who;
    }
    for (const std::string& who : c.may_not) {
      EXPECT_EQ(CheckCall(c.path, Are({who})).code(),
                absl::StatusCode::kPermissionDenied)
          << c.path << " " << who;
    }
    EXPECT_FALSE(CheckCall(c.path, {}).ok()) << c.path;
  }
  // One fitting name of several is enough.
  EXPECT_OK(
      CheckCall("/syncline.Identity/Confirm", Are({"chief/0", "scheduler"})));
  EXPECT_THAT(
      std::string(
          CheckCall("/syncline.Jobs/Cancel", Are({"worker/3"})).message()),
      HasSubstr("names worker/3; /syncline.Jobs/Cancel is for: client"));
}

TEST(PeerIdentityTest, ATaskIsThatOfTheCertificate) {
  EXPECT_OK(CheckTask(Are({"worker/3"}), "worker", 3));
  EXPECT_OK(CheckTask(Are({"worker"}), "worker", 3));
  EXPECT_OK(CheckTask(Are({"worker"}), "worker", std::nullopt));
  EXPECT_OK(CheckTask(Are({"scheduler", "chief/0"}), "chief", 0));
  for (const auto& refused :
       {CheckTask(Are({"worker/3"}), "worker", 4),
        CheckTask(Are({"worker/3"}), "worker", std::nullopt),
        CheckTask(Are({"worker/3"}), "ps", 3),
        CheckTask(Are({"client/worker"}), "worker", 0),
        CheckTask({}, "worker", 0)}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  }
  EXPECT_THAT(std::string(CheckTask(Are({"worker/3"}), "worker", 4).message()),
              HasSubstr("names worker/3, so it cannot register as worker:4"));
}

TEST(PeerIdentityTest, AServerIsWhomTheCallerExpects) {
  EXPECT_OK(CheckServer(ExpectedPeer::kScheduler, Are({"scheduler"})));
  EXPECT_OK(
      CheckServer(ExpectedPeer::kScheduler, Are({"chief/0", "scheduler"})));
  EXPECT_OK(CheckServer(ExpectedPeer::kPs, Are({"ps/1"})));
  for (const char* member : {"scheduler", "ps/1", "worker", "evaluator"}) {
    EXPECT_OK(CheckServer(ExpectedPeer::kMember, Are({member})));
  }
  EXPECT_THAT(
      std::string(
          CheckServer(ExpectedPeer::kScheduler, Are({"ps/1"})).message()),
      HasSubstr("names ps/1; expected: scheduler"));
  EXPECT_FALSE(CheckServer(ExpectedPeer::kPs, Are({"worker/1"})).ok());
  EXPECT_FALSE(CheckServer(ExpectedPeer::kMember, Are({"client/a"})).ok());
  EXPECT_FALSE(CheckServer(ExpectedPeer::kMember, {}).ok());
}

}  // namespace
}  // namespace syncline
