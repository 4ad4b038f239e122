// Goal: through shared memory a worker gets what it gets over the network, bit
// for bit; whatever keeps it from working sends the bytes over the network and
// is counted; a peer can neither crash nor fool a ps with it; nothing stays
// behind.
// Method: real ps and real clients in this process, over real gRPC; hostile
// peers through the generated client.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
#include "common/rpc/grpc_status.h"
#include "common/system/local_socket.h"
#include "common/system/shared_region.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/test_metrics.h"
#include "tests/testing/open_files.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"
#include "worker/client/ps_client.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using testing::TestCounter;
using testing::TestGauge;

constexpr absl::Duration kTimeout = absl::Seconds(20);

enum class Gradients { kPrivate, kShared };

// A worker's client with memory of its own.
class Client {
 public:
  Client(PsFixture* fixture, uint32_t rank,
         worker::PsClient::Options options = {},
         Gradients gradients = Gradients::kPrivate)
      : gradient_memory_(*SharedRegion::Create(fixture->map().element_count() *
                                               sizeof(float))) {
    auto* at = reinterpret_cast<float*>(gradient_memory_->data());
    Random random(rank + 1);
    worker::DenseTensors tensors;
    for (const ParameterInfo& info : fixture->assignment().parameters()) {
      const auto count = static_cast<size_t>(info.dims(0));
      values_.emplace_back(count);
      gradients_.push_back({at, count});
      at += count;
      for (float& g : gradients_.back()) {
        g = static_cast<float>(random.Uniform() - 0.5);
      }
    }
    for (auto& v : values_) tensors.values.push_back(absl::MakeSpan(v));
    for (const auto& g : gradients_) tensors.gradients.push_back(g);
    if (gradients == Gradients::kShared) {
      tensors.gradient_region = gradient_memory_;
    }
    options.job_id = "j-0001";
    options.rank = rank;
    options.incarnation = 100 + rank;
    for (uint32_t ps = 0; ps < fixture->ps_count(); ++ps) {
      options.ps.push_back({absl::StrCat("ps:", ps), fixture->address(ps)});
    }
    options.step_timeout = kTimeout;
    options.telemetry.shared_links = &links_;
    options.telemetry.shared_pushed_bytes = &pushed_;
    options.telemetry.shared_pulled_bytes = &pulled_;
    options.telemetry.on_shared_fallback =
        [this](worker::SharedFallback reason) {
          ++fallbacks_[static_cast<int>(reason)];
        };
    client_ = std::make_unique<worker::PsClient>(options, fixture->map(),
                                                 std::move(tensors));
  }

  bool AwaitLinks(int64_t count) {
    return Eventually(kTimeout, [&] { return links_.value() == count; });
  }
  bool AwaitFallback(worker::SharedFallback reason) {
    return Eventually(kTimeout, [&] { return fallbacks(reason) > 0; });
  }
  absl::Status Step(int64_t clock, bool pull = true) {
    client_->BeginStep({.clock = clock, .sample_count = 3, .pull = pull});
    for (size_t i = gradients_.size(); i-- > 0;) {
      client_->OnGradientReady(static_cast<uint32_t>(i));
    }
    client_->EndBackward({});
    return client_->Wait();
  }

  worker::PsClient& client() { return *client_; }
  std::vector<std::vector<float>>& values() { return values_; }
  const std::vector<absl::Span<float>>& gradients() { return gradients_; }
  int fallbacks(worker::SharedFallback reason) const {
    return fallbacks_[static_cast<int>(reason)];
  }
  int64_t pushed() const { return pushed_.value(); }
  int64_t pulled() const { return pulled_.value(); }

 private:
  std::vector<std::vector<float>> values_;
  const std::shared_ptr<SharedRegion> gradient_memory_;
  std::vector<absl::Span<float>> gradients_;
  TestGauge links_;
  TestCounter pushed_;
  TestCounter pulled_;
  std::array<std::atomic<int>, worker::kSharedFallbackCount> fallbacks_{};
  std::unique_ptr<worker::PsClient> client_;
};

