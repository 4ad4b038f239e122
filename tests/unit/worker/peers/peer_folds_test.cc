// Goal: folds without ps give the sums of StatisticsReducer, though ranks leave
// a clock's folds at different places; no message is left over, and a rank that
// is missing is named. Method: random folds of ranks as threads, over
// InProcessPeers in random orders of delivery, against sums in rank order.

#include "worker/peers/peer_folds.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/borrowed_peer.h"
#include "tests/testing/in_process_peers.h"
#include "tests/testing/seed_count.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Ranks {
  Ranks(uint32_t count, uint64_t seed, absl::Duration step_timeout)
      : peers({.ranks = count, .seed = seed}) {
    for (uint32_t rank = 0; rank < count; ++rank) {
      auto borrowed = std::make_unique<BorrowedPeer>(peers.at(rank));
      transports.push_back(borrowed.get());
      links.push_back(std::make_shared<PeerLink>(
          PeerLink::Options{.label = absl::StrCat("job j-test on rank ", rank),
                            .step_timeout = step_timeout},
          std::move(borrowed)));
      folds.push_back(std::make_unique<PeerFolds>(links.back()));
    }
  }

  InProcessPeers peers;
  std::vector<BorrowedPeer*> transports;
  std::vector<std::shared_ptr<PeerLink>> links;
  std::vector<std::unique_ptr<PeerFolds>> folds;
};

TEST(PeerFoldsTest, AddsUpInTheOrderOfRanksThoughSomeLeave) {
  for (int seed = 0; seed < SeedCount(200); ++seed) {
    Random random(seed + 1);
    const auto count = static_cast<uint32_t>(2 + random.Below(3));
    const int64_t clocks = 3;
    // By clock, by rank: how many folds it makes; the most is the step's.
    std::vector<std::vector<uint32_t>> made(clocks);
    for (auto& clock : made) {
      const auto most = static_cast<uint32_t>(random.Below(4));
      for (uint32_t rank = 0; rank < count; ++rank) {
        clock.push_back(random.Below(3) == 0
                            ? static_cast<uint32_t>(random.Below(most + 1))
                            : most);
      }
    }
    const auto part = [&](int64_t clock, uint32_t fold, uint32_t rank,
                          size_t i) {
      return Random(seed + 1000 * clock + 100 * fold + 10 * rank + i).Normal();
    };
    const auto width = [](uint32_t fold) { return size_t{1} + 3 * fold; };
    Ranks ranks(count, seed, absl::Seconds(60));
    std::vector<std::string> wrong(count);
    const auto run = [&](uint32_t rank) {
      PeerFolds& folds = *ranks.folds[rank];
      for (int64_t clock = 0; clock < clocks; ++clock) {
        folds.BeginStep(clock, nullptr);
        const uint32_t most =
            *std::max_element(made[clock].begin(), made[clock].end());
        for (uint32_t fold = 0; fold < made[clock][rank]; ++fold) {
          std::vector<double> values, expected(width(fold), 0);
          for (size_t i = 0; i < width(fold); ++i) {
            values.push_back(part(clock, fold, rank, i));
            for (uint32_t other = 0; other < count; ++other) {
              if (fold >= made[clock][other]) continue;
              expected[i] += part(clock, fold, other, i);
            }
          }
          const absl::Status folded = folds.Fold(absl::MakeSpan(values));
          if (!folded.ok()) wrong[rank] = folded.ToString();
          if (!folded.ok() || values != expected) {
            if (folded.ok()) wrong[rank] = "other sums";
            folds.Cancel(absl::CancelledError("wrong"));
            return;
          }
        }
        // Those who have made them all need not.
        if (made[clock][rank] < most || rank == 0) {
          const absl::Status left = folds.Leave();
          if (!left.ok()) wrong[rank] = left.ToString();
        }
      }
      folds.BeginStep(clocks, nullptr);  // ends the last clock
      ranks.peers.at(rank)->Await(
          [&] {
            // But for the reports of activity that it would receive.
            return ranks.transports[rank]->under_way() ==
                   static_cast<int>(count) - 1;
          },
          MonotonicNow() + absl::Seconds(20));
    };
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < count; ++rank) {
      threads.emplace_back(run, rank);
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t rank = 0; rank < count; ++rank) {
      ASSERT_EQ(wrong[rank], "") << "rank " << rank << ", seed " << seed;
      ASSERT_EQ(ranks.transports[rank]->under_way(),
                static_cast<int>(count) - 1)
          << "messages are left over at rank " << rank << ", seed " << seed;
    }
    ranks.folds.clear();
    for (const auto& link : ranks.links) link->Close();
  }
}

TEST(PeerFoldsTest, NamesTheRankThatIsMissing) {
  Ranks ranks(3, 1, absl::Milliseconds(200));
  std::vector<std::thread> threads;
  std::vector<absl::Status> ends(3);
  for (const uint32_t rank : {0u, 2u}) {
    threads.emplace_back([&, rank] {
      std::vector<double> values = {1, 2};
      ranks.folds[rank]->BeginStep(4, nullptr);
      ends[rank] = ranks.folds[rank]->Fold(absl::MakeSpan(values));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint32_t rank : {0, 2}) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(ends[rank])) << ends[rank];
    EXPECT_THAT(std::string(ends[rank].message()),
                AllOf(HasSubstr("the batch statistics of clock 4, fold 0, of "
                                "rank 1 (worker:1 at host-1:1)"),
                      HasSubstr("job j-test on rank")));
    EXPECT_EQ(ranks.folds[rank]->Leave(), ends[rank]) << "it is kept";
  }
  ranks.folds.clear();
  for (const auto& link : ranks.links) link->Close();
}

TEST(PeerFoldsTest, SaysThatAnotherRankHasSpoiltTheSums) {
  Ranks ranks(2, 1, absl::Seconds(60));
  std::vector<std::thread> threads;
  for (const uint32_t rank : {0u, 1u}) {
    threads.emplace_back([&, rank] {
      std::vector<double> values = {
          rank == 1 ? std::numeric_limits<double>::infinity() : 1};
      ranks.folds[rank]->BeginStep(0, nullptr);
      EXPECT_EQ(ranks.folds[rank]->Fold(absl::MakeSpan(values)),
                absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(ranks.folds[0]->spoilt_by_others());
  EXPECT_FALSE(ranks.folds[1]->spoilt_by_others());
  ranks.folds.clear();
  for (const auto& link : ranks.links) link->Close();
}

}  // namespace
}  // namespace syncline::worker
