#include "common/rpc/grpc_channel.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_status.h"
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

// gRPC says only that it failed; the system says why.
std::string WhyNotBound(const HostPort& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int resolved = getaddrinfo(
      address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (resolved != 0) return gai_strerror(resolved);
  std::string why = "gRPC could not start a server on it";
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0) {
      why = std::strerror(errno);
    } else if (listen(fd, 1) != 0) {
      why = std::strerror(errno);
    }
    close(fd);
  }
  freeaddrinfo(found);
  return why;
}

}  // namespace

std::chrono::system_clock::time_point ToGrpcTime(absl::Time monotonic) {
  return absl::ToChronoTime(absl::Now() + (monotonic - MonotonicNow()));
}

absl::Time FromGrpcTime(std::chrono::system_clock::time_point time) {
  return MonotonicNow() + (absl::FromChrono(time) - absl::Now());
}

std::unique_ptr<grpc::ClientContext> MakeContext(absl::Time deadline) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(ToGrpcTime(deadline));
  return context;
}

std::shared_ptr<grpc::Channel> MakeChannel(absl::string_view address) {
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
                                   grpc::InsecureChannelCredentials(), args);
}

absl::StatusOr<ListeningServer> StartServer(grpc::ServerBuilder* builder,
                                            absl::string_view listen_address) {
  SYNCLINE_ASSIGN_OR_RETURN(HostPort address,
                            ParseHostPort(listen_address, PortZero::kAllowed));
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
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
  builder->SetMaxReceiveMessageSize(kMessageBytesMax);
  builder->SetMaxSendMessageSize(kMessageBytesMax);
  int port = 0;
  builder->AddListeningPort(address.ToString(),
                            grpc::InsecureServerCredentials(), &port);
  ListeningServer listening;
  listening.server = builder->BuildAndStart();
  if (listening.server == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", listen_address, ": ", WhyNotBound(address)));
  }
  address.port = static_cast<uint16_t>(port);
  listening.address = address.ToString();
  return listening;
}

}  // namespace syncline