// Regions of this process: the worker's and the ps's mappings.
PsFixture::Options Cluster(uint32_t ps, uint32_t workers) {
  PsFixture::Options options;
  options.ps_count = ps;
  options.workers = workers;
  options.tensor_sizes = {300'000, 7, 1, 2'000'000, 4096, 33};
  options.spec = [](JobSpec* spec) {
    spec->mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    spec->mutable_learning_rate()->set_base(0.01);
  };
  return options;
}

using Values = std::vector<std::vector<float>>;

// The values of every worker after some steps, all of one kind of transport.
std::vector<Values> Train(uint32_t ps, uint32_t workers, bool shared,
                          const PsFixture::Options& cluster,
                          Gradients gradients = Gradients::kPrivate) {
  PsFixture fixture(cluster);
  std::vector<std::unique_ptr<Client>> clients;
  for (uint32_t rank = 0; rank < workers; ++rank) {
    worker::PsClient::Options options;
    options.shared_memory = shared;
    options.norm_is_folded =
        fixture.assignment().spec().optimizer().clip_norm() > 0;
    // Less than a step, so that windows have to move on.
    options.shared_window_bytes = 2 << 20;
    clients.push_back(
        std::make_unique<Client>(&fixture, rank, options, gradients));
    EXPECT_TRUE(clients.back()->AwaitLinks(shared ? ps : 0));
  }
  EXPECT_OK(clients[0]->client().Init(100));
  std::vector<std::thread> threads;
  std::vector<Values> result(workers);
  for (uint32_t rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      Client& client = *clients[rank];
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

TEST(SharedMemoryTest, AWindowThatCannotMoveOnDoesNotBlock) {
  PsFixture::Options cluster = Cluster(2, 2);
  cluster.spec = [](JobSpec* spec) {
    spec->mutable_optimizer()->set_kind(OptimizerSpec::SGD);
    spec->mutable_optimizer()->set_clip_norm(1);
    spec->mutable_learning_rate()->set_base(0.1);
  };
  EXPECT_EQ(Train(2, 2, true, cluster), Train(2, 2, false, cluster));
}

// --- What keeps it from working ----------------------------------------------

void ExpectNetwork(Client* client, worker::SharedFallback reason) {
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
  Client client(&fixture, 0);
  ExpectNetwork(&client, worker::SharedFallback::kOff);
}

TEST(SharedMemoryFallbackTest, AWorkerThatIsToldNotToAsksNobody) {
  PsFixture fixture({});
  worker::PsClient::Options options;
  options.shared_memory = false;
  Client client(&fixture, 0, options);
  ASSERT_OK(client.client().Init(0));
  ASSERT_OK(client.Step(0));
  EXPECT_EQ(client.pushed() + client.pulled(), 0);
}

TEST(SharedMemoryFallbackTest, AnotherHost) {
  PsFixture fixture({});
  worker::PsClient::Options options;
  options.boot_id = "another";
  Client client(&fixture, 0, options);
  ExpectNetwork(&client, worker::SharedFallback::kOtherHost);
}

TEST(SharedMemoryFallbackTest, APsAtItsLimit) {
  PsFixture::Options options;
  options.shared_memory_bytes = 64 << 10;
  PsFixture fixture(options);
  Client client(&fixture, 0);
  ExpectNetwork(&client, worker::SharedFallback::kRefused);
}

TEST(SharedMemoryFallbackTest, AWorkerWithoutMemory) {
  PsFixture fixture({});
  worker::PsClient::Options options;
  options.has_tables = true;  // whose rows may be any number
  options.shared_window_bytes = size_t{1} << 45;
  Client client(&fixture, 0, options);
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
  EXPECT_TRUE(Eventually(kTimeout, [&] { return socket_failures == 1; }));
}

// --- Hostile and careless peers ----------------------------------------------

// A worker that does all of it by hand.
class HandMade {
 public:
  explicit HandMade(PsFixture* fixture, uint32_t rank = 0)
      : worker_(fixture, rank), stub_(fixture->stub(0)) {}

  absl::Status Register(const FileDescriptor& memory, bool read_only = false) {
    OfferMemoryRequest ask;
    *ask.mutable_caller() = worker_.caller();
    ask.set_boot_id(BootId());
    OfferMemoryResponse offer;
    const absl::Status offered = FromGrpcStatus(stub_.OfferMemory(
        MakeContext(absl::Now() + kTimeout).get(), ask, &offer));
    if (!offered.ok()) return offered;
    auto connection = SendDescriptor(offer.socket(), offer.token(), memory);
    if (!connection.ok()) return connection.status();
    connection_ = *std::move(connection);
    AttachMemoryRequest attach;
    *attach.mutable_caller() = worker_.caller();
    attach.set_token(offer.token());
    attach.set_read_only(read_only);
    AttachMemoryResponse attached;
    const absl::Status status = FromGrpcStatus(stub_.AttachMemory(
        MakeContext(absl::Now() + kTimeout).get(), attach, &attached));
    name_ = attached.region();
    return status;
  }
  SharedRange Range(uint64_t offset, uint64_t size) const {
    SharedRange range;
    range.set_region(name_);
    range.set_offset(offset);
    range.set_size(size);
    return range;
  }
  PushPullRequest MakePushPull(int64_t clock, const SharedMemory& shared) {
    PushPullRequest request;
    *request.mutable_header()->mutable_push() =
        worker_.MakePush(0, clock, gradient_, 1).header();
    *request.mutable_header()->mutable_pull() =
        worker_.MakePull(0, clock + 1).header();
    request.mutable_header()->mutable_pull()->clear_caller();
    *request.mutable_shared() = shared;
    return request;
  }
  absl::Status PushPull(int64_t clock, const SharedMemory& shared,
                        PullResponse* response) {
    return FromGrpcStatus(
        stub_.PushPull(MakeContext(absl::Now() + kTimeout).get(),
                       MakePushPull(clock, shared), response));
  }
  absl::Status Push(int64_t clock, const SharedMemory& shared) {
    PushRequest request;
    *request.mutable_header() =
        worker_.MakePush(0, clock, gradient_, 1).header();
    *request.mutable_shared() = shared;
    PushResponse response;
    return FromGrpcStatus(stub_.Push(MakeContext(absl::Now() + kTimeout).get(),
                                     request, &response));
  }
  PlainWorker& worker() { return worker_; }
  const Flat& gradient() const { return gradient_; }
  void Disconnect() { connection_ = FileDescriptor(); }

 private:
  PlainWorker worker_;
  ParameterServer::Stub& stub_;
  const Flat gradient_ = Flat(4, 1.0f);
  FileDescriptor connection_;
  uint64_t name_ = 0;
};

PsFixture::Options FourValues(uint32_t workers = 1) {
  PsFixture::Options options;
  options.tensor_sizes = {4};
  options.workers = workers;
  return options;
}

TEST(SharedMemoryPeerTest, HandMadeCallsWork) {
  PsFixture fixture(FourValues());
  HandMade peer(&fixture);
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(8192));
  ASSERT_OK(peer.Register(region->memory()));
  ASSERT_OK(peer.worker().Init({10, 20, 30, 40}));
  const float gradient[] = {1, 2, 3, 4};
  std::memcpy(region->data(), gradient, sizeof(gradient));
  SharedMemory shared;
  *shared.add_payload() = peer.Range(0, 16);
  *shared.mutable_answer() = peer.Range(4096, 64);
  PullResponse response;
  ASSERT_OK(peer.PushPull(0, shared, &response));
  EXPECT_EQ(response.payload(), "");
  ASSERT_EQ(response.shared().payload_size(), 1);
  EXPECT_EQ(response.shared().payload(0).offset(), 4096u);
  EXPECT_EQ(response.shared().payload(0).size(), 16u);
  float values[4];
  std::memcpy(values, region->data() + 4096, sizeof(values));
  EXPECT_THAT(values, ::testing::ElementsAre(9, 18, 27, 36));
}

TEST(SharedMemoryPeerTest, HostileRangesAreRefusedAndChangeNothing) {
  PsFixture fixture(FourValues());
  HandMade peer(&fixture);
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(8192));
  ASSERT_OK(peer.Register(region->memory()));
  ASSERT_OK(peer.worker().Init({10, 20, 30, 40}));
  const auto refused = [&](auto change) {
    SharedMemory shared;
    *shared.add_payload() = peer.Range(0, 16);
    *shared.mutable_answer() = peer.Range(4096, 16);
    change(&shared);
    PullResponse response;
    const absl::Status status = peer.PushPull(0, shared, &response);
    EXPECT_FALSE(status.ok());
    return status.code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  using Shared = SharedMemory;
  EXPECT_EQ(refused([](Shared* s) { s->mutable_payload(0)->set_offset(8177); }),
            kInvalid);
  EXPECT_EQ(
      refused([](Shared* s) { s->mutable_payload(0)->set_offset(~0ull); }),
      kInvalid);
  EXPECT_EQ(refused([](Shared* s) { s->mutable_payload(0)->set_size(~0ull); }),
            kInvalid);
  EXPECT_EQ(refused([](Shared* s) { s->mutable_payload(0)->set_size(12); }),
            kInvalid);
  EXPECT_EQ(refused([](Shared* s) { s->mutable_answer()->set_offset(8192); }),
            kInvalid);
  EXPECT_EQ(refused([](Shared* s) { s->mutable_answer()->set_offset(4097); }),
            kInvalid);
  EXPECT_EQ(refused([](Shared* s) { s->mutable_answer()->set_size(1 << 20); }),
            kInvalid);
  EXPECT_EQ(refused([](Shared* s) { s->mutable_answer()->set_region(1); }),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused([](Shared* s) { s->mutable_payload(0)->set_region(1); }),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(fixture.server(0).OpenJob(fixture.assignment(), 0).code(),
            absl::StatusCode::kAlreadyExists);  // it is still there
  ASSERT_OK_AND_ASSIGN(const Flat values,
                       peer.worker().PushPull(0, {1, 1, 1, 1}, 1));
  EXPECT_THAT(values, ::testing::ElementsAre(9, 19, 29, 39));
}

// A gradient that is checked before it is used: what its sender writes in
// between must not be what is used.
TEST(SharedMemoryPeerTest, WhatIsCheckedIsWhatIsUsed) {
  PsFixture::Options options = FourValues(2);
  options.spec = [](JobSpec* spec) { spec->set_non_finite(DROP_BLOCK); };
  PsFixture fixture(options);
  HandMade peer(&fixture);
  PlainWorker other(&fixture, 1);
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(8192));
  ASSERT_OK(peer.Register(region->memory()));
  ASSERT_OK(peer.worker().Init({10, 20, 30, 40}));
  const float gradient[] = {1, 1, 1, 1};
  std::memcpy(region->data(), gradient, sizeof(gradient));
  SharedMemory shared;
  *shared.add_payload() = peer.Range(0, 16);
  std::thread pushing([&] {
    PullResponse response;
    EXPECT_OK(peer.PushPull(0, shared, &response));
  });
  // It waits for the other worker's.
  EXPECT_TRUE(Eventually(kTimeout, [&] {
    ShardStatus status;
    fixture.stub(0).GetShardStatus(MakeContext(absl::Now() + kTimeout).get(),
                                   ShardStatusRequest(), &status);
    return status.jobs_size() == 1 && status.jobs(0).parked_pulls() == 1;
  }));
  const float another[] = {1000, 1000, 1000, 1000};
  std::memcpy(region->data(), another, sizeof(another));
  ASSERT_OK_AND_ASSIGN(const Flat values, other.PushPull(0, {1, 1, 1, 1}, 1));
  EXPECT_THAT(values, ::testing::ElementsAre(9, 19, 29, 39));
  pushing.join();
}

// Payloads in shared memory fill no window that their sender waits to leave.
TEST(SharedMemoryPeerTest, OnlyWhatTravelledIsSaidToBeTaken) {
  PsFixture fixture(FourValues(2));
  HandMade peer(&fixture);
  PlainWorker other(&fixture, 1);
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(8192));
  ASSERT_OK(peer.Register(region->memory()));
  ASSERT_OK(peer.worker().Init({10, 20, 30, 40}));
  for (const bool shared : {false, true}) {
    const int64_t clock = shared ? 1 : 0;
    SharedMemory memory;
    if (shared) *memory.add_payload() = peer.Range(0, 16);
    PushPullRequest request = peer.MakePushPull(clock, memory);
    if (!shared) {
      request.clear_shared();
      request.set_payload(std::string(16, '\0'));
    }
    grpc::CompletionQueue events;
    const auto context = MakeContext(absl::Now() + kTimeout);
    const auto call =
        fixture.stub(0).AsyncPushPull(context.get(), request, &events);
    int metadata = 0;
    call->ReadInitialMetadata(&metadata);
    ASSERT_TRUE(Eventually(kTimeout, [&] {
      ShardStatus status;
      fixture.stub(0).GetShardStatus(MakeContext(absl::Now() + kTimeout).get(),
                                     ShardStatusRequest(), &status);
      return status.jobs_size() == 1 && status.jobs(0).parked_pulls() == 1;
    }));
    void* tag = nullptr;
    bool ok = false;
    const auto wait = absl::Now() + (shared ? absl::Seconds(1) : kTimeout);
    const auto event = events.AsyncNext(&tag, &ok, absl::ToChronoTime(wait));
    EXPECT_EQ(event, shared ? grpc::CompletionQueue::TIMEOUT
                            : grpc::CompletionQueue::GOT_EVENT);
    ASSERT_OK(other.Push(clock, {0, 0, 0, 0}, 1));
    PullResponse response;
    grpc::Status status;
    call->Finish(&response, &status, &status);
    do {
      ASSERT_TRUE(events.Next(&tag, &ok));
    } while (tag != &status);
    EXPECT_OK(FromGrpcStatus(status));
  }
}

TEST(SharedMemoryPeerTest, AnAnswerThatDoesNotFitTravels) {
  PsFixture fixture(FourValues());
  HandMade peer(&fixture);
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(8192));
  ASSERT_OK(peer.Register(region->memory()));
  ASSERT_OK(peer.worker().Init({10, 20, 30, 40}));
  SharedMemory shared;
  *shared.add_payload() = peer.Range(0, 16);
  *shared.mutable_answer() = peer.Range(4096, 12);
  PullResponse response;
  std::memcpy(region->data(), peer.gradient().data(), 16);
  ASSERT_OK(peer.PushPull(0, shared, &response));
  EXPECT_FALSE(response.has_shared());
  ASSERT_EQ(response.payload().size(), 16u);
  Flat values(4);
  std::memcpy(values.data(), response.payload().data(), 16);
  EXPECT_EQ(values, Flat({9, 19, 29, 39}));
}

