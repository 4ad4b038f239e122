#ifndef SYNCLINE_COMMON_SYSTEM_SECRET_FILE_H_
#define SYNCLINE_COMMON_SYSTEM_SECRET_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace syncline {

// As WriteFileAtomically, but only the owner may read the file, from its first
// byte on and whatever the umask and the file that it replaces allow. A file
// that it replaces gives it its owner and its group: who could read the old one
// as its owner can read the new one, also where root writes it. Errors:
// FileError's; PermissionDenied: this process may not give the file to that
// owner. Then the old file stays.
absl::Status WriteSecretFile(const std::string& path,
                             absl::string_view content);

// The same, but a file that it replaces also gives it its mode: whoever could
// read the old one can read the new one. A new file is its owner's alone.
absl::Status ReplaceSecretFile(const std::string& path,
                               absl::string_view content);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_SECRET_FILE_H_
