// Goal: a server takes connections again after there was no file descriptor for
// one, and keeps some for files. Method: a gRPC server on loopback, and a limit
// of open files that raw connections of the test use up. They are of the same
// process, so that the limit is met on both sides.

#include "common/rpc/connection_acceptor.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"

namespace syncline {
namespace {

// Nothing but the answer "unimplemented".
class NoJobs final : public Jobs::Service {};

absl::Status Call(const std::string& address) {
  const auto stub = Jobs::NewStub(MakeChannel(address));
  const auto context = MakeContext(MonotonicNow() + absl::Seconds(60));
  context->set_wait_for_ready(true);
  JobStatus response;
  return FromGrpcStatus(stub->Get(context.get(), GetRequest(), &response));
}

FileDescriptor Connect(const std::string& address) {
  FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection.valid()) return connection;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(ParseHostPort(address)->port);
  if (connect(connection.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) !=
      0) {
    return FileDescriptor();
  }
  return connection;
}

// The peer has closed it; gRPC's greeting may come first.
bool IsClosedByPeer(int connection) {
  pollfd waited{connection, POLLIN, 0};
  char bytes[256];
  while (poll(&waited, 1, 30'000) > 0) {
    if (read(connection, bytes, sizeof(bytes)) <= 0) return true;
  }
  return false;
}

class ConnectionAcceptorTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.RegisterService(&jobs_);
    auto started = StartServer(&builder, "127.0.0.1:0");
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    EXPECT_EQ(Call(server_.address).code(), absl::StatusCode::kUnimplemented);
  }
  void TearDown() override {
    setrlimit(RLIMIT_NOFILE, &before_);
    if (server_.server != nullptr)
      server_.server->Shutdown(ToGrpcTime(MonotonicNow()));
  }
  // Of descriptors, counted from the first that is free.
  void LeaveFiles(int count) {
    const FileDescriptor free(dup(0));
    ASSERT_TRUE(free.valid());
    rlimit low = before_;
    low.rlim_cur = static_cast<rlim_t>(free.get()) + static_cast<rlim_t>(count);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  }

  NoJobs jobs_;
  ListeningServer server_;
  rlimit before_{};
};

TEST_F(ConnectionAcceptorTest, ItServesAgainAfterThereWasNoDescriptor) {
  LeaveFiles(60);
  std::vector<FileDescriptor> connections;
  for (;;) {
    FileDescriptor connection = Connect(server_.address);
    if (!connection.valid()) break;
    connections.push_back(std::move(connection));
  }
  EXPECT_EQ(errno, EMFILE);
  EXPECT_GT(connections.size(), 15u);
  connections.clear();
  EXPECT_EQ(Call(server_.address).code(), absl::StatusCode::kUnimplemented);
}

TEST_F(ConnectionAcceptorTest, TheNewestAboveTheLimitAreClosed) {
  LeaveFiles(60);
  const int most = OpenConnectionsMax();
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_LT(most, static_cast<int>(now.rlim_cur));
  std::vector<FileDescriptor> used;  // up to the reserve
  do {
    used.emplace_back(dup(0));
    ASSERT_TRUE(used.back().valid());
  } while (used.back().get() < most);
  const FileDescriptor refused = Connect(server_.address);
  ASSERT_TRUE(refused.valid());
  EXPECT_TRUE(IsClosedByPeer(refused.get()));
  used.clear();
  EXPECT_EQ(Call(server_.address).code(), absl::StatusCode::kUnimplemented);
}

TEST_F(ConnectionAcceptorTest, AStoppedServerLeavesThePortToTheNext) {
  server_.server->Shutdown(ToGrpcTime(MonotonicNow()));
  server_.server.reset();
  NoJobs jobs;
  grpc::ServerBuilder builder;
  builder.RegisterService(&jobs);
  const auto next = StartServer(&builder, server_.address);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->address, server_.address);
  EXPECT_EQ(Call(next->address).code(), absl::StatusCode::kUnimplemented);
}

TEST(ListenTest, EveryInterfaceIsBothFamilies) {
  const auto acceptor = ConnectionAcceptor::Listen({"0.0.0.0", 0});
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  EXPECT_NE((*acceptor)->address().port, 0);
  EXPECT_TRUE(
      Connect(absl::StrCat("127.0.0.1:", (*acceptor)->address().port)).valid());
}

TEST(ListenTest, ANameIsBoundOnAllItsAddresses) {
  const auto acceptor = ConnectionAcceptor::Listen({"localhost", 0});
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  EXPECT_TRUE(
      Connect(absl::StrCat("127.0.0.1:", (*acceptor)->address().port)).valid());
}

}  // namespace
}  // namespace syncline
