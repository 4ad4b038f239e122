// Goal: nothing that a peer says of shared memory is believed: who it is, what
// it hands over, where payloads and answers are; and nothing stays behind when
// it has gone.
// Method: the peer's side by hand, honest and hostile.

#include "server/memory/shared_regions.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <limits>
#include <thread>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using Access = SharedRegion::Access;
using testing::HasSubstr;

constexpr size_t kBytes = 64 << 10;
const absl::Time kStart = absl::FromUnixSeconds(1000);

std::string Detail(const absl::Status& status) {
  const auto detail = status.GetPayload(kSharedMemoryDetail);
  return detail.has_value() ? std::string(*detail) : "";
}

class SharedRegionsTest : public testing::Test {
 protected:
  SharedRegionsTest()
      : regions_({.bytes_max = 3 * kBytes, .boot_id = "here"}) {}

  // Hands memory over as a worker does; returns the region's name.
  absl::StatusOr<uint64_t> HandOver(const FileDescriptor& memory,
                                    Access access = Access::kReadWrite) {
    const auto offer = regions_.MakeOffer("here", kStart);
    if (!offer.ok()) return offer.status();
    auto connection = SendDescriptor(offer->socket, offer->token, memory);
    if (!connection.ok()) return connection.status();
    connection_ = *std::move(connection);
    return regions_.Attach(offer->token, access, kStart);
  }

  void HandOverRegion(Access access = Access::kReadWrite) {
    ASSERT_OK_AND_ASSIGN(region_, SharedRegion::Create(kBytes));
    ASSERT_OK_AND_ASSIGN(name_, HandOver(region_->memory(), access));
  }

  SharedRange Range(uint64_t offset, uint64_t size) const {
    SharedRange range;
    range.set_region(name_);
    range.set_offset(offset);
    range.set_size(size);
    return range;
  }
  absl::StatusOr<PayloadView> Payload(const SharedRange& range) const {
    SharedMemory shared;
    *shared.add_payload() = range;
    return regions_.Payload(shared);
  }

  SharedRegions regions_;
  std::shared_ptr<SharedRegion> region_;
  uint64_t name_ = 0;
  FileDescriptor connection_;
};

TEST_F(SharedRegionsTest, PayloadsAreReadAndAnswersWrittenInPlace) {
  HandOverRegion();
  EXPECT_EQ(regions_.mapped_bytes(), kBytes);
  std::memcpy(region_->data() + 100, "abcdef", 6);
  SharedMemory shared;
  *shared.add_payload() = Range(103, 3);
  *shared.add_payload() = Range(100, 2);
  ASSERT_OK_AND_ASSIGN(const PayloadView view, regions_.Payload(shared));
  char text[6] = {};
  ASSERT_EQ(view.size_bytes(), 5u);
  view.CopyTo(0, 5, text);
  EXPECT_STREQ(text, "defab");

  ASSERT_OK_AND_ASSIGN(const AnswerArea answer,
                       regions_.Answer(Range(128, 64)));
  EXPECT_EQ(answer.bytes, 64u);
  answer.data[15] = 2.5f;
  float value = 0;
  std::memcpy(&value, region_->data() + 128 + 60, sizeof(value));
  EXPECT_EQ(value, 2.5f);
}

TEST_F(SharedRegionsTest, OnlyThisHostIsOfferedAnything) {
  EXPECT_EQ(Detail(regions_.MakeOffer("elsewhere", kStart).status()),
            "other_host");
  EXPECT_EQ(Detail(regions_.MakeOffer("", kStart).status()), "other_host");
  SharedRegions unknown({.boot_id = ""});
  EXPECT_EQ(Detail(unknown.MakeOffer("", kStart).status()), "other_host");
  SharedRegions off({.enabled = false, .boot_id = "here"});
  EXPECT_EQ(Detail(off.MakeOffer("here", kStart).status()), "off");
}

