// Goal: an encrypted connection between two ranks carries what a plain one
// does, shows nothing of it, and is made with nobody who has another key.
// Method: two streams over a wire of this test, which keeps what it carries and
// can change a byte of it; strangers who speak TLS, or do not.

#include "worker/collectives/tls_stream.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collectives/stream_transport.h"

namespace syncline::worker {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

const std::string kKey(TlsStream::kKeyBytes, 'k');
constexpr uint32_t kKind = PeerTag::kFirstFreeKind;

absl::Time Soon(double seconds = 30) {
  return MonotonicNow() + absl::Seconds(seconds);
}

std::pair<FileDescriptor, FileDescriptor> Sockets() {
  int ends[2];
  EXPECT_EQ(
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends),
      0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// Carries bytes between two ends, and keeps them.
class Wire {
 public:
  // `changes_at`: of the bytes from the first end: this one becomes another;
  // negative: none.
  explicit Wire(int64_t changes_at = -1) : changes_at_(changes_at) {
    auto first = Sockets();
    auto second = Sockets();
    ends_[0] = std::move(first.first);
    ends_[1] = std::move(second.first);
    inner_[0] = std::move(first.second);
    inner_[1] = std::move(second.second);
    for (const int from : {0, 1}) {
      threads_.emplace_back([this, from] { Carry(from); });
    }
  }
  ~Wire() { End(); }

  FileDescriptor Take(int end) { return std::move(ends_[end]); }
  void End() {
    ended_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // After End: of both directions.
  std::string carried() const { return absl::StrCat(carried_[0], carried_[1]); }

 private:
  void Carry(int from) {
    char bytes[65536];
    while (!ended_) {
      pollfd wait = {inner_[from].get(), POLLIN, 0};
      poll(&wait, 1, 10);
      const ssize_t got =
          recv(inner_[from].get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got <= 0) continue;
      const int64_t at =
          changes_at_ - static_cast<int64_t>(carried_[from].size());
      if (from == 0 && at >= 0 && at < got) bytes[at] ^= 1;
      carried_[from].append(bytes, static_cast<size_t>(got));
      for (ssize_t sent = 0; sent < got && !ended_;) {
        const ssize_t now =
            send(inner_[1 - from].get(), bytes + sent,
                 static_cast<size_t>(got - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (now > 0) sent += now;
        if (now < 0 && errno != EAGAIN) break;
      }
    }
  }

  const int64_t changes_at_;
  FileDescriptor ends_[2];
  FileDescriptor inner_[2];
  std::string carried_[2];  // by the end that it came from
  std::atomic<bool> ended_ = false;
  std::vector<std::thread> threads_;
};

PeerGroup GroupOf(uint32_t rank) {
  PeerGroup group;
  group.job = "j";
  group.epoch = 1;
  group.rank = rank;
  group.peers = {{"worker:0", "h:1"}, {"worker:1", "h:2"}};
  return group;
}

// Two ranks over the wire.
struct Pair {
  explicit Pair(Wire* wire, uint64_t rekey_bytes = 1 << 30) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::vector<std::unique_ptr<PeerStream>> streams(2);
      streams[1 - rank] = std::make_unique<TlsStream>(
          wire->Take(static_cast<int>(rank)),
          rank == 0 ? TlsStream::Side::kClient : TlsStream::Side::kServer, kKey,
          rekey_bytes);
      ranks.push_back(std::make_unique<StreamTransport>(
          GroupOf(rank), std::move(streams), StreamTransport::Options()));
    }
  }
  // Each sends the other `sent`; what came, by rank.
  std::vector<std::string> Exchange(const std::string& sent) {
    std::vector<std::string> came(2, std::string(sent.size(), '\0'));
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        std::atomic<int> left = 2;
        const auto done = [&](const absl::Status& status) {
          if (!status.ok()) failed[rank] = status;
          --left;
        };
        const ConstPeerMemory piece = {
            reinterpret_cast<const uint8_t*>(sent.data()), sent.size()};
        ranks[rank]->Send(1 - rank, {1, kKind, 0}, {&piece, 1}, Soon(), done);
        ranks[rank]->Receive(
            1 - rank, {1, kKind, 0},
            {reinterpret_cast<uint8_t*>(came[rank].data()), sent.size()},
            Soon(), done);
        EXPECT_TRUE(ranks[rank]->Await([&] { return left == 0; }, Soon()));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return came;
  }

  std::vector<std::unique_ptr<StreamTransport>> ranks;
  absl::Status failed[2];
};

TEST(TlsStreamTest, MessagesArriveAndAreNotSeenOnTheWay) {
  std::string sent;
  while (sent.size() < 3'000'000) sent += "what nobody else is to read ";
  Wire wire;
  {
    // With many new keys.
    Pair pair(&wire, /*rekey_bytes=*/100'000);
    EXPECT_EQ(pair.ranks[0]->kind_of(1), "tls");
    const std::vector<std::string> came = pair.Exchange(sent);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(pair.failed[rank], absl::OkStatus());
      EXPECT_TRUE(came[rank] == sent);
    }
  }
  wire.End();
  EXPECT_GT(wire.carried().size(), 2 * sent.size());
  EXPECT_FALSE(absl::StrContains(wire.carried(), "nobody else"));
  EXPECT_FALSE(absl::StrContains(wire.carried(), "SLPM"));
}

TEST(TlsStreamTest, AByteThatIsChangedEndsIt) {
  Wire wire(/*changes_at=*/50'000);
  Pair pair(&wire);
  pair.Exchange(std::string(1'000'000, 'x'));
  EXPECT_EQ(pair.failed[1].code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(pair.failed[1].message()),
              HasSubstr("rank 0 (worker:0 at h:1): its TLS is broken"));
  EXPECT_FALSE(pair.failed[0].ok());
}

// Until both have met, or one says why not.
absl::Status Meet(TlsStream* first, TlsStream* second) {
  const absl::Time end = Soon();
  while (MonotonicNow() < end) {
    for (TlsStream* const one : {first, second}) {
      if (const absl::Status status = one->Meet(); !status.ok()) return status;
    }
    if (first->has_met() && second->has_met()) return absl::OkStatus();
  }
  return absl::DeadlineExceededError("");
}

// The lower rank may send as soon as it has met the other, which then has both
// at once: the end of the handshake and a message.
TEST(TlsStreamTest, AMessageThatComesWithTheHandshakesEndIsTaken) {
  auto ends = Sockets();
  auto client = std::make_unique<TlsStream>(std::move(ends.first),
                                            TlsStream::Side::kClient, kKey);
  auto server = std::make_unique<TlsStream>(std::move(ends.second),
                                            TlsStream::Side::kServer, kKey);
  for (TlsStream* const one : {client.get(), server.get(), client.get()}) {
    ASSERT_EQ(one->Meet(), absl::OkStatus());
  }
  ASSERT_TRUE(client->has_met());
  ASSERT_FALSE(server->has_met());
  const auto rank_of = [](uint32_t rank, std::unique_ptr<TlsStream> stream) {
    std::vector<std::unique_ptr<PeerStream>> streams(2);
    streams[1 - rank] = std::move(stream);
    return std::make_unique<StreamTransport>(GroupOf(rank), std::move(streams),
                                             StreamTransport::Options());
  };
  const auto zero = rank_of(0, std::move(client));
  const std::string sent = "short";
  const ConstPeerMemory piece = {reinterpret_cast<const uint8_t*>(sent.data()),
                                 sent.size()};
  std::atomic<int> left = 1;
  const auto done = [&](const absl::Status& status) {
    EXPECT_EQ(status, absl::OkStatus());
    --left;
  };
  zero->Send(1, {1, kKind, 0}, {&piece, 1}, Soon(), done);
  ASSERT_TRUE(zero->Await([&] { return left == 0; }, Soon()));
  ASSERT_EQ(server->Meet(), absl::OkStatus());
  ASSERT_TRUE(server->has_met());
  const auto one = rank_of(1, std::move(server));
  std::string came(sent.size(), ' ');
  left = 1;
  one->Receive(0, {1, kKind, 0},
               {reinterpret_cast<uint8_t*>(came.data()), came.size()}, Soon(),
               done);
  EXPECT_TRUE(one->Await([&] { return left == 0; }, Soon(5)));
  EXPECT_EQ(came, sent);
}

TEST(TlsStreamTest, WhoHasAnotherKeyIsNotMet) {
  for (const bool same : {true, false}) {
    auto ends = Sockets();
    TlsStream client(std::move(ends.first), TlsStream::Side::kClient, kKey);
    TlsStream server(std::move(ends.second), TlsStream::Side::kServer,
                     same ? kKey : std::string(TlsStream::kKeyBytes, 'o'));
    const absl::Status met = Meet(&client, &server);
    EXPECT_EQ(met.ok(), same) << met;
    if (same) continue;
    EXPECT_EQ(met.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(met.message()),
                HasSubstr("it cannot be met by TLS"));
    EXPECT_FALSE(client.has_met() || server.has_met());
  }
}

// A stranger in the place of the other rank, with a certificate or none.
absl::Status MeetStranger(bool has_certificate) {
  auto ends = Sockets();
  fcntl(ends.second.get(), F_SETFL, 0);  // it blocks
  std::thread stranger([fd = ends.second.get(), has_certificate] {
    SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    X509* const certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    if (has_certificate) {
      EXPECT_EQ(SSL_CTX_use_certificate(context, certificate), 1);
      EXPECT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);
    }
    SSL* const tls = SSL_new(context);
    SSL_set_fd(tls, fd);
    EXPECT_NE(SSL_accept(tls), 1);
    shutdown(fd, SHUT_RDWR);
    SSL_free(tls);
    X509_free(certificate);
    EVP_PKEY_free(key);
    SSL_CTX_free(context);
  });
  TlsStream client(std::move(ends.first), TlsStream::Side::kClient, kKey);
  absl::Status status;
  for (const absl::Time end = Soon(); status.ok() && MonotonicNow() < end;) {
    status = client.Meet();
    EXPECT_FALSE(client.has_met());
  }
  client.Close();
  stranger.join();
  return status;
}

TEST(TlsStreamTest, AStrangerIsNotMetWithACertificateEither) {
  const absl::Status with = MeetStranger(/*has_certificate=*/true);
  EXPECT_EQ(with.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(with.message()), HasSubstr("verify failed"));
  EXPECT_EQ(MeetStranger(/*has_certificate=*/false).code(),
            absl::StatusCode::kUnavailable);
}

TEST(TlsStreamTest, WhoSpeaksNoTlsIsNotMet) {
  for (const auto side : {TlsStream::Side::kClient, TlsStream::Side::kServer}) {
    for (const bool closes : {false, true}) {
      auto ends = Sockets();
      TlsStream stream(std::move(ends.first), side, kKey);
      if (closes) {
        ends.second = FileDescriptor();
      } else {
        const std::string text(500, 'S');
        ASSERT_EQ(send(ends.second.get(), text.data(), text.size(), 0), 500);
      }
      absl::Status status;
      for (int i = 0; i < 100 && status.ok(); ++i) status = stream.Meet();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(status.message()),
                  AnyOf(HasSubstr("it cannot be met by TLS"),
                        HasSubstr("closed"), HasSubstr("is lost")));
    }
  }
}

}  // namespace
}  // namespace syncline::worker
