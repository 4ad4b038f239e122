#ifndef SYNCLINE_COMMON_RPC_GRPC_STATUS_H_
#define SYNCLINE_COMMON_RPC_GRPC_STATUS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace syncline {

// An error travels in HTTP/2 trailers, and a trailer that is larger than the
// receiver allows replaces the error by one of its own. So messages are cut to
// this (the end says how much is missing), payloads beyond it are left out, and
// our channels allow kMetadataBytesMax.
inline constexpr size_t kStatusBytesMax = 16 << 10;
inline constexpr int kMetadataBytesMax = 128 << 10;

// The one translation each way between absl::Status and gRPC's; codes have the
// same numbers, payloads travel in error details.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_GRPC_STATUS_H_
