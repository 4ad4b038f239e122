#include "common/rpc/grpc_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/grpc_timers.h"
#include "common/rpc/steady_event_engine.h"
#include "common/rpc/user_calls.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace syncline {
namespace {

constexpr int kKeepAliveMs = 10'000;
constexpr int kKeepAliveTimeoutMs = 5'000;
constexpr int kReconnectFirstMs = 100;
constexpr int kReconnectMaxMs = 2'000;
constexpr int kConnectTimeoutMs = 5'000;
constexpr int kStreamWindowBytes = 1 << 20;

// As gRPC sets it on the connections that it accepts itself.
void EndWhenSilent(int connection) {
  const int milliseconds = kKeepAliveTimeoutMs;
  setsockopt(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds,
             sizeof(milliseconds));
}

}  // namespace

std::chrono::system_clock::time_point ToGrpcTime(absl::Time monotonic) {
  return absl::ToChronoTime(WallNow() + (monotonic - MonotonicNow()));
}

absl::Time FromGrpcTime(std::chrono::system_clock::time_point time) {
  return MonotonicNow() + (absl::FromChrono(time) - WallNow());
}

std::unique_ptr<grpc::ClientContext> MakeContext(absl::Time deadline) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(ToGrpcTime(deadline));
  return context;
}

std::shared_ptr<grpc::Channel> MakeChannel(
    absl::string_view address, ExpectedPeer peer,
    const std::shared_ptr<const TransportSecurity>& security) {
  UseSteadyEventEngine();
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepAliveMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepAliveTimeoutMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectFirstMs);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  // Pods' names appear in DNS some seconds after the pods; by default a failed
  // look-up is not repeated for 30 s.
  args.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kReconnectMaxMs);
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  args.SetMaxReceiveMessageSize(kMessageBytesMax);
  args.SetMaxSendMessageSize(kMessageBytesMax);
  return grpc::CreateCustomChannel(std::string(address),
                                   security == nullptr
                                       ? grpc::InsecureChannelCredentials()
                                       : security->Channel(peer),
                                   args);
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server,
                       std::unique_ptr<ConnectionAcceptor> acceptor)
    : server_(std::move(server)), acceptor_(std::move(acceptor)) {}

GrpcServer::~GrpcServer() { acceptor_->Stop(); }

void GrpcServer::Shutdown(std::chrono::system_clock::time_point deadline) {
  acceptor_->Stop();
  server_->Shutdown(deadline);
}

void GrpcServer::Shutdown() {
  acceptor_->Stop();
  server_->Shutdown();
}

absl::StatusOr<ListeningServer> StartServer(
    grpc::ServerBuilder* builder, absl::string_view listen_address,
    const std::shared_ptr<const TransportSecurity>& security) {
  SYNCLINE_ASSIGN_OR_RETURN(const HostPort address,
                            ParseHostPort(listen_address, PortZero::kAllowed));
  UseSteadyEventEngine();
  // Half of what our clients do, or their pings count as abuse.
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepAliveMs / 2);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepAliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              kKeepAliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  // gRPC's own estimate lets a client send many large messages at once, which
  // then lie in memory half received.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                              kStreamWindowBytes);
  if (security != nullptr) {
    // A peer that lost its right to be here keeps its connection no longer.
    // Calls that run are given as long again to end.
    const int age_ms = static_cast<int>(
        absl::ToInt64Milliseconds(security->connection_age_max()));
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, age_ms);
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, age_ms);
  }
  // gRPC inflates a message before it looks at its size, or at the token: a few
  // KiB would take all memory. Our clients compress none.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  for (const grpc_compression_algorithm algorithm :
       {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder->SetMaxReceiveMessageSize(kMessageBytesMax);
  builder->SetMaxSendMessageSize(kMessageBytesMax);
  const auto cannot_listen = [&](absl::string_view why) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen_address, ": ", why));
  };
  auto acceptor = ConnectionAcceptor::Listen(address);
  if (!acceptor.ok()) return cannot_listen(acceptor.status().message());
  // Shared with the acceptor's thread, which Shutdown ends.
  const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> taker =
      builder->experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::
              FROM_FD,
          security != nullptr  ? security->Server()
          : PeopleNeedTokens() ? LoopbackCredentials()
                               : grpc::InsecureServerCredentials());
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  if (server == nullptr) return cannot_listen("gRPC could not start a server");
  const int listener = (*acceptor)->listener();
  (*acceptor)->Start([taker, listener](FileDescriptor connection) {
    EndWhenSilent(connection.get());
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
        taken;
    taken.listener_fd = listener;
    taken.fd = connection.Release();
    taker->HandleNewConnection(&taken);
  });
  ListeningServer listening;
  listening.address = (*acceptor)->address().ToString();
  listening.server =
      std::make_unique<GrpcServer>(std::move(server), *std::move(acceptor));
  return listening;
}

}  // namespace syncline
