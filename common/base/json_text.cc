#include "common/base/json_text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/base/utf8.h"

namespace syncline {

std::string JsonQuoted(absl::string_view text) {
  std::string quoted = "\"";
  const std::string valid = Utf8Text(text);
  // Readers of a file see what it says, and a terminal is not steered by it.
  for (absl::string_view rest = valid; !rest.empty();) {
    const FrontCharacter next = FrontOf(rest);
    if (next.code == '"' || next.code == '\\') {
      absl::StrAppend(&quoted, "\\", rest.substr(0, 1));
    } else if (next.escaped || next.code < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", next.code);
    } else {
      absl::StrAppend(&quoted, rest.substr(0, next.bytes));
    }
    rest.remove_prefix(next.bytes);
  }
  quoted.push_back('"');
  return quoted;
}

std::string JsonNumber(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.15g", value) : "null";
}

std::string JsonArray(const std::vector<std::string>& values) {
  return absl::StrCat("[", absl::StrJoin(values, ","), "]");
}

JsonObject& JsonObject::Count(absl::string_view key, int64_t value) {
  return Raw(key, absl::StrCat(value));
}

JsonObject& JsonObject::Raw(absl::string_view key, absl::string_view value) {
  absl::StrAppend(&members_, members_.empty() ? "" : ",", JsonQuoted(key), ":",
                  value);
  return *this;
}

std::string JsonObject::ToString() const {
  return absl::StrCat("{", members_, "}");
}

}  // namespace syncline
