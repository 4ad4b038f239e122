// Groups of ranks as threads of this process, over real sockets and shared
// memory: messages in any order, what meets the port, and how a group ends.

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "worker/collectives/collectives.h"
#include "worker/collectives/peer_hello.h"
#include "worker/collectives/peer_meeting.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kKind = PeerTag::kFirstFreeKind;

absl::Time Soon(double seconds = 60) {
  return MonotonicNow() + absl::Seconds(seconds);
}

// How ranks reach each other.
enum class Way { kTcp, kTls, kSharedMemory };

PeerMeeting::Options OptionsOf(uint32_t rank, uint32_t ranks, bool shared,
                               uint64_t epoch = 1) {
  PeerMeeting::Options options;
  options.group.job = "j-0001";
  options.group.epoch = epoch;
  options.group.rank = rank;
  options.shared_memory = shared;
  options.transport.spin = absl::Microseconds(10);
  for (uint32_t r = 0; r < ranks; ++r) {
    options.group.peers.push_back(
        {absl::StrCat("worker:", r), absl::StrCat("127.0.0.1:", 1000 + r)});
  }
  return options;
}

using Group = std::vector<std::unique_ptr<StreamTransport>>;

// `shared`, by rank: whether it offers memory.
Group Connect(const std::vector<bool>& shared, bool encrypts = false) {
  const auto n = static_cast<uint32_t>(shared.size());
  std::vector<std::unique_ptr<PeerMeeting>> meetings;
  for (uint32_t r = 0; r < n; ++r) {
    PeerMeeting::Options options = OptionsOf(r, n, shared[r]);
    options.encrypts = encrypts;
    auto meeting = PeerMeeting::Create(options);
    EXPECT_TRUE(meeting.ok()) << meeting.status();
    meetings.push_back(*std::move(meeting));
  }
  Group group(n);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < n; ++r) {
    for (uint32_t higher = r + 1; higher < n; ++higher) {
      EXPECT_TRUE(meetings[higher]
                      ->OnInvitation(r, meetings[r]->InvitationFor(higher))
                      .ok());
      const auto status = meetings[r]->Connect(
          higher, "127.0.0.1", meetings[higher]->InvitationFor(r), Soon());
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  for (uint32_t r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      auto transport = meetings[r]->Finish(Soon());
      EXPECT_TRUE(transport.ok()) << transport.status();
      if (transport.ok()) group[r] = *std::move(transport);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return group;
}

Group Connect(uint32_t n, Way way) {
  return Connect(std::vector<bool>(n, way == Way::kSharedMemory),
                 way == Way::kTls);
}

// Waits for callbacks, without moving messages itself or with.
struct Waiter {
  std::atomic<int> left = 0;
  absl::Status first_error;  // of the callbacks, which come one at a time
  PeerTransport::Done Done() {
    ++left;
    return [this](absl::Status status) {
      if (!status.ok() && first_error.ok()) first_error = status;
      --left;
    };
  }
  absl::Status Wait(PeerTransport* transport) {
    EXPECT_TRUE(transport->Await([this] { return left == 0; }, Soon()));
    return first_error;
  }
};

class PeerTransportTest : public ::testing::TestWithParam<Way> {};

const char* KindOf(Way way) {
  return way == Way::kTcp ? "tcp" : way == Way::kTls ? "tls" : "shared memory";
}

INSTANTIATE_TEST_SUITE_P(Ways, PeerTransportTest,
                         ::testing::Values(Way::kTcp, Way::kTls,
                                           Way::kSharedMemory),
                         [](const auto& info) {
                           return info.param == Way::kTcp   ? "Tcp"
                                  : info.param == Way::kTls ? "Tls"
                                                            : "SharedMemory";
                         });

TEST_P(PeerTransportTest, EachRankHasItsWay) {
  const Group group = Connect(3, GetParam());
  EXPECT_EQ(group[0]->kind_of(2), KindOf(GetParam()));
  EXPECT_EQ(group[2]->kind_of(1), KindOf(GetParam()));
}

TEST(PeerTransportTest, ARankThatSharesNoMemoryIsReachedByTcp) {
  const Group group = Connect({true, false, true});
  EXPECT_EQ(group[0]->kind_of(1), "tcp");
  EXPECT_EQ(group[0]->kind_of(2), "shared memory");
}

// Every message posted in a random order at both sides, of sizes around all
// the limits, as one memory or in pieces.
TEST_P(PeerTransportTest, MessagesInAnyOrderArrive) {
  constexpr uint32_t kRanks = 3;
  constexpr uint32_t kMessages = 60;
  Group group = Connect(kRanks, GetParam());
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      Random random(r + 1);
      struct Message {
        bool is_send;
        uint32_t peer;
        uint32_t item;
        std::vector<uint8_t> bytes;
      };
      std::vector<Message> messages;
      const auto size_of = [](uint32_t from, uint32_t to, uint32_t item) {
        Random sizes(SeedFor(SeedFor(from, to), item));
        constexpr size_t kSizes[] = {0,    1,     63,     64,      65,
                                     8192, 8193,  262144, 262145,  300001,
                                     100,  70000, 524288, 1000003, 4};
        return kSizes[sizes.Below(std::size(kSizes))];
      };
      const auto byte_at = [](uint32_t from, uint32_t item, size_t i) {
        return static_cast<uint8_t>(Mix64(from * 1000 + item) + i * 7);
      };
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        if (peer == r) continue;
        for (uint32_t item = 0; item < kMessages; ++item) {
          Message out = {true, peer, item, {}};
          out.bytes.resize(size_of(r, peer, item));
          for (size_t i = 0; i < out.bytes.size(); ++i) {
            out.bytes[i] = byte_at(r, item, i);
          }
          messages.push_back(std::move(out));
          Message in = {false, peer, item, {}};
          in.bytes.resize(size_of(peer, r, item));
          messages.push_back(std::move(in));
        }
      }
      std::shuffle(messages.begin(), messages.end(), random);
      Waiter waiter;
      for (Message& message : messages) {
        const PeerTag tag = {5, kKind, message.item};
        if (message.is_send) {
          const size_t cut = random.Below(message.bytes.size() + 1);
          const ConstPeerMemory pieces[] = {
              {message.bytes.data(), cut},
              {message.bytes.data() + cut, message.bytes.size() - cut}};
          group[r]->Send(message.peer, tag, pieces, Soon(), waiter.Done());
        } else if (message.item % 3 == 0) {
          auto* const into = &message.bytes;
          group[r]->ReceivePieces(
              message.peer, tag, into->size(), Soon(),
              [into](size_t offset, absl::Span<const uint8_t> bytes) {
                ASSERT_EQ(offset % 64, 0u);
                std::copy(bytes.begin(), bytes.end(), into->begin() + offset);
              },
              waiter.Done());
        } else {
          group[r]->Receive(message.peer, tag,
                            {message.bytes.data(), message.bytes.size()},
                            Soon(), waiter.Done());
        }
      }
      // One rank leaves the work to the transport's own thread.
      if (r == 2) {
        EXPECT_TRUE(
            Eventually(absl::Seconds(60), [&] { return waiter.left == 0; }));
      }
      const absl::Status status = waiter.Wait(group[r].get());
      ASSERT_TRUE(status.ok()) << status;
      for (const Message& message : messages) {
        if (message.is_send) continue;
        for (size_t i = 0; i < message.bytes.size(); ++i) {
          ASSERT_EQ(message.bytes[i], byte_at(message.peer, message.item, i))
              << "of rank " << message.peer << " item " << message.item;
        }
      }
      const PeerTransport::Counters counters = group[r]->counters();
      EXPECT_EQ(counters.messages_sent, kMessages * (kRanks - 1));
      EXPECT_EQ(counters.messages_received, kMessages * (kRanks - 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(PeerTransportTest, AllReduceHasTheBitsOfTheRankOrder) {
  constexpr uint32_t kRanks = 4;
  Group group = Connect(kRanks, GetParam());
  for (const size_t count : {1, 1000, 300'000}) {
    std::vector<std::vector<float>> values(kRanks);
    for (uint32_t r = 0; r < kRanks; ++r) {
      Random random(r);
      for (size_t i = 0; i < count; ++i) {
        values[r].push_back(static_cast<float>(random.Uniform() - 0.5));
      }
    }
    std::vector<float> sum = values[0];
    for (uint32_t r = 1; r < kRanks; ++r) {
      for (size_t i = 0; i < count; ++i) sum[i] += values[r][i];
    }
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        Collectives collectives(group[r].get(), {});
        const absl::Status status = collectives.Run(
            {CollectiveKind::kAllReduce, static_cast<int64_t>(count), 0,
             absl::MakeSpan(values[r]), Soon()});
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t r = 0; r < kRanks; ++r) EXPECT_TRUE(values[r] == sum);
  }
}

// A short vector is swapped, so that no message is open with the rank that has
// left.
TEST_P(PeerTransportTest, ASwapWithARankThatHasLeftEndsAndNamesIt) {
  Group group = Connect(3, GetParam());
  group[2].reset();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      std::vector<float> values(4, 1);
      Collectives collectives(group[r].get(), {});
      const absl::Status status = collectives.Run(
          {CollectiveKind::kAllReduce, 12, 3, absl::MakeSpan(values)});
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(
          std::string(status.message()),
          AllOf(HasSubstr("rank 2 (worker:2 at 127.0.0.1:1002)"),
                HasSubstr("has left"), HasSubstr("bucket 3 at clock 12")));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(PeerTransportTest, ASwapThatARankDoesNotComeToEndsInTime) {
  Group group = Connect(2, GetParam());
  std::vector<float> values(4, 1);
  Collectives collectives(group[0].get(), {});
  const absl::Status status = collectives.Run(
      {CollectiveKind::kAllReduce, 12, 3, absl::MakeSpan(values), Soon(0.2)});
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank 1 (worker:1 at 127.0.0.1:1001)"),
                    HasSubstr("bucket 3 at clock 12")));
  uint8_t byte = 0;
  uint8_t* const theirs[] = {nullptr, &byte};
  EXPECT_EQ(
      group[0]
          ->SwapAll({1, kKind, 0}, {&byte, 1}, theirs, absl::InfiniteFuture())
          .code(),
      absl::StatusCode::kInvalidArgument);
}

TEST_P(PeerTransportTest, AllRanksMeasureTheSameModel) {
  Group group = Connect(3, GetParam());
  std::vector<CollectiveModel> models(3);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      auto model = MeasureModel(group[r].get(), Soon());
      ASSERT_TRUE(model.ok()) << model.status();
      models[r] = *model;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(models[0].alpha_seconds, 0);
  EXPECT_EQ(models[0].ToText(), models[1].ToText());
  EXPECT_EQ(models[0].ToText(), models[2].ToText());
}

TEST_P(PeerTransportTest, SizesThatDifferAreBothNamed) {
  Group group = Connect(2, GetParam());
  std::vector<uint8_t> out(20'000);
  std::vector<uint8_t> in(10'000);
  Waiter sent;
  Waiter received;
  const ConstPeerMemory piece = {out.data(), out.size()};
  group[0]->Send(1, {1, kKind, 0}, {&piece, 1}, Soon(), sent.Done());
  group[1]->Receive(0, {1, kKind, 0}, {in.data(), in.size()}, Soon(),
                    received.Done());
  const absl::Status at_sender = sent.Wait(group[0].get());
  EXPECT_EQ(at_sender.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(at_sender.message()), HasSubstr("20000"));
  EXPECT_THAT(std::string(at_sender.message()), HasSubstr("10000"));
  EXPECT_THAT(std::string(at_sender.message()), HasSubstr("clock 1"));
  // The other side hears why.
  EXPECT_THAT(std::string(received.Wait(group[1].get()).message()),
              HasSubstr("10000"));
}

TEST_P(PeerTransportTest, ARankThatDoesNotComeIsNamedWithItsAddress) {
  Group group = Connect(3, GetParam());
  std::vector<uint8_t> in(100);
  Waiter waiter;
  group[0]->Receive(2, {12, kKind, 3}, {in.data(), in.size()}, Soon(0.2),
                    waiter.Done());
  const absl::Status status = waiter.Wait(group[0].get());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 2 (worker:2 at 127.0.0.1:1002)"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("clock 12, kind 64, item 3"));
  EXPECT_EQ(group[0]->status(), status);
  // The group has ended for the others, too, and they hear why.
  Waiter other;
  group[1]->Receive(2, {12, kKind, 3}, {in.data(), in.size()}, Soon(),
                    other.Done());
  EXPECT_THAT(
      std::string(other.Wait(group[1].get()).message()),
      HasSubstr("rank 0 (worker:0 at 127.0.0.1:1000) has left: rank 2"));
}

TEST_P(PeerTransportTest, CancelEndsWhatWaitsAndWhatComes) {
  Group group = Connect(2, GetParam());
  std::vector<uint8_t> in(100'000);
  Waiter waiter;
  group[0]->Receive(1, {1, kKind, 0}, {in.data(), in.size()}, Soon(),
                    waiter.Done());
  std::thread canceller(
      [&] { group[0]->Cancel(absl::CancelledError("the job has ended")); });
  EXPECT_EQ(waiter.Wait(group[0].get()).message(), "the job has ended");
  canceller.join();
  Waiter later;
  const ConstPeerMemory piece = {in.data(), in.size()};
  group[0]->Send(1, {1, kKind, 1}, {&piece, 1}, Soon(), later.Done());
  EXPECT_EQ(later.Wait(group[0].get()).message(), "the job has ended");
}

TEST_P(PeerTransportTest, ARankThatIsDoneEndsNobodysOtherMessages) {
  Group group = Connect(3, GetParam());
  std::vector<uint8_t> out(50'000, 7);
  std::vector<uint8_t> in(50'000);
  const ConstPeerMemory piece = {out.data(), out.size()};
  Waiter first;
  Waiter second;
  group[0]->Send(1, {1, kKind, 0}, {&piece, 1}, Soon(), first.Done());
  group[1]->Receive(0, {1, kKind, 0}, {in.data(), in.size()}, Soon(),
                    second.Done());
  std::thread driver([&] { EXPECT_TRUE(first.Wait(group[0].get()).ok()); });
  EXPECT_TRUE(second.Wait(group[1].get()).ok());
  driver.join();
  group[0].reset();
  Waiter third;
  Waiter fourth;
  group[1]->Send(2, {2, kKind, 0}, {&piece, 1}, Soon(), third.Done());
  group[2]->Receive(1, {2, kKind, 0}, {in.data(), in.size()}, Soon(),
                    fourth.Done());
  std::thread other([&] { EXPECT_TRUE(third.Wait(group[1].get()).ok()); });
  const absl::Status status = fourth.Wait(group[2].get());
  EXPECT_TRUE(status.ok()) << status;
  other.join();
  // But a message with the one that has left fails, and names it.
  Waiter fifth;
  group[1]->Receive(0, {3, kKind, 0}, {in.data(), in.size()}, Soon(),
                    fifth.Done());
  const absl::Status gone = fifth.Wait(group[1].get());
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("rank 0 (worker:0"));
}

TEST_P(PeerTransportTest, MessagesThatCannotBeAreRefusedByName) {
  const auto error_of = [&](auto post) {
    Group group = Connect(2, GetParam());
    Waiter waiter;
    post(group[0].get(), &waiter);
    return waiter.Wait(group[0].get());
  };
  std::vector<uint8_t> bytes(100'000);
  const ConstPeerMemory piece = {bytes.data(), bytes.size()};
  EXPECT_EQ(error_of([&](PeerTransport* t, Waiter* w) {
              t->Send(2, {1, kKind, 0}, {&piece, 1}, Soon(), w->Done());
            }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      error_of([&](PeerTransport* t, Waiter* w) {
        t->Receive(0, {1, kKind, 0}, {bytes.data(), 1}, Soon(), w->Done());
      }).code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error_of([&](PeerTransport* t, Waiter* w) {
              t->Send(1, {1, kKind, 0}, {&piece, 1}, Soon(), w->Done());
              t->Send(1, {1, kKind, 0}, {&piece, 1}, Soon(), w->Done());
            }).code(),
            absl::StatusCode::kInvalidArgument);
  ConstPeerMemory device = piece;
  device.device = 0;
  EXPECT_EQ(error_of([&](PeerTransport* t, Waiter* w) {
              t->Send(1, {1, kKind, 0}, {&device, 1}, Soon(), w->Done());
            }).code(),
            absl::StatusCode::kUnimplemented);
}

// --- What meets the port ---

int ConnectTo(uint32_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  return fd;
}

TEST(PeerPortTest, StrangersAreClosedAndTheGroupFormsAllTheSame) {
  auto zero = PeerMeeting::Create(OptionsOf(0, 2, false));
  auto one = PeerMeeting::Create(OptionsOf(1, 2, false));
  ASSERT_TRUE(zero.ok() && one.ok());
  const PeerInvitation invitation = (*one)->InvitationFor(0);
  PeerHello right = {1, 0, invitation.token};
  PeerHello epoch = right;
  epoch.epoch = 2;
  PeerHello rank = right;
  rank.from = 1;
  PeerHello token = right;
  token.token[3] = static_cast<char>(token.token[3] ^ 1);
  std::string zeros = EncodeHello(right);
  zeros[60] = 1;
  Random random(1);
  std::string garbage(1 << 20, 'x');
  for (char& c : garbage) c = static_cast<char>(random.Next());
  std::vector<int> strangers;
  for (const std::string& bytes :
       {EncodeHello(epoch), EncodeHello(rank), EncodeHello(token), zeros,
        garbage, std::string("GET / HTTP/1.1\r\n\r\n"), std::string()}) {
    const int fd = ConnectTo((*one)->port());
    strangers.push_back(fd);
    send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  std::thread higher([&] {
    auto transport = (*one)->Finish(Soon());
    EXPECT_TRUE(transport.ok()) << transport.status();
    if (!transport.ok()) return;
    std::vector<uint8_t> in(1000);
    Waiter waiter;
    (*transport)
        ->Receive(0, {1, kKind, 0}, {in.data(), in.size()}, Soon(),
                  waiter.Done());
    EXPECT_TRUE(waiter.Wait(transport->get()).ok());
    EXPECT_EQ(in[999], 9);
  });
  ASSERT_TRUE((*zero)->Connect(1, "127.0.0.1", invitation, Soon()).ok());
  auto transport = (*zero)->Finish(Soon());
  ASSERT_TRUE(transport.ok()) << transport.status();
  const std::vector<uint8_t> out(1000, 9);
  const ConstPeerMemory piece = {out.data(), out.size()};
  Waiter waiter;
  (*transport)->Send(1, {1, kKind, 0}, {&piece, 1}, Soon(), waiter.Done());
  EXPECT_TRUE(waiter.Wait(transport->get()).ok());
  higher.join();
  one->reset();
  for (const int fd : strangers) {
    char byte;
    EXPECT_LE(recv(fd, &byte, 1, 0), 0) << "a stranger was answered";
    close(fd);
  }
}

TEST(PeerPortTest, ATokenIsGoodForOneConnection) {
  auto one = PeerMeeting::Create(OptionsOf(1, 2, false));
  ASSERT_TRUE(one.ok());
  const std::string hello = EncodeHello({1, 0, (*one)->InvitationFor(0).token});
  const int first = ConnectTo((*one)->port());
  const int second = ConnectTo((*one)->port());
  for (const int fd : {first, second}) {
    ASSERT_EQ(send(fd, hello.data(), hello.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(hello.size()));
  }
  auto transport = (*one)->Finish(Soon());
  ASSERT_TRUE(transport.ok()) << transport.status();
  one->reset();
  char byte;
  EXPECT_LE(recv(second, &byte, 1, 0), 0);
  // The bytes of the first one behind its hello must be frames of the epoch.
  FrameHeader frame;
  frame.type = FrameHeader::Type::kReady;
  frame.epoch = 9;
  std::vector<uint8_t> bytes(kFrameHeaderBytes);
  EncodeFrameHeader(frame, bytes.data());
  send(first, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  std::vector<uint8_t> in(10);
  Waiter waiter;
  (*transport)
      ->Receive(0, {1, kKind, 0}, {in.data(), in.size()}, Soon(),
                waiter.Done());
  EXPECT_EQ(waiter.Wait(transport->get()).code(), absl::StatusCode::kAborted);
  close(first);
  close(second);
}

// A host that answers nothing: a queue of connections that is full.
TEST(PeerPortTest, AStopIsHeardWhileAConnectionIsMade) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener, at, size), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  ASSERT_EQ(getsockname(listener, at, &size), 0);
  std::vector<int> queued;
  for (bool full = false; !full && queued.size() < 10;) {
    queued.push_back(
        socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    (void)connect(queued.back(), at, size);  // under way, or made
    pollfd wait = {queued.back(), POLLOUT, 0};
    full = poll(&wait, 1, 200) == 0;
  }
  auto zero = PeerMeeting::Create(OptionsOf(0, 2, false));
  auto one = PeerMeeting::Create(OptionsOf(1, 2, false));
  ASSERT_TRUE(zero.ok() && one.ok());
  PeerInvitation invitation = (*one)->InvitationFor(0);
  invitation.port = ntohs(address.sin_port);
  int asked = 0;
  EXPECT_EQ((*zero)->Connect(1, "127.0.0.1", invitation, Soon(20),
                             [&] {
                               return ++asked < 3
                                          ? absl::OkStatus()
                                          : absl::CancelledError("stop");
                             }),
            absl::CancelledError("stop"));
  for (const int fd : queued) close(fd);
  close(listener);
}

// In a cluster with TLS memory of a host is shared all the same.
TEST(PeerPortTest, WithTlsOtherHostsAreReachedByIt) {
  const Group group = Connect({true, false, true}, /*encrypts=*/true);
  EXPECT_EQ(group[0]->kind_of(1), "tls");
  EXPECT_EQ(group[1]->kind_of(2), "tls");
  EXPECT_EQ(group[0]->kind_of(2), "shared memory");
}

// A stranger on the way can see a hello and repeat it: the stranger is not met,
// and the rank whose hello it was still is.
TEST(PeerPortTest, ARepeatedHelloKeepsNobodyOut) {
  PeerMeeting::Options options[] = {OptionsOf(0, 2, false),
                                    OptionsOf(1, 2, false)};
  for (auto& of : options) of.encrypts = true;
  auto zero = PeerMeeting::Create(options[0]);
  auto one = PeerMeeting::Create(options[1]);
  ASSERT_TRUE(zero.ok() && one.ok());
  const PeerInvitation invitation = (*one)->InvitationFor(0);
  const std::string hello =
      EncodeHello({1, 0, TokenProof(invitation.token, 1, 0)});
  const int first = ConnectTo((*one)->port());
  ASSERT_EQ(send(first, hello.data(), hello.size(), 0),
            static_cast<ssize_t>(hello.size()));
  EXPECT_TRUE((*one)->OnInvitation(0, (*zero)->InvitationFor(1)).ok());
  absl::Status higher;
  std::thread thread([&] { higher = (*one)->Finish(Soon()).status(); });
  absl::SleepFor(absl::Milliseconds(200));  // the stranger is heard first
  EXPECT_TRUE((*zero)->Connect(1, "127.0.0.1", invitation, Soon()).ok());
  EXPECT_EQ((*zero)->Finish(Soon()).status(), absl::OkStatus());
  thread.join();
  EXPECT_EQ(higher, absl::OkStatus());
  close(first);
}

TEST(PeerPortTest, AGroupThatDoesNotFormNamesWhoIsMissing) {
  auto one = PeerMeeting::Create(OptionsOf(1, 3, true));
  ASSERT_TRUE(one.ok());
  const auto transport = (*one)->Finish(Soon(0.1));
  EXPECT_EQ(transport.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(transport.status().message()),
              HasSubstr("rank 0 (worker:0 at 127.0.0.1:1000), rank 2"));
}

}  // namespace
}  // namespace syncline::worker
