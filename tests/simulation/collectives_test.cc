// Collectives over real frames, in random orders and pieces, with streams that
// break. One thread plays all ranks with a time of its own, so every seed is
// one history. Each must end: with the right sums at all ranks, or with errors
// of which one names the rank that was lost.

#include "worker/collectives/collectives.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tests/testing/in_process_peers.h"
#include "tests/testing/seed_count.h"

namespace syncline::worker {
namespace {

struct Outcome {
  std::vector<std::vector<float>> values;
  std::vector<absl::Status> statuses;
  std::vector<int> calls;
};

struct Script {
  uint32_t ranks = 2;
  size_t count = 0;
  int buckets = 1;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kDirect;
  std::vector<InProcessPeers::Loss> losses;
  int64_t kill_after_steps = -1;  // of rank 0
};

float ValueOf(uint64_t seed, uint32_t rank, int bucket, size_t i, bool exact) {
  const uint64_t bits = Mix64(SeedFor(seed, rank) + i * 31 +
                              static_cast<uint64_t>(bucket) * 1'000'003);
  return exact ? static_cast<float>(bits % 1024)
               : static_cast<float>(static_cast<double>(bits) * 0x1p-64 - 0.5);
}

// Plays a script to its end. True: it ended.
bool Play(uint64_t seed, const Script& script, bool exact,
          std::vector<Outcome>* outcomes) {
  absl::Time now = absl::UnixEpoch();
  InProcessPeers peers({.ranks = script.ranks,
                        .seed = seed,
                        .losses = script.losses,
                        .now = [&] { return now; }});
  std::vector<std::unique_ptr<Collectives>> collectives;
  for (uint32_t r = 0; r < script.ranks; ++r) {
    Collectives::Options options;
    options.algorithm = script.algorithm;
    collectives.push_back(std::make_unique<Collectives>(peers.at(r), options));
  }
  outcomes->resize(script.buckets);
  for (Outcome& outcome : *outcomes) {
    outcome.values.resize(script.ranks);
    outcome.statuses.resize(script.ranks);
    outcome.calls.resize(script.ranks);
  }
  // Ranks start at different times, and their buckets in different orders.
  std::vector<std::pair<uint32_t, int>> starts;
  for (uint32_t r = 0; r < script.ranks; ++r) {
    for (int b = 0; b < script.buckets; ++b) starts.emplace_back(r, b);
  }
  Random random(seed ^ 0x5eed);
  std::shuffle(starts.begin(), starts.end(), random);
  size_t started = 0;
  int left = static_cast<int>(starts.size());
  for (int64_t step = 0; left > 0; ++step) {
    if (step > 10'000'000) return false;
    if (step == script.kill_after_steps) peers.Kill(0);
    if (started < starts.size() && random.Below(20) == 0) {
      const auto [r, b] = starts[started++];
      Outcome& outcome = (*outcomes)[b];
      outcome.values[r].resize(script.count);
      for (size_t i = 0; i < script.count; ++i) {
        outcome.values[r][i] = ValueOf(seed, r, b, i, exact);
      }
      Collectives::Collective collective;
      collective.clock = 7;
      collective.bucket = static_cast<uint32_t>(b);
      collective.values = absl::MakeSpan(outcome.values[r]);
      collective.deadline = absl::UnixEpoch() + absl::Seconds(10);
      collectives[r]->Start(collective,
                            [&outcome, r = r, &left](absl::Status status) {
                              outcome.statuses[r] = std::move(status);
                              ++outcome.calls[r];
                              --left;
                            });
      continue;
    }
    if (peers.Step()) continue;
    if (started < starts.size()) continue;
    if (left == 0) break;
    if (peers.next_deadline() == absl::InfiniteFuture()) return false;
    now = std::max(now, peers.next_deadline());
  }
  return true;
}

Script RandomScript(Random* random) {
  Script script;
  script.ranks = static_cast<uint32_t>(2 + random->Below(4));
  script.count =
      random->Below(3) == 0 ? random->Below(6000) : random->Below(200);
  script.buckets = static_cast<int>(1 + random->Below(3));
  script.algorithm = static_cast<CollectiveAlgorithm>(random->Below(4));
  return script;
}

void ExpectSums(uint64_t seed, const Script& script, bool exact,
                const std::vector<Outcome>& outcomes) {
  for (int b = 0; b < script.buckets; ++b) {
    std::vector<float> sum(script.count);
    for (size_t i = 0; i < script.count; ++i) {
      sum[i] = ValueOf(seed, 0, b, i, exact);
      for (uint32_t r = 1; r < script.ranks; ++r) {
        sum[i] += ValueOf(seed, r, b, i, exact);
      }
    }
    for (uint32_t r = 0; r < script.ranks; ++r) {
      ASSERT_TRUE(outcomes[b].statuses[r].ok()) << outcomes[b].statuses[r];
      ASSERT_EQ(outcomes[b].calls[r], 1);
      ASSERT_TRUE(outcomes[b].values[r] == sum)
          << "bucket " << b << " rank " << r;
    }
  }
}

TEST(CollectivesSimulation, AnyOrderGivesTheSums) {
  for (int seed = 1; seed <= SeedCount(1000); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(static_cast<uint64_t>(seed));
    const Script script = RandomScript(&random);
    const bool in_rank_order =
        script.algorithm == CollectiveAlgorithm::kExchange ||
        script.algorithm == CollectiveAlgorithm::kDirect;
    std::vector<Outcome> outcomes;
    ASSERT_TRUE(Play(seed, script, !in_rank_order, &outcomes)) << "it hangs";
    ExpectSums(seed, script, !in_rank_order, outcomes);
    if (HasFatalFailure()) return;
  }
}

TEST(CollectivesSimulation, ALossEndsWithTheSumsOrNamesWhoIsMissing) {
  int failed = 0;
  for (int seed = 1; seed <= SeedCount(1000); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(static_cast<uint64_t>(seed));
    Script script = RandomScript(&random);
    InProcessPeers::Loss loss;
    loss.from = static_cast<uint32_t>(random.Below(script.ranks));
    loss.to = (loss.from + 1 +
               static_cast<uint32_t>(random.Below(script.ranks - 1))) %
              script.ranks;
    loss.after_bytes =
        random.Below(2) == 0 ? random.Below(400) : random.Below(40'000);
    loss.kind = random.Below(2) == 0 ? InProcessPeers::Loss::Kind::kSilent
                                     : InProcessPeers::Loss::Kind::kClosed;
    script.losses = {loss};
    std::vector<Outcome> outcomes;
    ASSERT_TRUE(Play(seed, script, true, &outcomes)) << "it hangs";
    bool any = false;
    bool names = false;
    for (const Outcome& outcome : outcomes) {
      for (uint32_t r = 0; r < script.ranks; ++r) {
        ASSERT_EQ(outcome.calls[r], 1);
        const absl::Status& status = outcome.statuses[r];
        if (status.ok()) continue;
        any = true;
        names |=
            absl::StrContains(status.message(),
                              absl::StrCat("rank ", loss.from, " (worker:")) ||
            absl::StrContains(status.message(),
                              absl::StrCat("rank ", loss.to, " (worker:"));
      }
    }
    if (!any) {
      ExpectSums(seed, script, true, outcomes);
      if (HasFatalFailure()) return;
    } else {
      ++failed;
      EXPECT_TRUE(names) << outcomes[0].statuses[0];
    }
  }
  EXPECT_GT(failed, SeedCount(1000) / 20);
}

TEST(CollectivesSimulation, AKilledRankIsNamed) {
  for (int seed = 1; seed <= SeedCount(500); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(static_cast<uint64_t>(seed));
    Script script = RandomScript(&random);
    script.count += 16 * script.ranks;
    script.kill_after_steps = static_cast<int64_t>(random.Below(40));
    std::vector<Outcome> outcomes;
    ASSERT_TRUE(Play(seed, script, true, &outcomes)) << "it hangs";
    for (const Outcome& outcome : outcomes) {
      for (uint32_t r = 1; r < script.ranks; ++r) {
        ASSERT_EQ(outcome.calls[r], 1);
        const absl::Status& status = outcome.statuses[r];
        EXPECT_TRUE(status.ok() ||
                    absl::StrContains(status.message(), "rank 0 (worker:0"))
            << status;
      }
    }
  }
}

}  // namespace
}  // namespace syncline::worker
