// Goal: through shared memory a worker gets the same values as over the
// network, bit for bit. Method: real ps and real clients in this process, over
// real gRPC. The parts beside: shared_memory_fallback_test.cc (reasons to use
// the network), shared_memory_peer_test.cc (hostile and careless peers).

#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/component/shared_memory_fixture.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"
#include "worker/client/ps_client.h"

namespace syncline {
namespace {

// The values of every worker after some steps, all of one kind of transport.
std::vector<Values> Train(uint32_t ps, uint32_t workers, bool shared,
                          const PsFixture::Options& cluster,
                          Gradients gradients = Gradients::kPrivate) {
  PsFixture fixture(cluster);
  std::vector<std::unique_ptr<SharingClient>> clients;
  for (uint32_t rank = 0; rank < workers; ++rank) {
    worker::PsClient::Options options;
    options.shared_memory = shared;
    options.clip_norm = fixture.assignment().spec().optimizer().clip_norm() > 0;
    // Less than a step, so that windows have to move on.
    options.shared_window_bytes = 2 << 20;
    clients.push_back(
        std::make_unique<SharingClient>(&fixture, rank, options, gradients));
    EXPECT_TRUE(clients.back()->AwaitLinks(shared ? ps : 0));
  }
  EXPECT_OK(clients[0]->client().Init(100));
  std::vector<std::thread> threads;
  std::vector<Values> result(workers);
  for (uint32_t rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      SharingClient& client = *clients[rank];
      EXPECT_OK(client.client().Pull(0));
      for (int64_t clock = 0; clock < 4; ++clock) {
        EXPECT_OK(client.Step(clock));
        for (const absl::Span<float> g : client.gradients()) {
          for (float& v : g) v *= 1.25f;
        }
      }
      result[rank] = client.values();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& client : clients) {
    EXPECT_EQ(client->pushed() > 4'000'000, shared);
    EXPECT_EQ(client->pulled() > 4'000'000, shared);
    EXPECT_EQ(client->fallbacks(worker::SharedFallback::kFull), 0);
  }
  return result;
}

TEST(SharedMemoryTest, ValuesAreTheNetworksBitForBit) {
  for (const auto& [ps, workers] :
       {std::pair<uint32_t, uint32_t>{1, 1}, {2, 1}, {2, 3}}) {
    SCOPED_TRACE(absl::StrCat(ps, " ps, ", workers, " workers"));
    const PsFixture::Options cluster = Cluster(ps, workers);
    const auto expected = Train(ps, workers, false, cluster);
    EXPECT_EQ(Train(ps, workers, true, cluster), expected);
    EXPECT_EQ(Train(ps, workers, true, cluster, Gradients::kShared), expected);
  }
}

// The values that come back with a step's gradients may take twice their bytes,
// or half of them.
TEST(SharedMemoryTest, ValuesAreTheNetworksWhereTheWireTypeChanges) {
  PsFixture::Options cluster = Cluster(2, 2);
  cluster.regimes = {{.wire_type = ElementType::kBfloat16},
                     {.first_clock = 1},
                     {.first_clock = 3, .wire_type = ElementType::kFloat16}};
  const auto expected = Train(2, 2, false, cluster);
  EXPECT_EQ(Train(2, 2, true, cluster), expected);
  EXPECT_EQ(Train(2, 2, true, cluster, Gradients::kShared), expected);
}

TEST(SharedMemoryTest, AWindowThatCannotMoveOnDoesNotBlock) {
  PsFixture::Options cluster = Cluster(2, 2);
  cluster.spec = [](JobSpec* spec) {
    spec->mutable_optimizer()->set_kind(OptimizerSpec::SGD);
    spec->mutable_optimizer()->set_clip_norm(1);
    spec->mutable_learning_rate()->set_base(0.1);
  };
  EXPECT_EQ(Train(2, 2, true, cluster), Train(2, 2, false, cluster));
}

}  // namespace
}  // namespace syncline
