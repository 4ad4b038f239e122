#include "common/base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

absl::Status Bad(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is not an address: ", why, " (expected host:port)"));
}

bool IsIpv6(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// The names that DNS and Kubernetes allow, and underscores, which some networks
// use.
bool IsHostName(absl::string_view host) {
  constexpr size_t kHostBytesMax = 253;
  if (host.empty() || host.size() > kHostBytesMax) return false;
  if (host.front() == '-' || host.front() == '.') return false;
  return std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
  });
}

absl::StatusOr<uint16_t> ParsePort(absl::string_view text,
                                   absl::string_view digits,
                                   PortZero port_zero) {
  const bool is_number = !digits.empty() && digits.size() <= 5 &&
                         std::all_of(digits.begin(), digits.end(), [](char c) {
                           return absl::ascii_isdigit(c);
                         });
  int port = 0;
  const int lowest = port_zero == PortZero::kAllowed ? 0 : 1;
  if (!is_number || !absl::SimpleAtoi(digits, &port) || port < lowest ||
      port > 65535) {
    return Bad(text, absl::StrCat("port \"", digits, "\" is not in ", lowest,
                                  "..65535"));
  }
  return static_cast<uint16_t>(port);
}

}  // namespace

std::string HostPort::ToString() const {
  return IsIpv6(host) ? absl::StrCat("[", host, "]:", port)
                      : absl::StrCat(host, ":", port);
}

bool HostPort::IsLoopback() const {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  return host == "::1" || host == "localhost";
}

bool HostPort::IsAnyInterface() const {
  return host == "0.0.0.0" || host == "::";
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text,
                                       PortZero port_zero) {
  if (absl::StrContains(text, "://")) {
    return Bad(text, "it must have no scheme");
  }
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return Bad(text, "it has no port");
  absl::string_view host = text.substr(0, colon);
  if (host.empty()) return Bad(text, "it has no host");
  const bool bracketed =
      host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  HostPort parsed;
  parsed.host = std::string(host);
  if (bracketed ? !IsIpv6(parsed.host) : !IsHostName(host)) {
    return Bad(text, absl::StrCat("host \"", host, "\" is not valid"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(parsed.port,
                            ParsePort(text, text.substr(colon + 1), port_zero));
  return parsed;
}

}  // namespace syncline
