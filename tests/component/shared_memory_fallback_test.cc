// Goal: whatever keeps shared memory from working sends the bytes over the
// network, and is counted by its reason. Method: real ps and real clients in
// this process, one reason at a time.

#include <atomic>

#include "gtest/gtest.h"
#include "tests/component/shared_memory_fixture.h"
#include "tests/testing/eventually.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"
#include "worker/client/ps_client.h"

namespace syncline {
namespace {

void ExpectNetwork(SharingClient* client, worker::SharedFallback reason) {
  EXPECT_TRUE(client->AwaitFallback(reason));
  ASSERT_OK(client->client().Init(0));
  const Values before = client->values();
  ASSERT_OK(client->Step(0));
  EXPECT_NE(client->values(), before);
  EXPECT_EQ(client->pushed() + client->pulled(), 0);
}

TEST(SharedMemoryFallbackTest, APsThatIsToldNotTo) {
  PsFixture::Options options;
  options.shared_memory = false;
  PsFixture fixture(options);
  SharingClient client(&fixture, 0);
  ExpectNetwork(&client, worker::SharedFallback::kOff);
}

TEST(SharedMemoryFallbackTest, AWorkerThatIsToldNotToAsksNobody) {
  PsFixture fixture({});
  worker::PsClient::Options options;
  options.shared_memory = false;
  SharingClient client(&fixture, 0, options);
  ASSERT_OK(client.client().Init(0));
  ASSERT_OK(client.Step(0));
  EXPECT_EQ(client.pushed() + client.pulled(), 0);
}

TEST(SharedMemoryFallbackTest, AnotherHost) {
  PsFixture fixture({});
  worker::PsClient::Options options;
  options.boot_id = "another";
  SharingClient client(&fixture, 0, options);
  ExpectNetwork(&client, worker::SharedFallback::kOtherHost);
}

TEST(SharedMemoryFallbackTest, APsAtItsLimit) {
  PsFixture::Options options;
  options.shared_memory_bytes = 64 << 10;
  PsFixture fixture(options);
  SharingClient client(&fixture, 0);
  ExpectNetwork(&client, worker::SharedFallback::kRefused);
}

TEST(SharedMemoryFallbackTest, AWorkerWithoutMemory) {
  PsFixture fixture({});
  worker::PsClient::Options options;
  options.has_tables = true;  // whose rows may be any number
  options.shared_window_bytes = size_t{1} << 45;
  SharingClient client(&fixture, 0, options);
  ExpectNetwork(&client, worker::SharedFallback::kMemory);
}

// Offers a socket without a listener, as another network namespace's is.
class LyingService final
    : public ParameterServer::WithCallbackMethod_OfferMemory<
          ParameterServer::Service> {
  grpc::ServerUnaryReactor* OfferMemory(grpc::CallbackServerContext* context,
                                        const OfferMemoryRequest*,
                                        OfferMemoryResponse* offer) override {
    offer->set_socket("syncline-no-listener");
    offer->set_token("token");
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

TEST(SharedMemoryFallbackTest, ASocketOutOfReach) {
  LyingService service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  ASSERT_OK_AND_ASSIGN(const ListeningServer server,
                       StartServer(&builder, "127.0.0.1:0"));
  std::atomic<int> socket_failures{0};
  worker::PsClient::Options options;
  options.ps = {{"ps:0", server.address}};
  options.telemetry.on_shared_fallback = [&](worker::SharedFallback reason) {
    socket_failures += reason == worker::SharedFallback::kSocket;
  };
  std::vector<float> values(4);
  worker::DenseTensors tensors;
  tensors.values = {absl::MakeSpan(values)};
  tensors.gradients = {values};
  const worker::PsClient client(options,
                                *BlockMap::Create({{TensorSize{"w", 4}}}, 1),
                                std::move(tensors));
  EXPECT_TRUE(Eventually(kPsTimeout, [&] { return socket_failures == 1; }));
}

}  // namespace
}  // namespace syncline
