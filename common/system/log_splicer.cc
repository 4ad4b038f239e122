#include "common/system/log_splicer.h"

#include <cstddef>

#include "absl/strings/strip.h"

namespace syncline {
namespace {

// "2026-11-21T08:30:00.123Z" of "ts=... level=..."; empty: it has none.
absl::string_view TimeOf(absl::string_view line) {
  if (!absl::ConsumePrefix(&line, "ts=")) return "";
  return line.substr(0, line.find(' '));
}

}  // namespace

std::string LogSplicer::Take(absl::string_view text) {
  const absl::string_view last_time = TimeOf(last_line_);
  while (skips_ && !text.empty()) {
    const size_t end = text.find('\n');
    const absl::string_view line = text.substr(0, end);
    const absl::string_view time = TimeOf(line);
    if (!last_time.empty() && time > last_time) {
      skips_ = false;  // the last line is gone, and this one is later
      break;
    }
    skips_ = line != last_line_;
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  if (text.empty()) return "";
  absl::string_view lines = absl::StripSuffix(text, "\n");
  const size_t begin = lines.rfind('\n');
  last_line_ =
      std::string(begin == lines.npos ? lines : lines.substr(begin + 1));
  return std::string(text);
}

}  // namespace syncline
