#include "worker/collectives/peer_meeting.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/system/secret.h"
#include "worker/collectives/peer_hello.h"
#include "worker/collectives/shared_stream.h"
#include "worker/collectives/tcp_stream.h"
#include "worker/collectives/tls_stream.h"

namespace syncline::worker {
namespace {

constexpr absl::Duration kHelloPatience = absl::Seconds(5);
// A rank of the same host that has been sent memory sends its own within this.
constexpr absl::Duration kMemoryPatience = absl::Seconds(10);
constexpr absl::Duration kAskPeriod = absl::Milliseconds(250);
constexpr absl::Duration kLook = absl::Milliseconds(50);

absl::Status SocketError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(absl::string_view host, uint32_t port,
                                  bool to_listen) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(std::string(host).c_str(),
                                std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat(host, ": ", gai_strerror(error)));
  }
  return Addresses(found);
}

int MillisecondsUntil(absl::Time deadline, absl::Duration most) {
  const absl::Duration left =
      std::clamp(deadline - MonotonicNow(), absl::ZeroDuration(), most);
  return static_cast<int>(
      absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

// A connected socket that does not block. `go_on` may be null.
absl::StatusOr<FileDescriptor> ConnectTo(const addrinfo& address,
                                         absl::Time deadline,
                                         const GoOnCheck& go_on) {
  FileDescriptor fd(
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SocketError("socket");
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) return SocketError("connect");
  pollfd wait = {fd.get(), POLLOUT, 0};
  while (poll(&wait, 1, MillisecondsUntil(deadline, kAskPeriod)) <= 0) {
    if (go_on != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(go_on());
    }
    if (MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError("no connection in time");
    }
  }
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    errno = error;
    return SocketError("connect");
  }
  return fd;
}

std::string LocalText(uint32_t from, uint64_t epoch, absl::string_view token) {
  return absl::BytesToHexString(EncodeHello({epoch, from, std::string(token)}));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerMeeting>> PeerMeeting::Create(
    const Options& options) {
  auto meeting = absl::WrapUnique(new PeerMeeting(options));
  SYNCLINE_RETURN_IF_ERROR(meeting->Listen());
  return meeting;
}

absl::Status PeerMeeting::Listen() {
  boot_id_ = BootId();
  SYNCLINE_ASSIGN_OR_RETURN(const Addresses addresses,
                            Resolve(options_.listen_host, 0, true));
  absl::Status status = absl::UnavailableError("no address to listen at");
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    FileDescriptor fd(
        socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_storage bound = {};
    socklen_t size = sizeof(bound);
    if (!fd.valid() || bind(fd.get(), at->ai_addr, at->ai_addrlen) != 0 ||
        listen(fd.get(), 128) != 0 ||
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) !=
            0) {
      status = SocketError(absl::StrCat("listen at ", options_.listen_host));
      continue;
    }
    char service[16] = {};
    getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, service,
                sizeof(service), NI_NUMERICSERV);
    port_ = static_cast<uint32_t>(std::strtoul(service, nullptr, 10));
    listener_ = std::move(fd);
    break;
  }
  if (!listener_.valid()) return status;
  if (options_.shared_memory) {
    auto local = ListenLocally();
    if (local.ok()) local_ = *std::move(local);
  }
  MutexLock lock(&mu_);
  peers_.resize(options_.group.ranks());
  for (Peer& peer : peers_) {
    SYNCLINE_ASSIGN_OR_RETURN(peer.token, NewSecret());
    tokens_.push_back(peer.token);
  }
  return absl::OkStatus();
}

PeerInvitation PeerMeeting::InvitationFor(uint32_t peer) const {
  return {boot_id_, port_, local_.name, tokens_[peer]};
}

bool PeerMeeting::OffersMemoryTo(const PeerInvitation& invitation) const {
  return !local_.name.empty() && !invitation.local_name.empty() &&
         !boot_id_.empty() && invitation.boot_id == boot_id_;
}

