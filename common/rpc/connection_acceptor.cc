#include "common/rpc/connection_acceptor.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/system/log.h"
#include "common/system/thread_name.h"

namespace syncline {
namespace {

constexpr int kBackoffMs = 100;
// Then the thread looks whether it is to stop.
constexpr int kAtOnce = 256;
constexpr absl::Duration kTellPeriod = absl::Minutes(1);
constexpr int kReserveMax = 256;
constexpr int kReserveShare = 4;

absl::Status Failed(int error) {
  return absl::UnavailableError(std::strerror(error));
}

void SetOption(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

// Of a bound socket.
uint16_t PortOf(int socket) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof(bound);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
    return 0;
  }
  const in_port_t port =
      bound.ss_family == AF_INET6
          ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
          : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return ntohs(port);
}

// gRPC forgets the descriptor of a connection whose peer it cannot name.
bool HasPeer(int connection) {
  sockaddr_storage peer{};
  socklen_t bytes = sizeof(peer);
  return getpeername(connection, reinterpret_cast<sockaddr*>(&peer), &bytes) ==
         0;
}

}  // namespace

int OpenConnectionsMax() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT_MAX) {
    return INT_MAX - kReserveMax;
  }
  const int files = static_cast<int>(limit.rlim_cur);
  return files - std::min(kReserveMax, files / kReserveShare);
}

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Listen(
    const HostPort& address) {
  auto acceptor = absl::WrapUnique(new ConnectionAcceptor());
  acceptor->address_ = address;
  acceptor->stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!acceptor->stop_.valid()) return Failed(errno);
  if (address.IsAnyInterface()) {
    sockaddr_in6 all{};
    all.sin6_family = AF_INET6;
    all.sin6_port = htons(address.port);
    all.sin6_addr = in6addr_any;
    const absl::Status both = acceptor->Bind(AF_INET6, &all, sizeof(all));
    // A machine without IPv6 still has 0.0.0.0.
    if (both.ok()) return acceptor;
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int resolved = getaddrinfo(
      address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &list);
  if (resolved != 0) return absl::UnavailableError(gai_strerror(resolved));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(list,
                                                             freeaddrinfo);
  absl::Status failed;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    failed.Update(acceptor->Bind(a->ai_family, a->ai_addr, a->ai_addrlen));
  }
  // A name may have an address of a family that this machine lacks.
  if (acceptor->listeners_.empty()) return failed;
  return acceptor;
}

absl::Status ConnectionAcceptor::Bind(int family, const void* where,
                                      uint32_t where_bytes) {
  sockaddr_storage local{};
  std::memcpy(&local, where, std::min<size_t>(where_bytes, sizeof(local)));
  if (family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(local).sin6_port = htons(address_.port);
  } else if (family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(local).sin_port = htons(address_.port);
  }
  FileDescriptor listener(
      socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return Failed(errno);
  SetOption(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) {
    SetOption(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY,
              address_.IsAnyInterface() ? 0 : 1);
  }
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&local), where_bytes) !=
          0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return Failed(errno);
  }
  address_.port = PortOf(listener.get());
  listeners_.push_back(std::move(listener));
  return absl::OkStatus();
}

ConnectionAcceptor::~ConnectionAcceptor() { Stop(); }

void ConnectionAcceptor::Start(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] {
    SetThreadName("accept");
    Run();
  });
}

void ConnectionAcceptor::Stop() {
  const uint64_t one = 1;
  // The counter of an eventfd takes far more than one.
  [[maybe_unused]] const ssize_t told = write(stop_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  listeners_.clear();
}

void ConnectionAcceptor::Run() {
  std::vector<pollfd> waited{{stop_.get(), POLLIN, 0}};
  for (const FileDescriptor& listener : listeners_) {
    waited.push_back({listener.get(), POLLIN, 0});
  }
  bool exhausted = false;
  for (;;) {
    // While no descriptor is free, the listeners are always ready.
    const nfds_t count = exhausted ? 1 : waited.size();
    const int ready = poll(waited.data(), count, exhausted ? kBackoffMs : -1);
    if (ready > 0 && waited[0].revents != 0) return;
    exhausted = false;
    for (const FileDescriptor& listener : listeners_) {
      exhausted = !AcceptAll(listener.get()) || exhausted;
    }
  }
}

bool ConnectionAcceptor::AcceptAll(int listener) {
  for (int i = 0; i < kAtOnce; ++i) {
    FileDescriptor connection(
        accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      const int error = errno;
      if (error == EAGAIN || error == EWOULDBLOCK) return true;
      // These are of one connection, which has gone.
      if (error == EINTR || error == ECONNABORTED || error == EPROTO) continue;
      if (error == EMFILE || error == ENFILE) TellRefused();
      return false;
    }
    // The system gives the lowest free number: so many are open.
    if (connection.get() >= OpenConnectionsMax()) {
      TellRefused();
      continue;
    }
    if (!HasPeer(connection.get())) continue;
    SetOption(connection.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    take_(std::move(connection));
  }
  return true;
}

void ConnectionAcceptor::TellRefused() {
  ++refused_;
  const absl::Time now = MonotonicNow();
  if (now < tell_at_) return;
  tell_at_ = now + kTellPeriod;
  LogWarning("too many connections: new ones are closed")
      .Field("listen", address_.ToString())
      .Field("refused", std::exchange(refused_, 0))
      .Field("connections_max", OpenConnectionsMax())
      .Field("hint", "raise the limit of open files (ulimit -n)");
}

}  // namespace syncline
