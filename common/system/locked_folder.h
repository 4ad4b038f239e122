#ifndef SYNCLINE_COMMON_SYSTEM_LOCKED_FOLDER_H_
#define SYNCLINE_COMMON_SYSTEM_LOCKED_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/system/file_descriptor.h"

namespace syncline {

// A folder for files of one process that are useless after its end:
// ROOT/NAME, locked by ROOT/NAME.lock for as long as this lives. The folder is
// locked too, in case the lock file is deleted. Both are removed at the end. A
// killed process leaves them behind with free locks. Thread-safe.
//
// ROOT is to be of this host: over a network file system a lock may exclude
// processes of the same host only, and then two hosts take, and remove, each
// other's folders.
class LockedFolder {
 public:
  // Creates `root` and the folder, empty: what an earlier process left in it is
  // removed. Errors, naming the path: those of the file system when it cannot
  // be made or written; PermissionDenied: it is another user's, or a link;
  // Unavailable: another process has it.
  static absl::StatusOr<std::unique_ptr<LockedFolder>> Open(
      const std::string& root, absl::string_view name);
  // The first of PREFIX0, PREFIX1 ... that no other process or user has.
  static absl::StatusOr<std::unique_ptr<LockedFolder>> OpenFirst(
      const std::string& root, absl::string_view prefix);
  // Removes what killed processes of this user have left in `root`: folders and
  // locks whose names begin with `prefix`, but those that are in use, another
  // user's, or links. Returns how many; what cannot be removed stays.
  static int RemoveLeftovers(const std::string& root, absl::string_view prefix);
  ~LockedFolder();
  LockedFolder(const LockedFolder&) = delete;
  LockedFolder& operator=(const LockedFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  LockedFolder(std::string path, FileDescriptor lock, FileDescriptor folder)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        folder_(std::move(folder)) {}

  const std::string path_;
  const FileDescriptor lock_;    // of the open lock file
  const FileDescriptor folder_;  // locked too; not valid where that is not done
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_LOCKED_FOLDER_H_
