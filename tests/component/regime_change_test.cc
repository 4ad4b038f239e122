// Goal: a job whose regime changes trains on: nothing is lost or applied twice,
// and each clock has the rate and the wire type of its regime.
// Method: two clients of real ps, whose integer gradients add up exactly. The
// regimes are in the assignment, or come at cuts while both clients push.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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

// --- Changes that are made while both workers push ---

// Chief and worker make their steps; the chief changes the regime at a cut as
// soon as possible after each of these clocks. Returns the regimes that the job
// had; `values` are the last ones of both.
std::vector<TrainingRegime> PushThrough(
    const PsFixture::Options& cluster, bool shared,
    const std::map<int64_t, TrainingRegime>& changes,
    std::vector<Values>* values) {
  PsFixture fixture(cluster);
  std::vector<std::unique_ptr<SharingClient>> clients;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    worker::PsClient::Options options;
    options.shared_memory = shared;
    options.clip_norm = fixture.assignment().spec().optimizer().clip_norm() > 0;
    clients.push_back(std::make_unique<SharingClient>(&fixture, rank, options));
  }
  EXPECT_OK(clients[0]->client().Init(kClocks));
  std::vector<TrainingRegime> regimes = cluster.regimes;
  // The worker is at most three clocks ahead, or it would be done too early.
  std::atomic<int64_t> chief_clock = 0;
  const auto train = [&](uint32_t rank) {
    SharingClient& client = *clients[rank];
    worker::PsClient& exchange = client.client();
    std::optional<int64_t> cut;  // the chief's, until it is committed
    auto change = changes.begin();
    EXPECT_OK(exchange.Pull(0));
    for (int64_t clock = 0; clock < kClocks; ++clock) {
      if (rank == 0) {
        chief_clock = clock;
        chief_clock.notify_all();
      }
      for (int64_t at = chief_clock; clock > at + 3; at = chief_clock) {
        chief_clock.wait(at);
      }
      // One at a time: the cut of the one before may be raised.
      if (rank == 0 && !cut.has_value() && change != changes.end() &&
          clock >= change->first) {
        const int64_t first = clock + 2;
        const auto agreed =
            exchange.BeginCut({.id = 1000 + static_cast<uint64_t>(clock),
                               .use = CutUse::kRegime,
                               .clocks = {first, first},
                               .regime = change->second});
        ASSERT_OK(agreed);
        cut = clock;
        regimes.push_back(change->second);
        regimes.back().first_clock = (*agreed)[0];
        ++change;
      }
      for (const absl::Span<float> gradient : client.gradients()) {
        for (float& g : gradient) g = GradientOf(rank, clock);
      }
      ASSERT_OK(client.Step(clock));
      const int64_t next = clock + 1;
      if (cut.has_value() && regimes.back().first_clock == next) {
        const uint64_t id = 1000 + static_cast<uint64_t>(*cut);
        ASSERT_OK(exchange.AwaitCut(id, next));
        ASSERT_OK(exchange.CommitRegime(id, next));
        cut.reset();
      } else if (rank == 0 || next == kClocks || !exchange.has_regime_news()) {
        continue;
      }
      const auto followed = exchange.FollowRegimes(next);
      ASSERT_OK(followed);
      // The news may be of a cut that another shard has raised meanwhile: then
      // the change is at a later clock, and its own news comes there.
      EXPECT_LE(followed->At(next).first_clock, next);
      ASSERT_OK(exchange.Pull(next));
    }
  };
  std::thread worker([&] { train(1); });
  train(0);
  worker.join();
  *values = {clients[0]->values(), clients[1]->values()};
  return regimes;
}

void ExpectExactSumsThroughChanges(const PsFixture::Options& cluster) {
  const std::map<int64_t, TrainingRegime> changes = {
      {2, {.mode = kAsync, .learning_rate_factor = .5}},
      {6, {.mode = kBounded, .staleness_bound = 2}},
      {10, {.mode = kSync, .learning_rate_factor = 2}}};
  for (const bool shared : {false, true}) {
    std::vector<Values> all;
    const std::vector<TrainingRegime> regimes =
        PushThrough(cluster, shared, changes, &all);
    ASSERT_EQ(regimes.size(), 4u);
    const float expected = ExpectedValue(regimes);
    for (const Values& values : all) {
      for (const std::vector<float>& tensor : values) {
        for (const float value : tensor) ASSERT_EQ(value, expected) << shared;
      }
    }
  }
}

TEST(RegimeChangeTest, AJobChangesWhileItRuns) {
  ExpectExactSumsThroughChanges(ClusterOf({{.mode = kSync}}));
}

TEST(RegimeChangeTest, AJobThatComesToSyncReportsForWhomWorkersWait) {
  PsFixture::Options cluster = ClusterOf({{.mode = kAsync}});
  cluster.workers = 1;
  PsFixture fixture(cluster);
  worker::PsClient::Options options;
  options.shared_memory = false;
  SharingClient chief(&fixture, /*rank=*/0, options);
  worker::PsClient& exchange = chief.client();
  ASSERT_OK(exchange.Init(kClocks));
  ASSERT_OK(exchange.Pull(0));
  EXPECT_TRUE(fixture.server(0).Reports().empty());
  const auto agreed =
      exchange.BeginCut({.id = 1000,
                         .use = CutUse::kRegime,
                         .clocks = {2},
                         .regime = TrainingRegime{.mode = kSync}});
  ASSERT_OK(agreed);
  const int64_t first = (*agreed)[0];
  for (int64_t clock = 0; clock < first; ++clock) ASSERT_OK(chief.Step(clock));
  ASSERT_OK(exchange.AwaitCut(1000, first));
  ASSERT_OK(exchange.CommitRegime(1000, first));
  const std::vector<PsReport> reports = fixture.server(0).Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].blame_size(), 1);
  EXPECT_TRUE(fixture.server(1).Reports().empty()) << "shard 0 has all waits";
}

TEST(RegimeChangeTest, AJobWithNormsChangesWhileItRuns) {
  PsFixture::Options cluster = ClusterOf({{.mode = kSync}});
  cluster.spec = [](JobSpec* spec) {
    spec->mutable_optimizer()->set_clip_norm(1e30);
  };
  ExpectExactSumsThroughChanges(cluster);
}

}  // namespace
}  // namespace syncline
