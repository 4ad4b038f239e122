#include "scheduler/ctl/folder_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"

namespace syncline::ctl {
namespace {

constexpr char kPartSuffix[] = ".part";
constexpr size_t kRandomDigits = 16;

// " (pid 17)", or nothing where the system does not tell. Its list has lines
// such as "3: FLOCK  ADVISORY  WRITE 17 fe:01:4711 0 EOF".
std::string HolderText(int folder) {
  struct stat info;
  if (fstat(folder, &info) != 0) return "";
  const std::string inode = absl::StrCat(":", info.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 6 || words[1] != "FLOCK" || words[4] == "0") continue;
    if (absl::EndsWith(words[5], inode)) {
      return absl::StrCat(" (pid ", words[4], ")");
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<FolderClaim> FolderClaim::Take(const std::string& folder) {
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(folder));
  FileDescriptor opened(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid()) return FileError(errno, "open", folder);
  if (flock(opened.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(
        absl::StrCat("another synctl", HolderText(opened.get()), " writes to ",
                     folder, "; wait for it, or choose another folder"));
  }
  return FolderClaim(std::move(opened));
}

std::string PartName(const std::string& file) {
  return absl::StrCat(file, ".", absl::Hex(EntropySeed(), absl::kZeroPad16),
                      kPartSuffix);
}

void RemoveParts(const std::string& file) {
  const std::filesystem::path path(file);
  const std::filesystem::path folder = path.parent_path();
  const std::string prefix = absl::StrCat(path.filename().string(), ".");
  std::error_code error;
  std::vector<std::filesystem::path> parts;
  for (const auto& entry : std::filesystem::directory_iterator(
           folder.empty() ? "." : folder, error)) {
    const std::string name = entry.path().filename();
    absl::string_view random = name;
    if (absl::ConsumePrefix(&random, prefix) &&
        absl::ConsumeSuffix(&random, kPartSuffix) &&
        random.size() == kRandomDigits &&
        std::all_of(random.begin(), random.end(), [](char c) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(c));
        })) {
      parts.push_back(entry.path());
    }
  }
  for (const auto& part : parts) std::filesystem::remove(part, error);
}

}  // namespace syncline::ctl
