// Goal: compressed gradients reach real ps, and values come back compressed,
// over the network and through shared memory; the bits depend on neither, nor
// on the number of ps; a clock that is skipped leaves no trace in what the
// workers keep. Method: two clients of real ps with random gradients; the
// values at the end against those without compression, and against each other.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tests/component/shared_memory_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using Kind = GradientCompression::Kind;

constexpr uint32_t kWorkers = 2;
constexpr int64_t kClocks = 12;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  Kind kind = Kind::kNone;
  uint32_t ps = 1;
  bool shared = false;
  // Of worker 1, whose first gradient is not finite then; the clocks behind it
  // get the gradients of one clock before.
  std::optional<int64_t> skipped = {};
  // From this clock on the job trains by `then`.
  std::optional<int64_t> changes = {};
  Kind then = Kind::kNone;
  bool values = false;
  // Worker 1 has no gradient then, and reads values whole behind it.
  std::optional<int64_t> idle = {};
};

Values Train(const Case& run) {
  PsFixture::Options cluster;
  cluster.ps_count = run.ps;
  cluster.workers = kWorkers;
  cluster.tensor_sizes = {20'000, 7, 300'000, 50};
  cluster.momenta = {std::nullopt, std::nullopt, std::nullopt, 0.9f};
  cluster.regimes = {
      {.compression = {
           .kind = run.kind, .fraction = 0.1, .values = run.values}}};
  if (run.changes.has_value()) {
    cluster.regimes.push_back(
        {.first_clock = *run.changes,
         .compression = {.kind = run.then, .fraction = 0.1}});
  }
  cluster.spec = [](JobSpec* spec) { spec->set_non_finite(SKIP_STEP); };
  PsFixture fixture(cluster);
  std::vector<std::unique_ptr<SharingClient>> clients;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    worker::PsClient::Options options;
    options.shared_memory = run.shared;
    options.on_non_finite = OnNonFinite::kSkipStep;
    options.compressor = {.compression = cluster.regimes[0].compression,
                          .seed = 5,
                          .rank = rank,
                          .momentum = run.kind == Kind::kDgc ? 0.5f : 0,
                          .may_be_undone = true,
                          .running_means = {false, false, false, true}};
    clients.push_back(std::make_unique<SharingClient>(&fixture, rank, options));
  }
  EXPECT_OK(clients[0]->client().Init(kClocks + 1));
  const int64_t clocks = kClocks + (run.skipped.has_value() ? 1 : 0);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      SharingClient& client = *clients[rank];
      EXPECT_OK(client.client().Pull(0));
      for (int64_t clock = 0; clock < clocks; ++clock) {
        const bool is_behind = run.skipped.has_value() && clock > *run.skipped;
        Random random(SeedFor(clock - (is_behind ? 1 : 0), rank));
        for (const absl::Span<float> gradient : client.gradients()) {
          for (float& g : gradient) g = static_cast<float>(random.Normal());
        }
        if (clock == run.skipped && rank == 1) client.gradients()[2][7] = kNan;
        const bool is_idle = clock == run.idle && rank == 1;
        EXPECT_OK(is_idle ? client.EmptyStep(clock) : client.Step(clock));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clients[0]->values(), clients[1]->values());
  return clients[0]->values();
}

TEST(CompressedExchangeTest, BitsDependOnTheJobAlone) {
  for (const Kind kind :
       {Kind::kInt8, Kind::kTopK, Kind::kDgc, Kind::kTernGrad}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const Values values = Train({.kind = kind});
    EXPECT_TRUE(values == Train({.kind = kind, .ps = 3}));
    EXPECT_TRUE(values == Train({.kind = kind, .shared = true}));
  }
}

// With error feedback the sums differ by what is still kept: in int8 less than
// a rounding of each worker's gradient, of a mean over 6 samples.
TEST(CompressedExchangeTest, Int8LosesNothingForGood) {
  const Values whole = Train({});
  const Values int8 = Train({.kind = Kind::kInt8});
  for (size_t t = 0; t < whole.size(); ++t) {
    for (size_t i = 0; i < whole[t].size(); ++i) {
      ASSERT_NEAR(whole[t][i], int8[t][i], 0.01) << t << " " << i;
    }
  }
  EXPECT_NE(whole[2], int8[2]);
  EXPECT_EQ(whole[3], int8[3]);  // a running mean
}

// The first step of a kind that keeps nothing sends what was kept before.
TEST(CompressedExchangeTest, AJobThatStopsCompressingHasLostNothing) {
  const Values whole = Train({});
  for (const Kind kind : {Kind::kInt8, Kind::kTopK}) {
    const Values values =
        Train({.kind = kind, .changes = 8, .then = Kind::kNone});
    for (size_t t = 0; t < whole.size(); ++t) {
      for (size_t i = 0; i < whole[t].size(); ++i) {
        ASSERT_NEAR(whole[t][i], values[t][i], 1e-5) << t << " " << i;
      }
    }
    EXPECT_EQ(whole[3], values[3]);
    for (const Case& same : {Case{.kind = kind, .ps = 3, .changes = 8},
                             Case{.kind = kind, .shared = true, .changes = 8},
                             Case{.kind = kind, .skipped = 8, .changes = 8}}) {
      EXPECT_TRUE(values == Train(same));
    }
  }
}

// The rounding error of a change is in the next change: workers are as far from
// the ps' own values as a rounding of one step's change, at any clock.
TEST(CompressedExchangeTest, ValuesComeBackAsChanges) {
  for (const Kind kind : {Kind::kInt8, Kind::kTernGrad}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const Values whole = Train({.kind = kind});
    const Values values = Train({.kind = kind, .values = true});
    double largest = 0;
    for (size_t t = 0; t < whole.size(); ++t) {
      for (size_t i = 0; i < whole[t].size(); ++i) {
        ASSERT_NEAR(whole[t][i], values[t][i], 0.01) << t << " " << i;
        largest =
            std::max<double>(largest, std::abs(whole[t][i] - values[t][i]));
      }
    }
    EXPECT_GT(largest, 0) << "nothing was compressed";
    for (const Case& same :
         {Case{.kind = kind, .ps = 3, .values = true},
          Case{.kind = kind, .shared = true, .values = true}}) {
      EXPECT_TRUE(values == Train(same));
    }
    // Both workers have the same values behind these, which Train looks at. At
    // a clock that is skipped what was lost comes along all the same.
    Train({.kind = kind, .values = true, .idle = 4});
    Train({.kind = kind, .skipped = 5, .values = true});
  }
}

TEST(CompressedExchangeTest, TheKindChangesWithItsClock) {
  const Case change = {.kind = Kind::kTopK, .changes = 6, .then = Kind::kInt8};
  const Values values = Train(change);
  EXPECT_NE(values, Train({.kind = Kind::kTopK}));
  Case over_shared_memory = change;
  over_shared_memory.shared = true;
  EXPECT_TRUE(values == Train(over_shared_memory));
}

TEST(CompressedExchangeTest, ASkippedClockLeavesNoTrace) {
  for (const Kind kind : {Kind::kInt8, Kind::kTopK, Kind::kDgc}) {
    EXPECT_TRUE(Train({.kind = kind}) == Train({.kind = kind, .skipped = 5}))
        << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace syncline