absl::Status PeerMeeting::OnInvitation(uint32_t peer,
                                       const PeerInvitation& invitation) {
  if (peer >= options_.group.rank || invitation.token.size() != kTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an invitation of rank ", peer, " to rank ", options_.group.rank));
  }
  MutexLock lock(&mu_);
  peers_[peer].invitation = invitation;
  peers_[peer].has_invitation = true;
  return absl::OkStatus();
}

absl::Status PeerMeeting::OfferMemory(uint32_t peer) {
  Peer& p = peers_[peer];
  if (p.own != nullptr) return absl::OkStatus();
  SYNCLINE_ASSIGN_OR_RETURN(
      auto own,
      SharedRegion::Create(SharedRing::RegionBytes(SharedStream::kCapacity)));
  SYNCLINE_ASSIGN_OR_RETURN(
      p.to_other,
      SendDescriptor(p.invitation.local_name,
                     LocalText(options_.group.rank, options_.group.epoch,
                               p.invitation.token),
                     own->memory()));
  p.own = std::move(own);
  p.fall_back_at = MonotonicNow() + kMemoryPatience;
  return absl::OkStatus();
}

absl::Status PeerMeeting::Connect(uint32_t peer, absl::string_view host,
                                  const PeerInvitation& invitation,
                                  absl::Time deadline, const GoOnCheck& go_on) {
  if (peer <= options_.group.rank || peer >= options_.group.ranks() ||
      invitation.token.size() != kTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an invitation of rank ", peer, " to rank ", options_.group.rank));
  }
  {
    MutexLock lock(&mu_);
    peers_[peer].invitation = invitation;
    peers_[peer].has_invitation = true;
    peers_[peer].host = std::string(host);
    if (OffersMemoryTo(invitation) && OfferMemory(peer).ok()) {
      return absl::OkStatus();
    }
  }
  return ConnectByTcp(peer, deadline, go_on);
}

absl::Status PeerMeeting::ConnectByTcp(uint32_t peer, absl::Time deadline,
                                       const GoOnCheck& go_on) {
  PeerInvitation invitation;
  std::string host;
  {
    MutexLock lock(&mu_);
    invitation = peers_[peer].invitation;
    host = peers_[peer].host;
  }
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat(options_.group.NameOf(peer), ", port ",
                                     invitation.port, ": ", status.message()));
  };
  if (invitation.port == 0 || invitation.port > 65535) {
    return named(absl::UnavailableError("it accepts no connections"));
  }
  auto addresses = Resolve(host, invitation.port, false);
  if (!addresses.ok()) return named(addresses.status());
  absl::Status status = absl::UnavailableError("it has no address");
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
    auto fd = ConnectTo(*at, deadline, go_on);
    if (!fd.ok()) {
      // Not to be tried at its next address.
      if (go_on != nullptr) {
        SYNCLINE_RETURN_IF_ERROR(go_on());
      }
      status = fd.status();
      continue;
    }
    const PeerGroup& group = options_.group;
    const std::string hello =
        EncodeHello({group.epoch, group.rank,
                     options_.encrypts
                         ? TokenProof(invitation.token, group.epoch, group.rank)
                         : invitation.token});
    // A new connection has room for it.
    if (send(fd->get(), hello.data(), hello.size(),
             MSG_NOSIGNAL | MSG_DONTWAIT) !=
        static_cast<ssize_t>(hello.size())) {
      status = SocketError("write");
      continue;
    }
    MutexLock lock(&mu_);
    if (options_.encrypts) {
      auto tls = std::make_unique<TlsStream>(
          *std::move(fd), TlsStream::Side::kClient,
          ConnectionKey(invitation.token, group.epoch, group.rank));
      peers_[peer].tls = tls.get();
      peers_[peer].stream = std::move(tls);
    } else {
      peers_[peer].stream = std::make_unique<TcpStream>(*std::move(fd));
    }
    return absl::OkStatus();
  }
  return named(status);
}

