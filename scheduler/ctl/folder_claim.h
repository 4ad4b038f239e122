#ifndef SYNCLINE_SCHEDULER_CTL_FOLDER_CLAIM_H_
#define SYNCLINE_SCHEDULER_CTL_FOLDER_CLAIM_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/system/file_descriptor.h"

namespace syncline::ctl {

// Keeps other runs of synctl out of a folder for as long as this lives. The
// lock is the folder's own, so that it leaves no file behind. Move-only.
class FolderClaim {
 public:
  // Creates the folder where there is none. A file system without such locks
  // lets every claim pass. Errors, naming the folder: FailedPrecondition:
  // another synctl has it, with its process id where the system tells it;
  // those of the file system: the folder cannot be created or opened.
  static absl::StatusOr<FolderClaim> Take(const std::string& folder);

 private:
  explicit FolderClaim(FileDescriptor folder) : folder_(std::move(folder)) {}

  FileDescriptor folder_;  // open, and locked
};

// "FILE.RANDOM.part": a name for the file while it is written, which no other
// process uses.
std::string PartName(const std::string& file);
// Removes the parts of `file` that killed processes have left beside it.
// REQUIRES: no other process writes to the folder.
void RemoveParts(const std::string& file);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_FOLDER_CLAIM_H_
