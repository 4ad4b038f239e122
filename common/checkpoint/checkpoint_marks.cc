#include "common/checkpoint/checkpoint_marks.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"

namespace syncline {
namespace {

constexpr CheckpointMark kMarks[] = {CheckpointMark::kBeingRead,
                                     CheckpointMark::kBest};

std::string PathOf(const std::string& checkpoint, CheckpointMark mark) {
  return absl::StrCat(checkpoint, mark == CheckpointMark::kBest
                                      ? "/keep-best"
                                      : "/keep-being-read");
}

}  // namespace

absl::Status SetMark(const std::string& checkpoint, CheckpointMark mark) {
  const std::string path = PathOf(checkpoint, mark);
  const FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  return file.valid() ? absl::OkStatus() : FileError(errno, "create", path);
}

absl::Status ClearMark(const std::string& checkpoint, CheckpointMark mark) {
  const std::string path = PathOf(checkpoint, mark);
  if (unlink(path.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR) {
    return absl::OkStatus();
  }
  return FileError(errno, "remove", path);
}

bool IsMarked(const std::string& checkpoint) {
  for (const CheckpointMark mark : kMarks) {
    if (access(PathOf(checkpoint, mark).c_str(), F_OK) == 0) return true;
  }
  return false;
}

void ClearMarksOfJob(const std::string& job_folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(job_folder, error);
       !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!CheckpointName::Parse(entry->path().filename().string())) continue;
    for (const CheckpointMark mark : kMarks)
      ClearMark(path, mark).IgnoreError();
  }
}

}  // namespace syncline
