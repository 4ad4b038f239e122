#ifndef SYNCLINE_COMMON_RPC_GRPC_STATUS_H_
#define SYNCLINE_COMMON_RPC_GRPC_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace syncline {

// The one translation each way between absl::Status and gRPC's; codes have the
// same numbers, payloads travel in error details.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_GRPC_STATUS_H_
