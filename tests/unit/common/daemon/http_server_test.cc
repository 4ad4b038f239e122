// Goal: the pages answer with the right codes, readiness is the callback's,
// the port has one owner. Method: a real server on a free port of loopback.

#include "common/daemon/http_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "civetweb.h"
#include "common/base/host_port.h"
#include "common/system/file_descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

struct Reply {
  int code = 0;
  std::string body;
};

Reply Fetch(const std::string& address, const std::string& path,
            const char* method = "GET") {
  const auto target = ParseHostPort(address);
  char error[256] = "";
  mg_connection* connection = mg_connect_client(
      target->host.c_str(), target->port, 0, error, sizeof(error));
  if (connection == nullptr) return {0, error};
  mg_printf(connection,
            "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n",
            method, path.c_str());
  Reply reply;
  if (mg_get_response(connection, error, sizeof(error), 10'000) < 0) {
    reply.body = error;
  } else {
    reply.code = mg_get_response_info(connection)->status_code;
    char buffer[4096];
    int got = 0;
    while ((got = mg_read(connection, buffer, sizeof(buffer))) > 0) {
      reply.body.append(buffer, got);
    }
  }
  mg_close_connection(connection);
  return reply;
}

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    metrics_.AddGauge("syncline_ps_jobs").Set(3);
    HttpServer::Options options;
    options.metrics = &metrics_;
    options.ready = [this] { return ready_; };
    options.pages["/"] = [](const HttpServer::Request& request) {
      return HttpServer::Response{200, "text/html",
                                  absl::StrCat("q=", request.query)};
    };
    options.pages["/jobs/"] = [](const HttpServer::Request& request) {
      return HttpServer::Response{
          200, "text/plain",
          absl::StrCat(request.path, " ", request.authorization, " ",
                       request.host, " ", request.from_loopback)};
    };
    auto server = HttpServer::Start(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = std::move(server).value();
  }
  MetricsRegistry metrics_;
  absl::Status ready_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, APageMayHaveAllPathsBelowIt) {
  EXPECT_EQ(Fetch(server_->address(), "/jobs/j-1/logs.json?x").body,
            "/jobs/j-1/logs.json Bearer t x 1");
  EXPECT_EQ(Fetch(server_->address(), "/jobs").code, 404);
  EXPECT_EQ(Fetch(server_->address(), "/jobsx/y").code, 404);
}

TEST_F(HttpServerTest, ServesMetricsHealthAndPages) {
  EXPECT_EQ(Fetch(server_->address(), "/healthz").code, 200);
  EXPECT_THAT(Fetch(server_->address(), "/metrics").body,
              HasSubstr("syncline_ps_jobs 3\n"));
  const Reply page = Fetch(server_->address(), "/?a=b");
  EXPECT_EQ(page.code, 200);
  EXPECT_EQ(page.body, "q=a=b");
}

// A connection that has sent half a request, or nothing.
FileDescriptor HalfOpen(const std::string& address, absl::string_view sent) {
  const auto target = ParseHostPort(address);
  FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(target->port);
  inet_pton(AF_INET, target->host.c_str(), &to.sin_addr);
  EXPECT_EQ(
      connect(connection.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
      0);
  EXPECT_EQ(send(connection.get(), sent.data(), sent.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(sent.size()));
  return connection;
}

// Otherwise ten half-sent requests would delay a liveness probe until it kills
// the process. A fetch gives up after 10 s.
TEST_F(HttpServerTest, HalfSentRequestsHoldNobodyUp) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 250; ++i) {
    silent.push_back(
        HalfOpen(server_->address(), i % 2 == 0 ? "GET /healthz HTT" : ""));
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Fetch(server_->address(), "/healthz").code, 200);
  }
  // The half-open connections are closed, too.
  char byte = 0;
  EXPECT_GE(recv(silent.front().get(), &byte, 1, 0), 0);
}

TEST_F(HttpServerTest, NotReadyIs503WithTheReasonAndStillHealthy) {
  EXPECT_EQ(Fetch(server_->address(), "/readyz").code, 200);
  ready_ = absl::UnavailableError("not registered");
  const Reply reply = Fetch(server_->address(), "/readyz");
  EXPECT_EQ(reply.code, 503);
  EXPECT_EQ(reply.body, "not registered\n");
  EXPECT_EQ(Fetch(server_->address(), "/healthz").code, 200);
}

TEST_F(HttpServerTest, OtherPathsAndMethodsAreRefused) {
  const Reply reply = Fetch(server_->address(), "/nope");
  EXPECT_EQ(reply.code, 404);
  EXPECT_THAT(reply.body, HasSubstr("/metrics\n"));
  EXPECT_EQ(Fetch(server_->address(), "/../etc/passwd").code, 404);
  EXPECT_EQ(Fetch(server_->address(), "/healthz", "POST").code, 405);
}

TEST_F(HttpServerTest, APortInUseIsNamedWithTheReason) {
  HttpServer::Options options;
  options.listen = server_->address();
  const auto second = HttpServer::Start(std::move(options));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(server_->address()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use"));
}

}  // namespace
}  // namespace syncline
