#ifndef SYNCLINE_COMMON_DAEMON_HTTP_SERVER_H_
#define SYNCLINE_COMMON_DAEMON_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/daemon/metrics.h"

namespace syncline {

// A daemon's HTTP page: /metrics, /healthz (200 while the process turns),
// /readyz (200, or 503 with the reason), and pages a role adds. A connection
// that sends no whole request within 1 s is closed; 255 such delay no other.
// Plain text, and no check of who asks: a page that needs one makes it.
// Handlers run on stacks of 100 KiB. Thread-safe.
class HttpServer {
 public:
  // Borrowed for the time of the call.
  struct Request {
    absl::string_view path = {};
    absl::string_view query = {};          // behind the "?"
    absl::string_view authorization = {};  // the header; empty: there is none
    absl::string_view host = {};           // likewise; with a port, as it came
    bool from_loopback = false;            // the peer is on this machine
  };
  struct Response {
    int code = 200;
    std::string content_type = "text/plain; charset=utf-8";
    std::string body;
    std::map<std::string, std::string> headers = {};  // besides the usual ones
  };
  using Handler = std::function<Response(const Request& request)>;
  // By path. One that ends with a slash, but for "/", has all paths below it
  // that have no page of their own.
  using Pages = std::map<std::string, Handler>;
  struct Options {
    std::string listen = "127.0.0.1:0";        // empty port 0: any free one
    const MetricsRegistry* metrics = nullptr;  // outlives the server
    std::function<absl::Status()> ready;       // must not block
    Pages pages;                               // must not block for long
  };
  // Errors: Unavailable: the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options);
  virtual ~HttpServer() = default;  // stops and joins
  virtual std::string address() const = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_DAEMON_HTTP_SERVER_H_
