#ifndef SYNCLINE_COMMON_SECURITY_RELOADED_FILE_H_
#define SYNCLINE_COMMON_SECURITY_RELOADED_FILE_H_

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace syncline {

// InvalidArgument if a file has nothing but white space: an editor or a full
// disk has cut it off. `meaning` is what a file with a comment alone says:
// "there are no limits".
absl::Status CheckHasText(absl::string_view text, absl::string_view meaning);

// A small text file that is read again when it changes. The content that could
// be used last stays in force while the file is broken or away. Each broken
// version is an error in the log, with the path and the cause, and again each
// kLogPeriod while it lasts and somebody looks.
// Thread-compatible; blocks on the disk.
class ReloadedFile {
 public:
  static constexpr absl::Duration kLogPeriod = absl::Hours(1);

  // `what` names the content in the log: "tokens".
  ReloadedFile(std::string path, size_t bytes_max, std::string what)
      : path_(std::move(path)), bytes_max_(bytes_max), what_(std::move(what)) {}

  // Hands the content to `take` if the file has changed since it was read. An
  // error of `take` says that the content cannot be used, and that nothing has
  // changed; it names the line. `now` is by the monotonic clock.
  // Errors: those of reading the file and of `take`, with the path, as long as
  // no content was taken. Afterwards always OK.
  absl::Status Look(absl::FunctionRef<absl::Status(absl::string_view)> take,
                    absl::Time now = MonotonicNow());

  const std::string& path() const { return path_; }
  // Whether the file could be used when it was last looked at.
  bool is_usable() const { return unusable_.ok(); }

 private:
  void LogUnusable(absl::Time now);
  absl::Status Read(absl::FunctionRef<absl::Status(absl::string_view)> take);

  const std::string path_;
  const size_t bytes_max_;
  const std::string what_;
  bool was_taken_ = false;
  // Of the file that was read; empty: reading failed, and is tried again.
  std::string version_;
  // Of the file that cannot be used.
  absl::Status unusable_;  // OK: it can
  std::string logged_version_;
  absl::Time logged_at_ = absl::InfinitePast();
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SECURITY_RELOADED_FILE_H_
