#include "scheduler/service/page_access.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace syncline::scheduler {
namespace {

// By whose role the pages go: they show what these calls answer.
constexpr char kLooks[] = "/syncline.Jobs/Get";
constexpr char kReadsLogs[] = "/syncline.Jobs/Logs";

absl::Status OnlyFromHere(absl::string_view why) {
  return absl::PermissionDeniedError(absl::StrCat(
      "this page is for the scheduler's own machine, because ", why,
      "; from elsewhere: ssh -L 8080:HOST:PORT, then http://127.0.0.1:8080/"));
}

// The host of "host:8080", "[::1]:8080" or one of them without a port, brackets
// included.
std::string HostOf(absl::string_view address) {
  const size_t port = address.rfind(':');
  const size_t bracket = address.rfind(']');
  const bool has_port =
      port != address.npos && (bracket == address.npos || port > bracket);
  return std::string(has_port ? address.substr(0, port) : address);
}

bool IsIpLiteral(const std::string& host) {
  in_addr ipv4 = {};
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return true;
  absl::string_view inner = host;
  if (!absl::ConsumePrefix(&inner, "[") || !absl::ConsumeSuffix(&inner, "]")) {
    return false;
  }
  in6_addr ipv6 = {};
  return inet_pton(AF_INET6, std::string(inner).c_str(), &ipv6) == 1;
}

// Whether a request names this machine, not one of whoever made the page that
// sends it. Programs that name none are no browsers.
absl::Status CheckHost(absl::string_view address, absl::string_view served_as) {
  if (address.empty()) return absl::OkStatus();
  const std::string host = HostOf(address);
  if (absl::EqualsIgnoreCase(host, "localhost") || IsIpLiteral(host) ||
      (!served_as.empty() && absl::EqualsIgnoreCase(host, HostOf(served_as)))) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "this page was asked for as one of the host ",
      Printable(host.substr(0, 100)),
      ", which may be a stranger's name for this machine: ask for it at "
      "127.0.0.1 or localhost"));
}

}  // namespace

absl::StatusOr<PageViewer> CheckPageViewer(const HttpServer::Request& request,
                                           const BearerFinder& find_bearer,
                                           bool has_tls,
                                           absl::string_view served_as) {
  PageViewer viewer;
  if (find_bearer == nullptr) {
    if (has_tls && !request.from_loopback) {
      return OnlyFromHere("the cluster has TLS and HTTP has not");
    }
    if (request.from_loopback) {
      SYNCLINE_RETURN_IF_ERROR(CheckHost(request.host, served_as));
    }
    viewer.reads_logs = !has_tls && request.from_loopback;
    return viewer;
  }
  if (!request.from_loopback) {
    return OnlyFromHere("a token would come here in plain text");
  }
  absl::string_view token = request.authorization;
  if (!absl::ConsumePrefix(&token, "Bearer ")) token = "";
  SYNCLINE_ASSIGN_OR_RETURN(const TokenEntry entry, find_bearer(token));
  SYNCLINE_RETURN_IF_ERROR(CheckRole(entry, kLooks));
  viewer.reads_logs = entry.role >= LeastRole(kReadsLogs);
  viewer.sees_all = entry.SeesAllJobs();
  viewer.tenant = entry.tenant;
  viewer.who = absl::StrCat("token:", entry.name);
  return viewer;
}

bool MaySee(const PageViewer& viewer, const JobStatus& job) {
  return viewer.sees_all || viewer.tenant == job.tenant();
}

HttpServer::Response Refusal(const absl::Status& status) {
  HttpServer::Response response;
  response.body = absl::StrCat(status.message(), "\n");
  if (absl::IsUnauthenticated(status)) {
    response.code = 401;
    response.headers["WWW-Authenticate"] = "Bearer";
  } else if (absl::IsPermissionDenied(status)) {
    response.code = 403;
  } else if (absl::IsNotFound(status)) {
    response.code = 404;
  } else if (absl::IsInvalidArgument(status)) {
    response.code = 400;
  } else {
    response.code = 503;
  }
  return response;
}

}  // namespace syncline::scheduler
