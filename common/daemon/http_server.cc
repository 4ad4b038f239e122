#include "common/daemon/http_server.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "civetweb.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/system/thread_pool.h"

namespace syncline {
namespace {

using Request = HttpServer::Request;
using Response = HttpServer::Response;

// A thread waits for one connection's request. A peer that opens connections
// and says nothing holds this many threads for this long: 500 of them hold up a
// probe for about one such time. An idle thread costs a stack's first page.
constexpr char kThreads[] = "256";
constexpr char kRequestTimeoutMs[] = "1000";
constexpr char kQueuedConnections[] = "1024";
// Requests are a line and a few headers.
constexpr char kRequestBytesMax[] = "8192";

// Of an address without a port; one that is mapped to IPv6 counts too.
bool IsLoopbackPeer(absl::string_view address) {
  absl::ConsumePrefix(&address, "[");
  absl::ConsumePrefix(&address, "::ffff:");
  return absl::StartsWith(address, "127.") || address == "::1" ||
         address == "::1]";
}

// civetweb's library state is counted by itself; one count per server.
class CivetwebServer final : public HttpServer {
 public:
  explicit CivetwebServer(Options options) : options_(std::move(options)) {
    mg_init_library(0);
    AddOwnPages();
  }
  ~CivetwebServer() override {
    if (context_ != nullptr) Stop();
    mg_exit_library();
  }

  absl::Status Listen() {
    SYNCLINE_ASSIGN_OR_RETURN(
        HostPort address, ParseHostPort(options_.listen, PortZero::kAllowed));
    const std::string listen = address.ToString();
    const char* settings[] = {"listening_ports",
                              listen.c_str(),
                              "num_threads",
                              kThreads,
                              "connection_queue",
                              kQueuedConnections,
                              "request_timeout_ms",
                              kRequestTimeoutMs,
                              "max_request_size",
                              kRequestBytesMax,
                              "enable_keep_alive",
                              "no",
                              "linger_timeout_ms",
                              "100",
                              nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = &CivetwebServer::OnRequest;
    callbacks.log_message = &CivetwebServer::OnLog;
    context_ = mg_start(&callbacks, this, settings);
    mg_server_port port{};
    if (context_ == nullptr || mg_get_server_ports(context_, 1, &port) < 1) {
      MutexLock lock(&mu_);
      return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ",
                                                 options_.listen, ": ",
                                                 absl::StrJoin(log_, "; ")));
    }
    address.port = static_cast<uint16_t>(port.port);
    address_ = address.ToString();
    knock_host_ = address.IsAnyInterface() ? "localhost" : address.host;
    knock_port_ = address.port;
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }

 private:
  // civetweb looks at its stop flag every 2 s, or when a connection comes: so
  // connections come until it has stopped.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_) {
    ThreadPool stopper("http-stop", 1);
    const bool submitted = stopper.TrySubmit([this] {
      mg_stop(context_);
      MutexLock lock(&mu_);
      stopped_ = true;
      stopped_cv_.Signal();
    });
    SYNCLINE_CHECK(submitted);
    do {
      Knock();
    } while (!AwaitStopped(absl::Milliseconds(20)));
  }

  void Knock() const {
    char error[64];
    mg_connection* connection = mg_connect_client(
        knock_host_.c_str(), knock_port_, /*use_ssl=*/0, error, sizeof(error));
    if (connection != nullptr) mg_close_connection(connection);
  }

  bool AwaitStopped(absl::Duration wait) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = MonotonicNow() + wait;
    MutexLock lock(&mu_);
    while (!stopped_ && MonotonicNow() < deadline) {
      stopped_cv_.WaitUntil(&mu_, deadline);
    }
    return stopped_;
  }

  void AddOwnPages() {
    options_.pages["/healthz"] = [](const Request&) {
      return Response{200, "text/plain; charset=utf-8", "ok\n"};
    };
    options_.pages["/readyz"] = [this](const Request&) {
      const absl::Status ready =
          options_.ready ? options_.ready() : absl::OkStatus();
      return ready.ok() ? Response{200, "text/plain; charset=utf-8", "ok\n"}
                        : Response{503, "text/plain; charset=utf-8",
                                   absl::StrCat(ready.message(), "\n")};
    };
    if (options_.metrics == nullptr) return;
    options_.pages["/metrics"] = [this](const Request&) {
      return Response{200, "text/plain; version=0.0.4; charset=utf-8",
                      options_.metrics->Render()};
    };
  }

  // Null: there is none.
  const Handler* FindPage(const std::string& path) const {
    const auto page = options_.pages.find(path);
    if (page != options_.pages.end()) return &page->second;
    for (size_t end = path.rfind('/'); end != path.npos && end > 0;
         end = path.rfind('/', end - 1)) {
      const auto above = options_.pages.find(path.substr(0, end + 1));
      if (above != options_.pages.end()) return &above->second;
    }
    return nullptr;
  }

  Response Answer(absl::string_view method, const Request& request) const {
    if (method != "GET" && method != "HEAD") {
      return {405, "text/plain; charset=utf-8", "only GET\n"};
    }
    if (const Handler* const page = FindPage(std::string(request.path))) {
      return (*page)(request);
    }
    std::string known = "not found; there are:\n";
    for (const auto& [name, handler] : options_.pages) {
      absl::StrAppend(&known, name, "\n");
    }
    return {404, "text/plain; charset=utf-8", known};
  }

  static int OnRequest(mg_connection* connection) {
    const mg_request_info& request = *mg_get_request_info(connection);
    const auto* self = static_cast<const CivetwebServer*>(request.user_data);
    const absl::string_view method = request.request_method;
    const auto text = [](const char* value) { return value ? value : ""; };
    const Response response = self->Answer(
        method,
        {.path = text(request.local_uri),
         .query = text(request.query_string),
         .authorization = text(mg_get_header(connection, "Authorization")),
         .host = text(mg_get_header(connection, "Host")),
         .from_loopback = IsLoopbackPeer(request.remote_addr)});
    std::string headers;
    for (const auto& [name, value] : response.headers) {
      absl::StrAppend(&headers, name, ": ", value, "\r\n");
    }
    mg_printf(
        connection,
        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        "%sConnection: close\r\n\r\n",
        response.code, mg_get_response_code_text(connection, response.code),
        response.content_type.c_str(), response.body.size(), headers.c_str());
    if (method != "HEAD") {
      mg_write(connection, response.body.data(), response.body.size());
    }
    return response.code;
  }

  static int OnLog(const mg_connection* connection, const char* message) {
    const mg_context* context = mg_get_context(connection);
    auto* self = static_cast<CivetwebServer*>(mg_get_user_data(context));
    if (self == nullptr) return 1;
    MutexLock lock(&self->mu_);
    // Only errors of the start are reported.
    constexpr size_t kMessagesMax = 4;
    if (self->log_.size() < kMessagesMax) self->log_.push_back(message);
    return 1;
  }

  Options options_;  // const after construction
  mg_context* context_ = nullptr;
  std::string address_;
  std::string knock_host_;
  int knock_port_ = 0;
  Mutex mu_;
  CondVar stopped_cv_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::string> log_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options) {
  auto server = std::make_unique<CivetwebServer>(std::move(options));
  SYNCLINE_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace syncline
