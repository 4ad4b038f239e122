#ifndef SYNCLINE_COMMON_SYSTEM_LOG_SPLICER_H_
#define SYNCLINE_COMMON_SYSTEM_LOG_SPLICER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace syncline {

// Joins the log of a task where it was left: a log that is read again, from its
// begin, gives only what came after. Lines begin with ts=TIME, which grows.
// Thread-compatible.
class LogSplicer {
 public:
  // Reading begins anew.
  void Restart() { skips_ = has_lines(); }
  bool has_lines() const { return !last_line_.empty(); }
  // The part of `text`, whole lines, that was not given before.
  std::string Take(absl::string_view text);

 private:
  std::string last_line_;
  bool skips_ = false;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_LOG_SPLICER_H_