TEST(SharedMemoryPeerTest, MemoryWithoutSealsIsRefused) {
  PsFixture fixture(FourValues());
  HandMade peer(&fixture);
  const FileDescriptor memory(memfd_create("syncline-test", MFD_ALLOW_SEALING));
  ASSERT_EQ(posix_fallocate(memory.get(), 0, 8192), 0);
  const absl::Status status = peer.Register(memory);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not sealed"));
  const FileDescriptor file(open("/proc/self/exe", O_RDONLY));
  EXPECT_EQ(peer.Register(file).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SharedMemoryPeerTest, AnAcknowledgedPushNeedsItsMemoryNoMore) {
  PsFixture fixture(FourValues(2));
  HandMade peer(&fixture);
  PlainWorker other(&fixture, 1);
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(8192));
  ASSERT_OK(peer.Register(region->memory()));
  ASSERT_OK(peer.worker().Init({10, 20, 30, 40}));
  const float gradient[] = {2, 4, 6, 8};
  std::memcpy(region->data(), gradient, sizeof(gradient));
  SharedMemory shared;
  *shared.add_payload() = peer.Range(0, 16);
  // Kept until the other worker's has come.
  ASSERT_OK(peer.Push(0, shared));
  std::memset(region->data(), 0x7f, 8192);
  ASSERT_OK_AND_ASSIGN(const Flat values, other.PushPull(0, {0, 0, 0, 0}, 1));
  EXPECT_THAT(values, ::testing::ElementsAre(9, 18, 27, 36));
}

