#include "common/system/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/random.h"

namespace syncline {
namespace {

constexpr size_t kTextBytesMax = 128;
constexpr int kBacklog = 256;

struct LocalAddress {
  sockaddr_un address = {};
  socklen_t size = 0;
};

// The leading zero makes it abstract.
std::optional<LocalAddress> MakeAddress(absl::string_view name) {
  LocalAddress local;
  if (name.empty() || name.size() + 1 > sizeof(local.address.sun_path)) {
    return std::nullopt;
  }
  local.address.sun_family = AF_UNIX;
  std::memcpy(local.address.sun_path + 1, name.data(), name.size());
  local.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return local;
}

FileDescriptor MakeSocket() {
  return FileDescriptor(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

absl::Status SocketError(const char* what) {
  return absl::UnavailableError(
      absl::StrCat("local socket: ", what, ": ", strerror(errno)));
}

// Of the process that connected, or that listens, as it was then.
bool IsOfSameUser(const FileDescriptor& connection) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) ==
             0 &&
         peer.uid == geteuid();
}

// Takes over every descriptor that came along, and returns the only one.
FileDescriptor TakeDescriptor(msghdr* message) {
  FileDescriptor only;
  int count = 0;
  for (cmsghdr* control = CMSG_FIRSTHDR(message); control != nullptr;
       control = CMSG_NXTHDR(message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t bytes = control->cmsg_len - CMSG_LEN(0);
    for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + at, sizeof(fd));
      only = FileDescriptor(fd);
      ++count;
    }
  }
  return count == 1 ? std::move(only) : FileDescriptor();
}

}  // namespace

std::string BootId() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

absl::StatusOr<FileDescriptor> ClaimLocalName(absl::string_view name) {
  const std::optional<LocalAddress> local = MakeAddress(name);
  if (!local.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a local name of ", name.size(), " bytes"));
  }
  FileDescriptor claim = MakeSocket();
  if (!claim.valid()) return SocketError("create");
  if (bind(claim.get(), reinterpret_cast<const sockaddr*>(&local->address),
           local->size) == 0) {
    return claim;
  }
  if (errno == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process of this host has ", name));
  }
  return SocketError("bind");
}

absl::StatusOr<LocalListener> ListenLocally() {
  LocalListener listener;
  listener.name =
      absl::StrFormat("syncline-%016x%016x", EntropySeed(), EntropySeed());
  const LocalAddress local = *MakeAddress(listener.name);
  listener.socket = MakeSocket();
  if (!listener.socket.valid()) return SocketError("socket");
  if (bind(listener.socket.get(),
           reinterpret_cast<const sockaddr*>(&local.address),
           local.size) != 0) {
    return SocketError("bind");
  }
  if (listen(listener.socket.get(), kBacklog) != 0) {
    return SocketError("listen");
  }
  return listener;
}

absl::StatusOr<FileDescriptor> SendDescriptor(
    absl::string_view name, absl::string_view text,
    const FileDescriptor& descriptor) {
  const std::optional<LocalAddress> local = MakeAddress(name);
  if (!local.has_value() || text.empty() || text.size() > kTextBytesMax) {
    return absl::UnavailableError("local socket: an impossible name or text");
  }
  FileDescriptor socket = MakeSocket();
  if (!socket.valid()) return SocketError("socket");
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&local->address),
              local->size) != 0) {
    return SocketError("connect");
  }
  if (!IsOfSameUser(socket)) {
    return absl::UnavailableError(
        "local socket: the listener is another user's process");
  }
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
  const int fd = descriptor.get();
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  if (sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0) {
    return SocketError("sendmsg");
  }
  return socket;
}

std::optional<FileDescriptor> AcceptLocally(const FileDescriptor& listener) {
  for (int i = 0; i < kBacklog; ++i) {
    FileDescriptor connection(accept4(listener.get(), nullptr, nullptr,
                                      SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection.valid()) return std::nullopt;
    if (IsOfSameUser(connection)) return connection;
  }
  return std::nullopt;
}

absl::StatusOr<ReceivedDescriptor> ReceiveDescriptor(
    const FileDescriptor& connection) {
  char text[kTextBytesMax];
  // Room for a few, so that a peer that sends more does not leave them open.
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  iovec bytes = {text, sizeof(text)};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size =
      recvmsg(connection.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return SocketError("recvmsg");
  ReceivedDescriptor received;
  received.descriptor = TakeDescriptor(&message);
  if (size == 0 || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      !received.descriptor.valid()) {
    return absl::InvalidArgumentError("local socket: not one descriptor");
  }
  received.text.assign(text, static_cast<size_t>(size));
  return received;
}

bool IsClosedByPeer(const FileDescriptor& connection) {
  pollfd one = {connection.get(), POLLIN | POLLRDHUP, 0};
  return poll(&one, 1, 0) > 0 &&
         (one.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

}  // namespace syncline
