// Goal: however many uploads come at once, few are read at a time, every one
// gets its turn, and none holds its turn by sending next to nothing. Method:
// ids and times by hand.

#include "scheduler/core/cluster/transfer_queue.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TransferQueueTest, FewAreReadAtATimeInOrder) {
  TransferQueue queue({.reading_max = 2, .reading_per_client_max = 2});
  for (const uint64_t id : {1, 2, 3, 4}) {
    ASSERT_TRUE(queue.Add(id, absl::StrCat("client", id)).ok());
  }
  EXPECT_THAT(queue.NextTurns(), ElementsAre(1, 2));
  EXPECT_THAT(queue.NextTurns(), IsEmpty());
  queue.Remove(3);  // left while it waited
  queue.Remove(1);
  EXPECT_THAT(queue.NextTurns(), ElementsAre(4));
  queue.Remove(1);  // twice
  EXPECT_THAT(queue.NextTurns(), IsEmpty());
}

TEST(TransferQueueTest, OneClientLeavesRoomForOthers) {
  TransferQueue queue({.reading_max = 3, .reading_per_client_max = 2});
  for (uint64_t id = 1; id <= 10; ++id) ASSERT_TRUE(queue.Add(id, "a").ok());
  EXPECT_THAT(queue.NextTurns(), ElementsAre(1, 2));
  ASSERT_TRUE(queue.Add(11, "b").ok());
  EXPECT_THAT(queue.NextTurns(), ElementsAre(11));
  queue.Remove(2);
  EXPECT_THAT(queue.NextTurns(), ElementsAre(3));
}

TEST(TransferQueueTest, EveryoneGetsATurn) {
  TransferQueue queue({.reading_max = 3, .reading_per_client_max = 2});
  std::vector<uint64_t> done;
  for (uint64_t id = 1; id <= 100; ++id) {
    ASSERT_TRUE(queue.Add(id, absl::StrCat(id % 3)).ok());
  }
  for (auto turns = queue.NextTurns(); !turns.empty();
       turns = queue.NextTurns()) {
    for (const uint64_t id : turns) {
      done.push_back(id);
      queue.Remove(id);
    }
  }
  EXPECT_EQ(done.size(), 100);
}

TEST(TransferQueueTest, TooManyThatWaitAreRefused) {
  TransferQueue queue({.reading_max = 1, .waiting_max = 2});
  ASSERT_TRUE(queue.Add(1, "a").ok());
  ASSERT_TRUE(queue.Add(2, "a").ok());
  const absl::Status refused = queue.Add(3, "a");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("2 uploads wait"));
  EXPECT_THAT(queue.NextTurns(), ElementsAre(1));
  EXPECT_TRUE(queue.Add(3, "a").ok());
}

TEST(TransferPaceTest, ASlowCallerIsGivenUpAndAnOrdinaryOneIsNot) {
  constexpr absl::Duration kPatience = absl::Seconds(30);
  TransferPace ordinary;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(ordinary.Add(absl::Seconds(10), 1 << 20, kPatience).ok());
  }
  TransferPace slow;  // a byte now and then, so that it never is silent
  absl::Status status;
  int count = 0;
  for (; status.ok() && count < 100; ++count) {
    status = slow.Add(absl::Seconds(10), 1, kPatience);
  }
  EXPECT_EQ(count, 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("too slow: 4 bytes came in 40.0 s"));
}

TEST(TransferPaceTest, AClientIsAHost) {
  EXPECT_EQ(ClientOfPeer("ipv4:10.0.0.7:4242"), "ipv4:10.0.0.7");
  EXPECT_EQ(ClientOfPeer("ipv6:[::1]:1"), "ipv6:[::1]");
  EXPECT_EQ(ClientOfPeer(""), "");
}

}  // namespace
}  // namespace syncline::scheduler
