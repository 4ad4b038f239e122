#include "common/rpc/grpc_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/utf8.h"
#include "common/rpc/transport_security.h"
#include "proto/status.pb.h"

namespace syncline {
namespace {

constexpr char kUnknownCall[] =
    "what answers there does not have this call: it is another kind of daemon, "
    "or one of another release";

// Cuts between characters: gRPC and the details want UTF-8.
std::string Shortened(absl::string_view text) {
  const std::string message = Utf8Text(text);
  if (message.size() <= kStatusBytesMax) return message;
  size_t kept = kStatusBytesMax;
  while (kept > 0 && (message[kept] & 0xc0) == 0x80) --kept;
  return absl::StrCat(absl::string_view(message).substr(0, kept), " ... and ",
                      message.size() - kept, " bytes more");
}

// A hint at what gRPC's reason for a failed connection is likely to mean, where
// one end speaks TLS and the other does not. Empty: none.
absl::string_view TlsHint(absl::string_view message) {
  if (!absl::StrContains(message, "failed to connect")) return "";
  if (absl::StrContains(message, "wrong version number") ||
      absl::StrContains(message, "WRONG_VERSION_NUMBER")) {
    return "; perhaps it is without TLS: start it with --tls-cert, or leave "
           "--tls-cert out here";
  }
  const bool closed = absl::StrContains(message, "Socket closed") ||
                      absl::StrContains(message, "Connection reset") ||
                      absl::StrContains(message, "SETTINGS frame");
  if (!closed) return "";
  return ProcessSecurity() == nullptr
             ? "; perhaps it wants TLS: give --tls-cert, --tls-key and --tls-ca"
             : "; perhaps it does not believe this process's certificate";
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = Shortened(status.message());
  StatusDetails details;
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    auto* any = details.add_details();
    any->set_type_url(std::string(type));
    any->set_value(std::string(payload));
  });
  std::string serialized;
  if (details.details_size() > 0) {
    details.set_code(static_cast<int>(status.code()));
    details.set_message(message);
    serialized = details.SerializeAsString();
    if (serialized.size() > 2 * kStatusBytesMax) serialized.clear();
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message,
                      serialized);
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // gRPC says nothing more of a call that a server does not have.
  const bool unknown_call = status.error_message().empty() &&
                            status.error_code() == grpc::UNIMPLEMENTED;
  absl::Status converted(static_cast<absl::StatusCode>(status.error_code()),
                         unknown_call
                             ? std::string(kUnknownCall)
                             : absl::StrCat(status.error_message(),
                                            TlsHint(status.error_message())));
  StatusDetails details;
  if (details.ParseFromString(status.error_details())) {
    for (const auto& any : details.details()) {
      converted.SetPayload(any.type_url(), absl::Cord(any.value()));
    }
  }
  return converted;
}

}  // namespace syncline
