// Goal: ranks that are to hand parts of the state to each other go on only if
// each has its part; one that has none is named at all of them, and the group
// goes on. Method: three ranks as threads over InProcessPeers.

#include "worker/peers/switch_talk.h"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/borrowed_peer.h"
#include "tests/testing/in_process_peers.h"
#include "tests/testing/status_matchers.h"
#include "worker/peers/peer_link.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kRanks = 3;
constexpr int64_t kClock = 5;

class SwitchTalkTest : public ::testing::Test {
 protected:
  SwitchTalkTest() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      links_.push_back(std::make_shared<PeerLink>(
          PeerLink::Options{
              .label = absl::StrCat("job j-test on worker:", rank),
              .step_timeout = absl::Seconds(60)},
          BorrowedPeer::Of(&peers_, rank)));
    }
  }

  // Each rank's answer where they have these parts.
  std::vector<absl::Status> AwaitParts(const std::vector<absl::Status>& own) {
    std::vector<absl::Status> heard(kRanks);
    OnThreads([&](uint32_t rank) {
      heard[rank] = SwitchTalk(links_[rank], kClock).AwaitParts(own[rank]);
    });
    return heard;
  }

  template <typename Function>
  void OnThreads(Function function) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back(function, rank);
    }
    for (std::thread& thread : threads) thread.join();
  }

  InProcessPeers peers_{{.ranks = kRanks, .seed = 1, .epoch = 1}};
  std::vector<std::shared_ptr<PeerLink>> links_;
};

TEST_F(SwitchTalkTest, AllHaveTheirParts) {
  for (const absl::Status& heard :
       AwaitParts(std::vector<absl::Status>(kRanks))) {
    EXPECT_OK(heard);
  }
}

TEST_F(SwitchTalkTest, ARankWithoutItsPartIsNamedAtAll) {
  const auto heard = AwaitParts({absl::OkStatus(),
                                 absl::UnavailableError("ps:1 is out of reach"),
                                 absl::OkStatus()});
  EXPECT_EQ(heard[1], absl::UnavailableError("ps:1 is out of reach"));
  for (const uint32_t rank : {0u, 2u}) {
    EXPECT_TRUE(absl::IsUnavailable(heard[rank]));
    EXPECT_THAT(std::string(heard[rank].message()),
                HasSubstr("ps:1 is out of reach"));
    EXPECT_THAT(std::string(heard[rank].message()),
                HasSubstr(links_[0]->group().NameOf(1)));
  }
  // The chief is told, and tells all, over the same group.
  OnThreads([&](uint32_t rank) {
    SwitchTalk talk(links_[rank], kClock);
    if (rank == 0) {
      const auto ready = talk.AwaitReady();
      ASSERT_OK(ready.status());
      EXPECT_OK((*ready)[2].status);
      EXPECT_EQ((*ready)[2].found, 4u);
      EXPECT_THAT(std::string((*ready)[1].status.message()),
                  HasSubstr("out of reach"));
      EXPECT_OK(talk.SendVerdict(/*commits=*/false));
      return;
    }
    EXPECT_OK(talk.SendReady(
        {rank == 1 ? heard[1] : absl::OkStatus(), uint64_t{rank} * 2}));
    const auto verdict = talk.AwaitVerdict();
    ASSERT_OK(verdict.status());
    EXPECT_FALSE(*verdict);
  });
}

TEST_F(SwitchTalkTest, ARankThatIsGoneIsNamed) {
  std::vector<absl::Status> heard(kRanks);
  OnThreads([&](uint32_t rank) {
    if (rank == 2) return peers_.Kill(2);
    heard[rank] = SwitchTalk(links_[rank], kClock).AwaitParts(absl::OkStatus());
  });
  for (const uint32_t rank : {0u, 1u}) {
    EXPECT_FALSE(heard[rank].ok());
    EXPECT_THAT(std::string(heard[rank].message()), HasSubstr("clock 5"));
  }
}

}  // namespace
}  // namespace syncline::worker
