#ifndef SYNCLINE_WORKER_DATA_READING_BOUNDARY_H_
#define SYNCLINE_WORKER_DATA_READING_BOUNDARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/system/file_descriptor.h"
#include "worker/data/reading/data_root.h"

namespace syncline::worker {

// Files below a bounded DataRoot. A path is followed one name at a time, from
// the root on and through open folders, and each symbolic link is read and
// followed by this class. So nothing outside the root is opened or looked at,
// also if a link is changed meanwhile. A path that leads
// outside gets the same error whether or not a file is there. A link may be
// absolute if it names the root as the root is named, or by its real path.
//
// `path` is absolute. Errors: PermissionDenied (it leads outside, or may not be
// read), NotFound; InvalidArgument: not a regular file.

// Opens a regular file for reading.
absl::StatusOr<FileDescriptor> OpenWithin(const DataRoot& root,
                                          const std::string& path);

// The paths that match `pattern`, which has * ? or [, in byte order; empty:
// there is none. Error: PermissionDenied: a part of the pattern leads outside,
// to whatever place.
absl::StatusOr<std::vector<std::string>> MatchWithin(
    const DataRoot& root, const std::string& pattern);

// The error for a path that leads outside. It does not tell what is there.
absl::Status OutsideError(absl::string_view path);
bool IsOutside(const absl::Status& status);
// Of these: it leads into the folder of tenants' data.
bool LeadsToTenants(const absl::Status& status);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_READING_BOUNDARY_H_