TEST_F(SharedRegionsTest, ATokenIsGoodOnceAndForAMinute) {
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(kBytes));
  ASSERT_OK_AND_ASSIGN(const auto offer, regions_.MakeOffer("here", kStart));
  EXPECT_EQ(regions_.Attach(offer.token, Access::kRead, kStart).status().code(),
            absl::StatusCode::kNotFound);
  // Guessed.
  ASSERT_OK_AND_ASSIGN(
      auto stranger,
      SendDescriptor(offer.socket, std::string(32, '0'), region->memory()));
  EXPECT_EQ(regions_.Attach(std::string(32, '0'), Access::kRead, kStart)
                .status()
                .code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(IsClosedByPeer(connection_) || !IsClosedByPeer(stranger));
  // Too late.
  regions_.Tick(kStart + absl::Minutes(2));
  ASSERT_OK(SendDescriptor(offer.socket, offer.token, region->memory()));
  EXPECT_EQ(regions_.Attach(offer.token, Access::kRead, kStart).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(SharedRegionsTest, MemoryThatCouldShrinkIsRefused) {
  const FileDescriptor unsealed(memfd_create("t", MFD_ALLOW_SEALING));
  ASSERT_EQ(posix_fallocate(unsealed.get(), 0, kBytes), 0);
  const absl::Status refused = HandOver(unsealed).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("not sealed"));
  EXPECT_EQ(regions_.mapped_bytes(), 0u);
}

TEST_F(SharedRegionsTest, BytesInAllAreBounded) {
  std::vector<FileDescriptor> connections;
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(kBytes));
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(HandOver(region->memory()));
    connections.push_back(std::move(connection_));
  }
  EXPECT_EQ(HandOver(region->memory()).status().code(),
            absl::StatusCode::kResourceExhausted);
  connections.pop_back();
  regions_.Tick(kStart);
  EXPECT_OK(HandOver(region->memory()));
}

