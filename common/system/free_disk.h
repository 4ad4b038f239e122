#ifndef SYNCLINE_COMMON_SYSTEM_FREE_DISK_H_
#define SYNCLINE_COMMON_SYSTEM_FREE_DISK_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace syncline {

// Bytes that this process may still write below `folder`, which is made if it
// is not there. Errors: NotFound, PermissionDenied and others by errno, naming
// the folder: it cannot be made or written to.
absl::StatusOr<uint64_t> FreeDiskBytes(const std::string& folder);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_FREE_DISK_H_
