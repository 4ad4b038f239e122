// Goal: each direction and route has its own window, a call leaves it when the
// rules say so, and the queue's order is that of the ranks, but for pushes in
// shared memory. Method: calls entered and ended by hand; nothing is sent.

#include "worker/client/transport/call_windows.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Direction = FanoutCall::Direction;

FanoutCall::Options Windows(size_t bytes, bool answers_need_later_pushes) {
  FanoutCall::Options options;
  options.push_window_bytes = bytes;
  options.pull_window_bytes = bytes;
  options.shared.window_bytes = bytes;
  options.shared.answers_need_later_pushes = answers_need_later_pushes;
  return options;
}

ActiveCallPtr CallOf(Direction direction, CallRoute route, size_t bytes,
                     int64_t rank = 0) {
  FanoutCall::Call call;
  call.direction = direction;
  call.bytes = bytes;
  call.rank = rank;
  auto active = std::make_shared<ActiveCall>(std::move(call));
  active->route = route;
  return active;
}

TEST(CallWindowsTest, DirectionsAndRoutesDoNotShareAWindow) {
  CallWindows windows(Windows(100, false));
  for (const CallRoute route : {CallRoute::kNetwork, CallRoute::kShared}) {
    for (const Direction direction : {Direction::kPush, Direction::kPull}) {
      EXPECT_TRUE(windows.TryEnter(CallOf(direction, route, 100)));
      EXPECT_FALSE(windows.TryEnter(CallOf(direction, route, 1)));
    }
  }
  EXPECT_EQ(windows.Clear(), 4u);
}

TEST(CallWindowsTest, OnlyAPushOverTheNetworkLeavesWhenItIsTaken) {
  const auto leaves = [](Direction direction, CallRoute route) {
    CallWindows windows(Windows(100, false));
    const ActiveCallPtr first = CallOf(direction, route, 100);
    const ActiveCallPtr second = CallOf(direction, route, 100);
    EXPECT_TRUE(windows.TryEnter(first));
    EXPECT_FALSE(windows.TryEnter(second));
    const bool on_taken = !windows.OnTaken(first.get()).empty();
    const bool on_ended = !windows.OnEnded(first.get()).empty();
    EXPECT_NE(on_taken, on_ended) << "it leaves once";
    return on_taken;
  };
  EXPECT_TRUE(leaves(Direction::kPush, CallRoute::kNetwork));
  EXPECT_FALSE(leaves(Direction::kPush, CallRoute::kShared));
  EXPECT_FALSE(leaves(Direction::kPull, CallRoute::kNetwork));
  EXPECT_FALSE(leaves(Direction::kPull, CallRoute::kShared));
}

TEST(CallWindowsTest, PushesInSharedMemoryKeepTheOrderOfTheirStart) {
  const auto order = [](Direction direction, CallRoute route) {
    CallWindows windows(Windows(100, false));
    const ActiveCallPtr first = CallOf(direction, route, 100);
    EXPECT_TRUE(windows.TryEnter(first));
    for (const int64_t rank : {5, 3}) {
      EXPECT_FALSE(windows.TryEnter(CallOf(direction, route, 50, rank)));
    }
    std::vector<int64_t> ranks;
    for (const ActiveCallPtr& next : windows.OnEnded(first.get())) {
      ranks.push_back(next->call.rank);
    }
    return ranks;
  };
  EXPECT_THAT(order(Direction::kPush, CallRoute::kShared), ElementsAre(5, 3));
  EXPECT_THAT(order(Direction::kPull, CallRoute::kShared), ElementsAre(3, 5));
  EXPECT_THAT(order(Direction::kPush, CallRoute::kNetwork), ElementsAre(3, 5));
}

TEST(CallWindowsTest, ARepetitionEntersAgainOnlyIfItHadLeft) {
  CallWindows windows(Windows(100, false));
  const ActiveCallPtr first =
      CallOf(Direction::kPush, CallRoute::kNetwork, 100);
  const ActiveCallPtr second =
      CallOf(Direction::kPush, CallRoute::kNetwork, 100);
  ASSERT_TRUE(windows.TryEnter(first));
  EXPECT_TRUE(windows.TryEnterAgain(first)) << "it is still inside";
  EXPECT_THAT(windows.OnTaken(first.get()), IsEmpty());
  ASSERT_TRUE(windows.TryEnter(second));
  EXPECT_FALSE(windows.TryEnterAgain(first)) << "the window is full";
  EXPECT_THAT(windows.OnTaken(second.get()), ElementsAre(first));
}

TEST(CallWindowsTest, APushThatCouldBlockOthersGoesOverTheNetwork) {
  FanoutCall::Call push;
  push.direction = Direction::kPush;
  push.bytes = 60;
  FanoutCall::Call pull = push;
  pull.direction = Direction::kPull;
  for (const bool answers_need_later_pushes : {false, true}) {
    CallWindows windows(Windows(100, answers_need_later_pushes));
    EXPECT_EQ(windows.ChooseRoute(push, /*has_shared_memory=*/false),
              CallRoute::kNetwork);
    EXPECT_EQ(windows.ChooseRoute(push, true), CallRoute::kShared);
    for (const Direction direction : {Direction::kPush, Direction::kPull}) {
      ASSERT_TRUE(windows.TryEnter(CallOf(direction, CallRoute::kShared, 60)));
    }
    EXPECT_EQ(windows.ChooseRoute(push, true), answers_need_later_pushes
                                                   ? CallRoute::kNetwork
                                                   : CallRoute::kShared);
    EXPECT_EQ(windows.ChooseRoute(pull, true), CallRoute::kShared);
  }
}

TEST(CallWindowsTest, ACallWithoutPayloadNeedsNoSharedMemory) {
  CallWindows windows(Windows(100, false));
  EXPECT_EQ(windows.ChooseRoute(FanoutCall::Call(), true), CallRoute::kNetwork);
}

}  // namespace
}  // namespace syncline::worker
