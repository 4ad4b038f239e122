#ifndef SYNCLINE_COMMON_RPC_GRPC_CHANNEL_H_
#define SYNCLINE_COMMON_RPC_GRPC_CHANNEL_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/rpc/connection_acceptor.h"
#include "common/rpc/transport_security.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_builder.h"

namespace syncline {

// The largest message that is sent or taken, header included: gRPC's default,
// so that any generated client fits in.
inline constexpr int kMessageBytesMax = 4 << 20;

// gRPC takes deadlines by the wall clock and turns them into monotonic ones at
// once. These two convert at that moment from and to MonotonicNow()'s time.
std::chrono::system_clock::time_point ToGrpcTime(absl::Time monotonic);
absl::Time FromGrpcTime(std::chrono::system_clock::time_point time);

// The only way to a ClientContext: every call has a deadline, of
// MonotonicNow().
std::unique_ptr<grpc::ClientContext> MakeContext(absl::Time deadline);

// A channel with keep-alive, no proxy, and the message limits of this project.
// A peer that is silently gone (power, network) breaks its calls within about
// 15 s; one that comes back is connected to again within about 2 s. Never
// fails; calls on it do. Channels to one address and peer share a connection.
// With TLS, whoever answers must be `peer`. `security` null: plain text.
std::shared_ptr<grpc::Channel> MakeChannel(
    absl::string_view address, ExpectedPeer peer = ExpectedPeer::kMember,
    const std::shared_ptr<const TransportSecurity>& security =
        ProcessSecurity());

// A running gRPC server with the port that its connections come from. It goes
// on when there was no file descriptor for a connection. Thread-safe.
class GrpcServer {
 public:
  // Both outlive their parts. REQUIRES: none is null.
  GrpcServer(std::unique_ptr<grpc::Server> server,
             std::unique_ptr<ConnectionAcceptor> acceptor);
  ~GrpcServer();

  // Closes the port, then waits for the calls; those that are left at the
  // deadline are cancelled. At most once.
  void Shutdown(std::chrono::system_clock::time_point deadline);
  void Shutdown();
  // Until Shutdown.
  void Wait() { server_->Wait(); }
  // Null where there is none.
  grpc::HealthCheckServiceInterface* GetHealthCheckService() const {
    return server_->GetHealthCheckService();
  }

 private:
  const std::unique_ptr<grpc::Server> server_;
  const std::unique_ptr<ConnectionAcceptor> acceptor_;
};

// A listening port. gRPC lets two servers share a port silently; this does not.
// Usage:
//   grpc::ServerBuilder builder;  builder.RegisterService(&service);
//   SYNCLINE_ASSIGN_OR_RETURN(auto server, StartServer(&builder,
//   "127.0.0.1:0"));
struct ListeningServer {
  std::unique_ptr<GrpcServer> server;
  std::string address;  // host:port with the real port
};
// Errors: InvalidArgument: not an address; Unavailable: it cannot be bound (in
// use, not local), named with the reason. `security` null: plain text.
absl::StatusOr<ListeningServer> StartServer(
    grpc::ServerBuilder* builder, absl::string_view listen_address,
    const std::shared_ptr<const TransportSecurity>& security =
        ProcessSecurity());

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_GRPC_CHANNEL_H_
