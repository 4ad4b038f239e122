#include "common/security/reloaded_file.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/file_version.h"
#include "common/system/log.h"

namespace syncline {

absl::Status CheckHasText(absl::string_view text, absl::string_view meaning) {
  if (!absl::StripAsciiWhitespace(text).empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "it is empty; a file with a comment line (#) says that ", meaning));
}

absl::Status ReloadedFile::Look(
    absl::FunctionRef<absl::Status(absl::string_view)> take, absl::Time now) {
  const std::string version = FileVersion(path_);
  if (version == version_) {
    if (!unusable_.ok()) LogUnusable(now);
    return absl::OkStatus();
  }
  const absl::Status read = Read(take);
  if (read.ok()) {
    unusable_ = absl::OkStatus();
    logged_version_.clear();
    if (std::exchange(was_taken_, true)) {
      LogInfo(absl::StrCat(what_, " read again")).Field("file", path_);
    }
    return absl::OkStatus();
  }
  if (!was_taken_) {
    // The caller, which opens the file, may try again.
    version_.clear();
    return read;
  }
  unusable_ = read;
  if (std::exchange(logged_version_, version) != version) {
    logged_at_ = absl::InfinitePast();
  }
  LogUnusable(now);
  return absl::OkStatus();
}

void ReloadedFile::LogUnusable(absl::Time now) {
  if (now < logged_at_ + kLogPeriod) return;
  logged_at_ = now;
  LogError(absl::StrCat(what_, " stay as they were: their file cannot be used"))
      .Status(unusable_);
}

absl::Status ReloadedFile::Read(
    absl::FunctionRef<absl::Status(absl::string_view)> take) {
  version_ = FileVersion(path_);
  const auto text = ReadFile(path_, bytes_max_);
  if (!text.ok()) {
    // The next read of the same file may go well.
    version_.clear();
    return text.status();
  }
  return Annotate(take(*text), path_);
}

}  // namespace syncline
