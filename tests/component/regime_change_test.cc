// Goal: a job whose regime changes trains on: nothing is lost or applied twice,
// and each clock has the rate and the wire type of its regime.
// Method: two clients of real ps, whose integer gradients add up exactly. The
// regimes are in the assignment: users cannot ask for them yet.

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/component/shared_memory_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

constexpr ConsistencyMode kSync = ConsistencyMode::kSync;
constexpr ConsistencyMode kAsync = ConsistencyMode::kAsync;
constexpr ConsistencyMode kBounded = ConsistencyMode::kBoundedStaleness;

constexpr uint32_t kWorkers = 2;
constexpr int64_t kClocks = 24;

// Of `rank` at `clock`, the same for all elements. By three samples, and by the
// six of both workers, it divides without rest.
float GradientOf(uint32_t rank, int64_t clock) {
  return static_cast<float>(12 * ((clock + 3 * rank) % 5 + 1));
}

// The values that both workers have after kClocks, of which the last ones are
// SYNC's.
std::vector<Values> Push(const PsFixture::Options& cluster, bool shared) {
  PsFixture fixture(cluster);
  std::vector<std::unique_ptr<SharingClient>> clients;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    worker::PsClient::Options options;
    options.shared_memory = shared;
    options.clip_norm = fixture.assignment().spec().optimizer().clip_norm() > 0;
    clients.push_back(std::make_unique<SharingClient>(&fixture, rank, options));
  }
  EXPECT_OK(clients[0]->client().Init(kClocks));
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      SharingClient& client = *clients[rank];
      EXPECT_OK(client.client().Pull(0));
      for (int64_t clock = 0; clock < kClocks; ++clock) {
        for (const absl::Span<float> gradient : client.gradients()) {
          for (float& g : gradient) g = GradientOf(rank, clock);
        }
        EXPECT_OK(client.Step(clock));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return {clients[0]->values(), clients[1]->values()};
}

float ExpectedValue(const std::vector<TrainingRegime>& regimes) {
  RegimeSchedule schedule(regimes[0]);
  for (const TrainingRegime& regime : regimes) {
    EXPECT_OK(schedule.Add(regime, 0));
  }
  float value = 0;
  for (int64_t clock = 0; clock < kClocks; ++clock) {
    const TrainingRegime& regime = schedule.At(clock);
    const float sum = GradientOf(0, clock) + GradientOf(1, clock);
    value -= static_cast<float>(regime.learning_rate_factor) * sum /
             (regime.sync() ? 6 : 3);
  }
  return value;
}

void ExpectExactSums(const PsFixture::Options& cluster) {
  const float expected = ExpectedValue(cluster.regimes);
  for (const bool shared : {false, true}) {
    for (const Values& values : Push(cluster, shared)) {
      for (const std::vector<float>& tensor : values) {
        for (const float value : tensor) ASSERT_EQ(value, expected) << shared;
      }
    }
  }
}

PsFixture::Options ClusterOf(std::vector<TrainingRegime> regimes) {
  PsFixture::Options cluster;
  cluster.ps_count = 2;
  cluster.workers = kWorkers;
  cluster.tensor_sizes = {20'000, 7, 300'000};
  cluster.regimes = std::move(regimes);
  return cluster;
}

TEST(RegimeChangeTest, BoundAndRateChangeFromOneClockToTheNext) {
  ExpectExactSums(
      ClusterOf({{.mode = kAsync},
                 {.first_clock = 4, .mode = kBounded, .staleness_bound = 2},
                 {.first_clock = 9,
                  .mode = kBounded,
                  .staleness_bound = 0,
                  .learning_rate_factor = 0.5},
                 {.first_clock = 12, .mode = kAsync, .learning_rate_factor = 2},
                 {.first_clock = 23, .mode = kSync}}));
}

TEST(RegimeChangeTest, SyncComesAndGoes) {
  ExpectExactSums(
      ClusterOf({{.mode = kSync},
                 {.first_clock = 5, .mode = kAsync, .learning_rate_factor = .5},
                 {.first_clock = 11, .mode = kSync},
                 {.first_clock = 12, .mode = kBounded, .staleness_bound = 3},
                 {.first_clock = 20, .mode = kSync}}));
}

// Norms of whole gradients: by the ps in SYNC, by each worker elsewhere.
TEST(RegimeChangeTest, SyncComesAndGoesWithNorms) {
  PsFixture::Options cluster = ClusterOf({{.mode = kAsync},
                                          {.first_clock = 6, .mode = kSync},
                                          {.first_clock = 13, .mode = kAsync},
                                          {.first_clock = 20, .mode = kSync}});
  cluster.spec = [](JobSpec* spec) {
    spec->mutable_optimizer()->set_clip_norm(1e30);
  };
  ExpectExactSums(cluster);
}

// All of these numbers are exact in 16 bits.
TEST(RegimeChangeTest, TheWireTypeChanges) {
  ExpectExactSums(ClusterOf(
      {{.mode = kAsync, .wire_type = ElementType::kBfloat16},
       {.first_clock = 3, .mode = kAsync},
       {.first_clock = 8, .mode = kSync, .wire_type = ElementType::kFloat16},
       {.first_clock = 15, .mode = kSync, .wire_type = ElementType::kBfloat16},
       {.first_clock = 22, .mode = kSync}}));
}

}  // namespace
}  // namespace syncline
