#ifndef SYNCLINE_COMMON_BASE_HOST_PORT_H_
#define SYNCLINE_COMMON_BASE_HOST_PORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

// An address as people write it: "host:2222", "10.0.0.7:2222", "[::1]:2222".
struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;

  // Brackets around IPv6.
  std::string ToString() const;
  // 127.0.0.0/8, ::1 or localhost: other hosts cannot reach it.
  bool IsLoopback() const;
  // 0.0.0.0 or ::, which name every interface and no peer.
  bool IsAnyInterface() const;
};

// Checks the form, resolves nothing. Port 0 is for listening only ("any free
// port"), so it is refused unless asked for. Errors: InvalidArgument, saying
// what is wrong with `text`.
enum class PortZero { kRefused, kAllowed };
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text,
                                       PortZero port_zero = PortZero::kRefused);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_HOST_PORT_H_
