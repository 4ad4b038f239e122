#ifndef SYNCLINE_COMMON_CLUSTER_DECLARED_SIZE_H_
#define SYNCLINE_COMMON_CLUSTER_DECLARED_SIZE_H_

// The bytes of a file that a call uploads, as its metadata say before its first
// message: "syncline-file-bytes: 1048576". The receiver can then refuse a file
// that it has no room for before any of it is sent, and notices one that is cut
// short or goes on.

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/statusor.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/string_ref.h"

namespace syncline {

// REQUIRES: the call has not begun.
void DeclareFileBytes(uint64_t bytes, grpc::ClientContext* context);

// From a server context's client_metadata(); none: nothing is declared. Errors:
// InvalidArgument: no number of bytes, or several.
absl::StatusOr<std::optional<uint64_t>> DeclaredFileBytes(
    const std::multimap<grpc::string_ref, grpc::string_ref>& metadata);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CLUSTER_DECLARED_SIZE_H_
