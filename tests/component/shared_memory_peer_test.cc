// Goal: a peer can neither crash nor fool a ps through shared memory, and
// nothing of it stays behind. Method: a real ps in this process, and hostile
// and careless workers made of the generated client.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <thread>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/rpc/grpc_status.h"
#include "common/system/local_socket.h"
#include "common/system/shared_region.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/component/shared_memory_fixture.h"
#include "tests/testing/eventually.h"
#include "tests/testing/open_files.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

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
        MakeContext(absl::Now() + kPsTimeout).get(), ask, &offer));
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
        MakeContext(absl::Now() + kPsTimeout).get(), attach, &attached));
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
        stub_.PushPull(MakeContext(absl::Now() + kPsTimeout).get(),
                       MakePushPull(clock, shared), response));
  }
  absl::Status Push(int64_t clock, const SharedMemory& shared) {
    PushRequest request;
    *request.mutable_header() =
        worker_.MakePush(0, clock, gradient_, 1).header();
    *request.mutable_shared() = shared;
    PushResponse response;
    return FromGrpcStatus(stub_.Push(
        MakeContext(absl::Now() + kPsTimeout).get(), request, &response));
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
  // The pull waits for the other worker's push.
  EXPECT_TRUE(Eventually(kPsTimeout, [&] {
    ShardStatus status;
    fixture.stub(0).GetShardStatus(MakeContext(absl::Now() + kPsTimeout).get(),
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
    const auto context = MakeContext(absl::Now() + kPsTimeout);
    const auto call =
        fixture.stub(0).AsyncPushPull(context.get(), request, &events);
    int metadata = 0;
    call->ReadInitialMetadata(&metadata);
    ASSERT_TRUE(Eventually(kPsTimeout, [&] {
      ShardStatus status;
      fixture.stub(0).GetShardStatus(
          MakeContext(absl::Now() + kPsTimeout).get(), ShardStatusRequest(),
          &status);
      return status.jobs_size() == 1 && status.jobs(0).parked_pulls() == 1;
    }));
    void* tag = nullptr;
    bool ok = false;
    const auto wait = absl::Now() + (shared ? absl::Seconds(1) : kPsTimeout);
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
    SharingClient client(&fixture, 0);
    ASSERT_TRUE(client.AwaitLinks(1));
    // Its gradients, and the region that both map.
    EXPECT_EQ(MappedRegions(), before + 3);
    ASSERT_OK(client.client().Init(0));
    ASSERT_OK(client.Step(0));
  }
  EXPECT_TRUE(
      Eventually(kPsTimeout, [&] { return MappedRegions() == before; }));
  EXPECT_TRUE(Eventually(kPsTimeout, [&] {
    return absl::StrContains(metrics.Render(),
                             "syncline_ps_shared_memory_bytes 0");
  }));
}

TEST(SharedMemoryPeerTest, APsThatForgetsTheMemoryIsSentEverythingAgain) {
  // As after its restart; here it takes the worker for dead.
  PsFixture fixture(FourValues());
  SharingClient client(&fixture, 0);
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
      Eventually(kPsTimeout, [&] { return MappedRegions() == mapped - 1; }));
  const Values before = client.values();
  ASSERT_OK(client.Step(0));
  EXPECT_NE(client.values(), before);
  EXPECT_EQ(client.fallbacks(worker::SharedFallback::kLost), 1);
  EXPECT_TRUE(client.AwaitLinks(1));  // a new one
}

}  // namespace
}  // namespace syncline
