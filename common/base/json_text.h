#ifndef SYNCLINE_COMMON_BASE_JSON_TEXT_H_
#define SYNCLINE_COMMON_BASE_JSON_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// JSON that is written by hand, where no message has its form.

namespace syncline {

// In quotes. Bytes that are not UTF-8 are written as "\xe4" (Utf8Text).
std::string JsonQuoted(absl::string_view text);
// 15 digits; null where it is not finite: JSON has no NaN.
std::string JsonNumber(double value);
// Of values that are JSON.
std::string JsonArray(const std::vector<std::string>& values);

// An object, member by member. Thread-compatible.
class JsonObject {
 public:
  JsonObject& Text(absl::string_view key, absl::string_view value) {
    return Raw(key, JsonQuoted(value));
  }
  JsonObject& Number(absl::string_view key, double value) {
    return Raw(key, JsonNumber(value));
  }
  JsonObject& Count(absl::string_view key, int64_t value);
  JsonObject& Flag(absl::string_view key, bool value) {
    return Raw(key, value ? "true" : "false");
  }
  // `value` is JSON.
  JsonObject& Raw(absl::string_view key, absl::string_view value);
  std::string ToString() const;

 private:
  std::string members_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_JSON_TEXT_H_
