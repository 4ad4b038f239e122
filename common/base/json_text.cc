#include "common/base/json_text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/utf8.h"

namespace syncline {

std::string JsonQuoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : Utf8Text(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&quoted, "\\u%04x", byte);
    } else {
      quoted.push_back(c);
    }
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