bool PeerMeeting::Find(const PeerHello& hello, bool is_proof,
                       uint32_t* peer) const {
  bool found = false;
  // All are looked at: the time says nothing of which one is near.
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    const std::string& token = peers_[i].token;
    if (SecretsEqual(is_proof ? TokenProof(token, hello.epoch, i) : token,
                     hello.token)) {
      found = true;
      *peer = i;
    }
  }
  return found;
}

void PeerMeeting::AcceptAll() {
  while (unknown_.size() < kUnknownMax) {
    FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) break;
    unknown_.push_back(
        {std::move(fd), "", MonotonicNow() + kHelloPatience, false});
  }
  while (local_.socket.valid() && unknown_.size() < kUnknownMax) {
    auto fd = AcceptLocally(local_.socket);
    if (!fd.has_value()) break;
    unknown_.push_back(
        {*std::move(fd), "", MonotonicNow() + kHelloPatience, true});
  }
}

bool PeerMeeting::HearLocal(Unknown* unknown) {
  auto received = ReceiveDescriptor(unknown->socket);
  if (!received.ok()) {
    return absl::IsUnavailable(received.status()) &&
           !IsClosedByPeer(unknown->socket);
  }
  const auto hello = DecodeHello(absl::HexStringToBytes(received->text));
  uint32_t peer = 0;
  if (!hello.ok() || hello->epoch != options_.group.epoch ||
      !Find(*hello, /*is_proof=*/false, &peer) || hello->from != peer ||
      peers_[peer].stream != nullptr || peers_[peer].other != nullptr) {
    return false;
  }
  auto region = SharedRegion::Map(
      received->descriptor, SharedRing::RegionBytes(SharedStream::kCapacity),
      SharedRegion::Access::kRead);
  if (!region.ok() ||
      (*region)->size() != SharedRing::RegionBytes(SharedStream::kCapacity)) {
    return false;
  }
  peers_[peer].other = *std::move(region);
  peers_[peer].from_other = std::move(unknown->socket);
  return false;
}

bool PeerMeeting::Hear(Unknown* unknown) {
  if (MonotonicNow() >= unknown->deadline) return false;
  if (unknown->is_local) return HearLocal(unknown);
  char bytes[kHelloBytes];
  const ssize_t received =
      recv(unknown->socket.get(), bytes, kHelloBytes - unknown->bytes.size(),
           MSG_DONTWAIT);
  if (received < 0) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  }
  if (received == 0) return false;
  unknown->bytes.append(bytes, static_cast<size_t>(received));
  if (unknown->bytes.size() < kHelloBytes) return true;
  const auto hello = DecodeHello(unknown->bytes);
  uint32_t peer = 0;
  if (!hello.ok() || hello->epoch != options_.group.epoch ||
      !Find(*hello, options_.encrypts, &peer) || hello->from != peer ||
      peer >= options_.group.rank) {
    return false;
  }
  Peer& of = peers_[peer];
  // One whose handshake has not ended may be of somebody who repeats a hello.
  if (of.stream != nullptr && of.tls == nullptr) return false;
  if (options_.encrypts) {
    auto tls = std::make_unique<TlsStream>(
        std::move(unknown->socket), TlsStream::Side::kServer,
        ConnectionKey(of.token, hello->epoch, peer));
    of.tls = tls.get();
    of.stream = std::move(tls);
  } else {
    of.stream = std::make_unique<TcpStream>(std::move(unknown->socket));
  }
  return false;
}

absl::Status PeerMeeting::MeetByTls() {
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.tls == nullptr) continue;
    const absl::Status met = peer.tls->Meet();
    if (met.ok()) {
      if (peer.tls->has_met()) peer.tls = nullptr;
      continue;
    }
    if (i > options_.group.rank) {
      return absl::UnavailableError(absl::StrCat(
          "group epoch ", options_.group.epoch, " of job ", options_.group.job,
          ": ", options_.group.NameOf(i), ": ", met.message()));
    }
    // Whoever that was, the rank may still come.
    peer.tls = nullptr;
    peer.stream = nullptr;
  }
  return absl::OkStatus();
}

