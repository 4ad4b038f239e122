#ifndef SYNCLINE_SCHEDULER_SERVICE_PAGE_ACCESS_H_
#define SYNCLINE_SCHEDULER_SERVICE_PAGE_ACCESS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/daemon/http_server.h"
#include "common/security/user_tokens.h"
#include "proto/job.pb.h"

// The access to the scheduler's HTTP pages. The HTTP port is plain text:
//
//   people have tokens    a peer on loopback with the token of a viewer
//   else, with TLS        peers on loopback, without logs
//   else                  everyone who reaches the port; logs: on loopback
//
// Where no token is needed a peer on loopback must also name this machine as
// its host: a page of a stranger in a browser here, whose name leads to
// loopback (DNS rebinding), has the stranger's name there.

namespace syncline::scheduler {

// Whoever looks at a page.
struct PageViewer {
  bool sees_all = true;     // the jobs of all tenants
  std::string tenant = {};  // else those of this one; empty: of none
  bool reads_logs = false;
  std::string who = "unknown";  // as CallerOf names the bearer of its token
};

// FindBearer of common/rpc/user_calls.h; null where people need no token.
using BearerFinder =
    std::function<absl::StatusOr<TokenEntry>(absl::string_view token)>;

// `served_as`: the address of the HTTP port; empty: not known. Errors, for
// people: Unauthenticated: a token is needed, or another one; PermissionDenied:
// not from there, not by that name of a host, or not with this role;
// FailedPrecondition: as UserTokens.
absl::StatusOr<PageViewer> CheckPageViewer(const HttpServer::Request& request,
                                           const BearerFinder& find_bearer,
                                           bool has_tls,
                                           absl::string_view served_as = "");

bool MaySee(const PageViewer& viewer, const JobStatus& job);

// 401, 403 or 503, with the reason.
HttpServer::Response Refusal(const absl::Status& status);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_PAGE_ACCESS_H_
