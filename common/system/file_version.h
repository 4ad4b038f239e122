#ifndef SYNCLINE_COMMON_SYSTEM_FILE_VERSION_H_
#define SYNCLINE_COMMON_SYSTEM_FILE_VERSION_H_

#include <string>

namespace syncline {

// Changes whenever the file at `path` does, also when it comes or goes: for
// files that are read again when they change. Thread-safe.
std::string FileVersion(const std::string& path);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_FILE_VERSION_H_