void PeerMeeting::MakeSharedStreams() {
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.stream != nullptr || peer.other == nullptr) continue;
    // The higher one answers.
    if (peer.own == nullptr &&
        (!peer.has_invitation || !OffersMemoryTo(peer.invitation) ||
         !OfferMemory(i).ok())) {
      // The lower one sees that this is closed, and connects otherwise.
      peer.other = nullptr;
      peer.from_other = FileDescriptor();
      continue;
    }
    peer.stream = std::make_unique<SharedStream>(
        std::move(peer.own), std::move(peer.other), std::move(peer.to_other),
        std::move(peer.from_other));
  }
}

std::string PeerMeeting::Missing() const {
  std::vector<std::string> missing;
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    const bool is_here =
        peers_[i].stream != nullptr && peers_[i].tls == nullptr;
    if (i != options_.group.rank && !is_here) {
      missing.push_back(options_.group.NameOf(i));
    }
  }
  return absl::StrJoin(missing, ", ");
}

absl::StatusOr<std::unique_ptr<StreamTransport>> PeerMeeting::Finish(
    absl::Time deadline) {
  while (true) {
    std::vector<pollfd> wait_for;
    std::vector<uint32_t> fall_back;
    {
      MutexLock lock(&mu_);
      AcceptAll();
      std::vector<Unknown> still;
      for (Unknown& each : unknown_) {
        if (Hear(&each)) still.push_back(std::move(each));
      }
      unknown_ = std::move(still);
      MakeSharedStreams();
      SYNCLINE_RETURN_IF_ERROR(MeetByTls());
      for (uint32_t i = 0; i < peers_.size(); ++i) {
        Peer& peer = peers_[i];
        if (peer.stream != nullptr || peer.own == nullptr ||
            i < options_.group.rank) {
          continue;
        }
        if (IsClosedByPeer(peer.to_other) ||
            MonotonicNow() >= peer.fall_back_at) {
          peer.own = nullptr;
          peer.to_other = FileDescriptor();
          fall_back.push_back(i);
        }
      }
      const std::string missing = Missing();
      if (missing.empty()) {
        std::vector<std::unique_ptr<PeerStream>> streams;
        unsigned ranks_here = 1;
        for (Peer& peer : peers_) {
          if (peer.stream != nullptr && peer.invitation.boot_id == boot_id_) {
            ++ranks_here;
          }
          streams.push_back(std::move(peer.stream));
        }
        StreamTransport::Options transport = options_.transport;
        if (ranks_here > std::thread::hardware_concurrency()) {
          transport.spin_alone = absl::ZeroDuration();
        }
        return std::make_unique<StreamTransport>(options_.group,
                                                 std::move(streams), transport);
      }
      if (MonotonicNow() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("group epoch ", options_.group.epoch, " of job ",
                         options_.group.job, ": ", missing,
                         " has not connected to rank ", options_.group.rank));
      }
      wait_for.push_back({listener_.get(), POLLIN, 0});
      if (local_.socket.valid()) {
        wait_for.push_back({local_.socket.get(), POLLIN, 0});
      }
      // Those who say nothing yet are looked at again; if the queue is full,
      // its head is not waited for.
      if (unknown_.size() >= kUnknownMax) wait_for.clear();
      for (const Unknown& each : unknown_) {
        wait_for.push_back({each.socket.get(), POLLIN, 0});
      }
      for (const Peer& peer : peers_) {
        if (peer.tls == nullptr) continue;
        wait_for.push_back({peer.tls->descriptor(), POLLIN, 0});
      }
    }
    for (const uint32_t peer : fall_back) {
      SYNCLINE_RETURN_IF_ERROR(ConnectByTcp(peer, deadline, nullptr));
    }
    if (fall_back.empty()) {
      poll(wait_for.data(), wait_for.size(),
           MillisecondsUntil(deadline, kLook));
    }
  }
}

}  // namespace syncline::worker
