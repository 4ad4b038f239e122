// Goal: lanes keep the order of each lane and run everything.
// Method: many submitters; the thread sanitizer watches unguarded state that
// only one lane may touch.

#include "server/lanes/lanes.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

TEST(LanesTest, ALaneRunsItsTasksInOrder) {
  Lanes lanes(3);
  std::vector<std::vector<int>> seen(3);  // each touched by its lane alone
  for (int i = 0; i < 300; ++i) {
    const int lane = lanes.LaneOf(i);
    lanes.Submit(lane, [&seen, lane, i](DenseUpdater::Scratch*) {
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
                   [&done, lane](DenseUpdater::Scratch*) { done[lane] = 1; });
    }
    lanes.SubmitAfterAll([&](DenseUpdater::Scratch*) {
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
                     [&counts, i](DenseUpdater::Scratch*) { ++counts[i % 2]; });
      }
    });
  }
  for (std::thread& submitter : submitters) submitter.join();
  lanes.Drain();
  EXPECT_EQ(counts[0], 1000);
  EXPECT_EQ(counts[1], 1000);
}

TEST(LanesTest, AnIdleLaneIsRunByWhoBringsWork) {
  Lanes lanes(2);
  std::thread::id ran_in;
  ASSERT_TRUE(lanes.SubmitHere(
      1, [&](DenseUpdater::Scratch*) { ran_in = std::this_thread::get_id(); }));
  EXPECT_EQ(ran_in, std::thread::id());  // not before
  lanes.RunHere(1);
  EXPECT_EQ(ran_in, std::this_thread::get_id());
  lanes.Drain();
}

TEST(LanesTest, WhatComesMeanwhileWaitsForTheOneThatIsRunHere) {
  Lanes lanes(1);
  std::vector<int> seen;  // touched by the lane alone
  const auto see = [&seen](int i) {
    return [&seen, i](DenseUpdater::Scratch*) { seen.push_back(i); };
  };
  ASSERT_TRUE(lanes.SubmitHere(0, see(0)));
  lanes.Submit(0, see(1));
  EXPECT_FALSE(lanes.SubmitHere(0, see(2)));  // its thread will
  lanes.RunHere(0);
  lanes.Drain();
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2}));
}

TEST(LanesTest, RunningHereAndThereIsOneAfterTheOther) {
  Lanes lanes(1);
  int count = 0;  // touched by the lane alone
  std::vector<std::thread> submitters;
  for (int t = 0; t < 4; ++t) {
    submitters.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto task = [&count](DenseUpdater::Scratch*) { ++count; };
        if (t % 2 == 0) {
          lanes.Submit(0, task);
        } else if (lanes.SubmitHere(0, task)) {
          lanes.RunHere(0);
        }
      }
    });
  }
  for (std::thread& submitter : submitters) submitter.join();
  lanes.Drain();
  EXPECT_EQ(count, 2000);
}

TEST(LanesTest, DyingRunsWhatIsQueued) {
  int ran = 0;
  {
    Lanes lanes(1);
    for (int i = 0; i < 100; ++i) {
      lanes.Submit(0, [&](DenseUpdater::Scratch*) { ++ran; });
    }
  }
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace syncline::ps
