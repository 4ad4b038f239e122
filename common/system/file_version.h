#ifndef SYNCLINE_COMMON_SYSTEM_FILE_VERSION_H_
#define SYNCLINE_COMMON_SYSTEM_FILE_VERSION_H_

#include <string>

namespace syncline {

// Changes whenever the file at `path` does, also when it comes or goes: for
// files that are read again when they change. Thread-safe.
std::string FileVersion(const std::string& path);
// The same of an open file. A network's file system asks its server when a file
// is opened, and not each time its name is looked at.
std::string FileVersion(int file);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_FILE_VERSION_H_
