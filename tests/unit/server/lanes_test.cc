// Goal: lanes keep the order of each lane and run everything.
// Method: many submitters; the thread sanitizer watches unguarded state that
// only one lane may touch.

#include "server/lanes.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(LanesTest, ALaneRunsItsTasksInOrder) {
  Lanes lanes(3);
  std::vector<std::vector<int>> seen(3);  // each touched by its lane alone
  for (int i = 0; i < 300; ++i) {
    const int lane = lanes.LaneOf(i);
    lanes.Submit(lane, [&seen, lane, i](DenseShard::Scratch*) {
      seen[lane].push_back(i);
    });
  }
  lanes.Drain();
  for (int lane = 0; lane < 3; ++lane) {
    ASSERT_EQ(seen[lane].size(), 100u);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[lane][i], 3 * i + lane);
  }
}

TEST(LanesTest, AfterAllIsAfterEveryLane) {
  Lanes lanes(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> done(4, 0);
    int total = -1;
    for (int lane = 0; lane < 4; ++lane) {
      lanes.Submit(lane,
                   [&done, lane](DenseShard::Scratch*) { done[lane] = 1; });
    }
    lanes.SubmitAfterAll([&](DenseShard::Scratch*) {
      total = done[0] + done[1] + done[2] + done[3];
    });
    lanes.Drain();
    ASSERT_EQ(total, 4);
  }
}

TEST(LanesTest, SubmittersMayCompete) {
  Lanes lanes(2);
  int counts[2] = {0, 0};  // each touched by its lane alone
  std::vector<std::thread> submitters;
  for (int t = 0; t < 4; ++t) {
    submitters.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        lanes.Submit(i % 2,
                     [&counts, i](DenseShard::Scratch*) { ++counts[i % 2]; });
      }
    });
  }
  for (std::thread& submitter : submitters) submitter.join();
  lanes.Drain();
  EXPECT_EQ(counts[0], 1000);
  EXPECT_EQ(counts[1], 1000);
}

TEST(LanesTest, DyingRunsWhatIsQueued) {
  int ran = 0;
  {
    Lanes lanes(1);
    for (int i = 0; i < 100; ++i) {
      lanes.Submit(0, [&](DenseShard::Scratch*) { ++ran; });
    }
  }
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace syncline
