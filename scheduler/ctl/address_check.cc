#include "scheduler/ctl/address_check.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/system/thread_pool.h"

namespace syncline::ctl {
namespace {

constexpr int kLookupsAtATime = 16;

absl::Status Resolve(const std::string& host) {
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (error != 0) return absl::NotFoundError(gai_strerror(error));
  freeaddrinfo(found);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSchedulerAddress(const std::string& text) {
  const absl::Status form = ParseHostPort(text).status();
  const std::string completed = absl::StrCat(text, ":", kDefaultSchedulerPort);
  if (form.ok() || !ParseHostPort(completed).ok()) return form;
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" has no port; give host:port, as in ", completed, " (",
      kDefaultSchedulerPort, " is the port where synctl is told none)"));
}

std::vector<absl::Status> ResolveHosts(const std::vector<std::string>& hosts) {
  std::vector<absl::Status> statuses(
      hosts.size(), absl::ResourceExhaustedError("too many hosts"));
  ThreadPool pool("resolve", kLookupsAtATime);
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (!pool.TrySubmit([&, i] { statuses[i] = Resolve(hosts[i]); })) break;
  }
  pool.Stop();
  return statuses;
}

absl::Status CheckPortIsFree(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "opening a socket");
  // Connections of an earlier process in TIME_WAIT are no obstacle to gRPC.
  const int reuse = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  any.sin_port = htons(static_cast<uint16_t>(port));
  const bool bound =
      bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0 &&
      listen(fd, 1) == 0;
  const int error = errno;
  close(fd);
  if (bound) return absl::OkStatus();
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat("port ", port, " is in use by another process"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("binding port ", port));
}

}  // namespace syncline::ctl
