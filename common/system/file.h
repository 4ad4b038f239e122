#ifndef SYNCLINE_COMMON_SYSTEM_FILE_H_
#define SYNCLINE_COMMON_SYSTEM_FILE_H_

// Whole-file operations. Errors carry errno's code (NotFound, PermissionDenied,
// ResourceExhausted for a full disk ...) and name the path:
//
//   cannot read "jobs/mnist.json": No such file or directory

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

// `error_number`'s code, and "cannot VERB "PATH": text".
absl::Status FileError(int error_number, absl::string_view verb,
                       absl::string_view path);

// The content of a regular file of at most `bytes_max` bytes. Errors besides
// errno's: FailedPrecondition: a directory, pipe or device; ResourceExhausted:
// larger.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t bytes_max);

// Replaces or creates `path` such that readers, also those after a crash, see
// either the old content or the new: written beside it, synced, renamed.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view content);

absl::StatusOr<uint64_t> FileSize(const std::string& path);

// Creates the directory and those above it; fine if it is there.
absl::Status MakeDirs(const std::string& path);

// Removes a file or a directory with all that is in it; fine if it is not
// there. Does not follow links.
absl::Status RemoveTree(const std::string& path);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_FILE_H_
