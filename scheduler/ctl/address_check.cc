#include "scheduler/ctl/address_check.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace syncline {
namespace {

// What a lookup writes into; outlives the call if a lookup cannot be stopped.
struct Lookups {
  std::vector<std::string> hosts;
  std::vector<gaicb> requests;
};

// gai_suspend wants pointers to the ones still open, and returns at the first.
void WaitForAll(Lookups& lookups, absl::Time deadline) {
  for (;;) {
    std::vector<const gaicb*> open;
    for (gaicb& request : lookups.requests) {
      if (gai_error(&request) == EAI_INPROGRESS) open.push_back(&request);
    }
    const absl::Duration left = deadline - absl::Now();
    if (open.empty() || left <= absl::ZeroDuration()) return;
    const timespec timeout = absl::ToTimespec(left);
    gai_suspend(open.data(), static_cast<int>(open.size()), &timeout);
  }
}

absl::Status LookupStatus(gaicb* request) {
  const int error = gai_error(request);
  if (error == 0) return absl::OkStatus();
  if (error == EAI_INPROGRESS) {
    return absl::DeadlineExceededError("no answer from the name service");
  }
  return absl::NotFoundError(gai_strerror(error));
}

// False if the resolver may still write into it.
bool Release(gaicb* request) {
  if (gai_error(request) == EAI_INPROGRESS &&
      gai_cancel(request) == EAI_NOTCANCELED) {
    return false;
  }
  if (request->ar_result != nullptr) freeaddrinfo(request->ar_result);
  return true;
}

}  // namespace

std::vector<absl::Status> ResolveHosts(const std::vector<std::string>& hosts,
                                       absl::Time deadline) {
  auto lookups = std::make_unique<Lookups>();
  lookups->hosts = hosts;
  lookups->requests.resize(hosts.size());
  std::vector<gaicb*> pointers;
  for (size_t i = 0; i < hosts.size(); ++i) {
    lookups->requests[i] = {};
    lookups->requests[i].ar_name = lookups->hosts[i].c_str();
    pointers.push_back(&lookups->requests[i]);
  }
  const int started = getaddrinfo_a(GAI_NOWAIT, pointers.data(),
                                    static_cast<int>(pointers.size()), nullptr);
  if (started != 0) {
    return std::vector<absl::Status>(
        hosts.size(), absl::UnavailableError(gai_strerror(started)));
  }
  WaitForAll(*lookups, deadline);
  std::vector<absl::Status> statuses;
  bool released = true;
  for (gaicb& request : lookups->requests) {
    statuses.push_back(LookupStatus(&request));
    released = Release(&request) && released;
  }
  // A lookup that cannot be stopped keeps its memory; we do not wait for it.
  if (!released) lookups.release();
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

}  // namespace syncline
