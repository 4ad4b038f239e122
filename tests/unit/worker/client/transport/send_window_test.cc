// Goal: bytes in flight stay within the bound, nothing is lost or overtaken,
// and nothing is stuck.
// Method: items enter and leave in random order; a count is kept beside.

#include "worker/client/transport/send_window.h"

#include <map>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SendWindowTest, QueuesWhatDoesNotFitAndKeepsTheOrder) {
  SendWindow<int> window(10);
  EXPECT_TRUE(window.TryEnter(6, 1));
  EXPECT_FALSE(window.TryEnter(6, 2));
  EXPECT_FALSE(window.TryEnter(1, 3)) << "must not overtake 2";
  EXPECT_THAT(window.Leave(6), ElementsAre(2, 3));
  EXPECT_EQ(window.bytes(), 7u);
}

TEST(SendWindowTest, AnItemLargerThanTheWindowTravelsAlone) {
  SendWindow<int> window(10);
  EXPECT_TRUE(window.TryEnter(50, 1));
  EXPECT_FALSE(window.TryEnter(1, 2));
  EXPECT_THAT(window.Leave(50), ElementsAre(2));
}

TEST(SendWindowTest, ClearDropsTheQueueButNotWhatIsInFlight) {
  SendWindow<int> window(10);
  ASSERT_TRUE(window.TryEnter(10, 1));
  ASSERT_FALSE(window.TryEnter(1, 2));
  EXPECT_EQ(window.Clear(), 1u);
  EXPECT_EQ(window.bytes(), 10u);
  EXPECT_THAT(window.Leave(10), IsEmpty());
}

TEST(SendWindowTest, LowerRanksGoFirstAndEqualOnesInOrder) {
  SendWindow<int> window(10);
  ASSERT_TRUE(window.TryEnter(10, 0, /*rank=*/9));
  EXPECT_FALSE(window.TryEnter(6, 1, 5));
  EXPECT_FALSE(window.TryEnter(5, 2, 3));
  EXPECT_FALSE(window.TryEnter(5, 3, 5));
  EXPECT_FALSE(window.TryEnter(5, 4, 3));
  EXPECT_THAT(window.Leave(10), testing::ElementsAre(2, 4));
  EXPECT_FALSE(window.HasRoom(1));  // others wait
  EXPECT_THAT(window.Leave(5), testing::ElementsAre());
  EXPECT_THAT(window.Leave(5), testing::ElementsAre(1));
  EXPECT_THAT(window.Leave(6), testing::ElementsAre(3));
  EXPECT_TRUE(window.HasRoom(5));
}

TEST(SendWindowTest, RandomTrafficStaysInBoundsInOrderAndDrains) {
  constexpr size_t kLimit = 100;
  Random random(3);
  SendWindow<int> window(kLimit);
  std::map<int, size_t> sizes;
  std::vector<int> in_flight;
  int next_sent = 0;
  const auto send = [&](int item) {
    EXPECT_EQ(item, next_sent++) << "out of order";
    in_flight.push_back(item);
  };
  const auto leave_one = [&] {
    const size_t at = random.Below(in_flight.size());
    const int item = in_flight[at];
    in_flight.erase(in_flight.begin() + static_cast<int64_t>(at));
    for (const int released : window.Leave(sizes[item])) send(released);
  };
  for (int item = 0; item < 2000; ++item) {
    sizes[item] = 1 + random.Below(60);
    if (window.TryEnter(sizes[item], item)) send(item);
    EXPECT_LE(window.bytes(), kLimit);
    if (random.Below(2) == 0 && !in_flight.empty()) leave_one();
  }
  while (!in_flight.empty()) leave_one();
  EXPECT_EQ(next_sent, 2000);
  EXPECT_EQ(window.bytes(), 0u);
}

}  // namespace
}  // namespace syncline::worker
