#ifndef SYNCLINE_COMMON_WIRE_ROUTING_VERSION_H_
#define SYNCLINE_COMMON_WIRE_ROUTING_VERSION_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace syncline {

// The detail of an Aborted call: the version of the routing that the ps is at,
// in decimal. The routing itself may be larger than an error may be, so callers
// ask for it (GetRouting in proto/parameter_server.proto).
inline constexpr char kRoutingVersionDetail[] = "syncline/routing_version";

// `refusal` with the detail.
absl::Status WithRoutingVersion(absl::Status refusal, uint64_t version);

// None: not an Aborted error with that detail.
std::optional<uint64_t> RoutingVersionOf(const absl::Status& refusal);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_ROUTING_VERSION_H_