TEST(SharedMemoryPeerTest, TheMemoryOfAWorkerGoesWithIt) {
  MetricsRegistry metrics;
  PsFixture::Options options = FourValues();
  options.metrics = &metrics;
  PsFixture fixture(options);
  const size_t before = MappedRegions();
  {
    Client client(&fixture, 0);
    ASSERT_TRUE(client.AwaitLinks(1));
    // Its gradients, and the region that both map.
    EXPECT_EQ(MappedRegions(), before + 3);
    ASSERT_OK(client.client().Init(0));
    ASSERT_OK(client.Step(0));
  }
  EXPECT_TRUE(Eventually(kTimeout, [&] { return MappedRegions() == before; }));
  EXPECT_TRUE(Eventually(kTimeout, [&] {
    return absl::StrContains(metrics.Render(),
                             "syncline_ps_shared_memory_bytes 0");
  }));
}

TEST(SharedMemoryPeerTest, APsThatForgetsTheMemoryIsSentEverythingAgain) {
  // As after its restart; here it takes the worker for dead.
  PsFixture fixture(FourValues());
  Client client(&fixture, 0);
  ASSERT_TRUE(client.AwaitLinks(1));
  ASSERT_OK(client.client().Init(0));
  const size_t mapped = MappedRegions();
  // Ends the worker's end of the connection behind its back.
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_un peer;
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        peer.sun_family == AF_UNIX && size > sizeof(sa_family_t) &&
        std::memcmp(peer.sun_path + 1, "syncline-", 9) == 0) {
      shutdown(fd, SHUT_RDWR);
    }
  }
  ASSERT_TRUE(
      Eventually(kTimeout, [&] { return MappedRegions() == mapped - 1; }));
  const Values before = client.values();
  ASSERT_OK(client.Step(0));
  EXPECT_NE(client.values(), before);
  EXPECT_EQ(client.fallbacks(worker::SharedFallback::kLost), 1);
  EXPECT_TRUE(client.AwaitLinks(1));  // a new one
}

}  // namespace
}  // namespace syncline