// A region that is refused takes nothing.
TEST_F(SharedRegionsTest, WhatCannotBeMappedIsNotCounted) {
  const FileDescriptor sparse(memfd_create("t", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(sparse.get(), kBytes), 0);
  ASSERT_EQ(fcntl(sparse.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_THAT(std::string(HandOver(sparse).status().message()),
              HasSubstr("not all there"));
  EXPECT_EQ(regions_.mapped_bytes(), 0u);
}

TEST_F(SharedRegionsTest, TheirNumberIsBounded) {
  SharedRegions few({.regions_max = 2, .boot_id = "here"});
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(kBytes));
  ASSERT_OK_AND_ASSIGN(const auto offer, few.MakeOffer("here", kStart));
  ASSERT_OK(few.MakeOffer("here", kStart).status());
  const auto is_full = [&] {
    return absl::IsResourceExhausted(few.MakeOffer("here", kStart).status());
  };
  EXPECT_TRUE(is_full());
  ASSERT_OK_AND_ASSIGN(
      auto connection,
      SendDescriptor(offer.socket, offer.token, region->memory()));
  few.Tick(kStart);
  EXPECT_TRUE(is_full()) << "it has arrived";
  ASSERT_OK(few.Attach(offer.token, Access::kReadWrite, kStart).status());
  EXPECT_TRUE(is_full()) << "it is mapped";
  connection = FileDescriptor();
  few.Tick(kStart);
  EXPECT_FALSE(is_full());
}

// Connects only, as SendDescriptor does first.
FileDescriptor Connect(const std::string& name) {
  FileDescriptor socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(
      connect(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  return socket_fd;
}

void Send(const FileDescriptor& socket_fd, const std::string& text,
          const FileDescriptor& memory) {
  iovec bytes = {const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = memory.get();
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  ASSERT_GT(sendmsg(socket_fd.get(), &message, MSG_NOSIGNAL), 0);
}

// Another client's call may look between connecting and sending.
TEST_F(SharedRegionsTest, AConnectionMayBeSeenBeforeWhatComesOverIt) {
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(kBytes));
  ASSERT_OK_AND_ASSIGN(const auto offer, regions_.MakeOffer("here", kStart));
  const FileDescriptor connection = Connect(offer.socket);
  regions_.Tick(kStart);
  Send(connection, offer.token, region->memory());
  EXPECT_OK(regions_.Attach(offer.token, Access::kRead, kStart).status());
}

TEST_F(SharedRegionsTest, AConnectionThatStaysSilentGoes) {
  ASSERT_OK_AND_ASSIGN(const auto offer, regions_.MakeOffer("here", kStart));
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(Connect(offer.socket));
  regions_.Tick(kStart);
  EXPECT_TRUE(IsClosedByPeer(silent.front())) << "too many";
  EXPECT_FALSE(IsClosedByPeer(silent.back()));
  regions_.Tick(kStart + absl::Seconds(11));
  EXPECT_TRUE(IsClosedByPeer(silent.back())) << "too long";
}

// Mapping takes milliseconds for each 100 MiB, and others' calls need the lock.
TEST_F(SharedRegionsTest, OthersGoOnWhileARegionIsMapped) {
  constexpr size_t kMany = 128 << 20;
  SharedRegions regions({.bytes_max = 8 * kMany, .boot_id = "here"});
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(kMany));
  bool seen = false;
  for (int attempt = 0; attempt < 50 && !seen; ++attempt) {
    ASSERT_OK_AND_ASSIGN(const auto offer, regions.MakeOffer("here", kStart));
    ASSERT_OK_AND_ASSIGN(
        auto connection,
        SendDescriptor(offer.socket, offer.token, region->memory()));
    std::atomic<bool> attached = false;
    std::thread attaching([&] {
      EXPECT_OK(
          regions.Attach(offer.token, Access::kReadWrite, kStart).status());
      attached = true;
    });
    // Reserved, and not attached yet.
    while (!attached && !seen) {
      seen = regions.mapped_bytes() > 0 && !attached;
    }
    attaching.join();
    connection = FileDescriptor();
    regions.Tick(kStart);
    ASSERT_EQ(regions.mapped_bytes(), 0u);
  }
  EXPECT_TRUE(seen);
}

TEST_F(SharedRegionsTest, ARegionGoesWithItsWorkerAndNotBeforeItsCalls) {
  HandOverRegion();
  region_->data()[7] = 42;
  ASSERT_OK_AND_ASSIGN(const PayloadView view, Payload(Range(0, 8)));
  regions_.Tick(kStart);
  EXPECT_EQ(regions_.mapped_bytes(), kBytes);
  connection_ = FileDescriptor();
  region_.reset();
  regions_.Tick(kStart);
  EXPECT_EQ(regions_.mapped_bytes(), 0u);
  EXPECT_EQ(Detail(Payload(Range(0, 8)).status()), "unknown");
  uint8_t byte = 0;
  view.CopyTo(7, 1, &byte);
  EXPECT_EQ(byte, 42);
}

TEST_F(SharedRegionsTest, RefusesWhatLiesOutside) {
  HandOverRegion();
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const SharedRange hostile[] = {Range(0, 0),         Range(0, kBytes + 1),
                                 Range(kBytes, 1),    Range(kBytes + 1, 1),
                                 Range(kMost, 1),     Range(1, kMost),
                                 Range(kMost, kMost), Range(64, kMost - 63)};
  for (const SharedRange& range : hostile) {
    EXPECT_EQ(Payload(range).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(regions_.Answer(range).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_OK(Payload(Range(kBytes - 1, 1)));
  EXPECT_OK(Payload(Range(0, kBytes)));
  SharedRange unknown = Range(0, 1);
  unknown.set_region(name_ + 1);
  EXPECT_EQ(Detail(Payload(unknown).status()), "unknown");
  EXPECT_EQ(Detail(regions_.Answer(unknown).status()), "unknown");
}

TEST_F(SharedRegionsTest, RefusesMoreThanAMessageMayHave) {
  HandOverRegion();
  SharedMemory shared;
  for (size_t i = 0; i * kBytes <= kChunkBytesMax; ++i) {
    *shared.add_payload() = Range(0, kBytes);
  }
  EXPECT_EQ(regions_.Payload(shared).status().code(),
            absl::StatusCode::kInvalidArgument);
  shared.mutable_payload()->RemoveLast();
  EXPECT_OK(regions_.Payload(shared));
  shared.clear_payload();
  for (int i = 0; i < 1025; ++i) *shared.add_payload() = Range(0, 1);
  EXPECT_EQ(regions_.Payload(shared).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SharedRegionsTest, AnswersNeedAPlaceThatMayBeWritten) {
  HandOverRegion(Access::kRead);
  EXPECT_OK(Payload(Range(0, 64)));
  EXPECT_THAT(std::string(regions_.Answer(Range(0, 64)).status().message()),
              HasSubstr("read only"));
  HandOverRegion();
  EXPECT_THAT(std::string(regions_.Answer(Range(4, 64)).status().message()),
              HasSubstr("not a multiple of 64"));
}

TEST_F(SharedRegionsTest, WhateverRangeIsAcceptedLiesWithin) {
  HandOverRegion();
  Random random(1);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    // Of all magnitudes.
    const uint64_t offset = random.Next() >> random.Below(64);
    const uint64_t size = random.Next() >> random.Below(64);
    const auto answer = regions_.Answer(Range(offset, size));
    if (!answer.ok()) continue;
    ++accepted;
    ASSERT_LE(size, kBytes);
    ASSERT_LE(offset, kBytes - size);
    ASSERT_EQ(answer->bytes, size);
    ASSERT_TRUE(answer->owner->Contains(answer->data, answer->bytes));
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace syncline::ps
