#include "common/job/strict_json.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "google/protobuf/util/json_util.h"

namespace syncline {
namespace {

// Walks over the text and keeps nothing: what it lets through is what protobuf
// then parses.
class JsonChecker {
 public:
  JsonChecker(absl::string_view text, const JsonLimits& limits)
      : text_(text),
        depth_max_(limits.depth_max),
        values_max_(limits.values_max) {}

  absl::Status Check() {
    SYNCLINE_RETURN_IF_ERROR(CheckValue(0));
    SkipSpace();
    return AtEnd() ? absl::OkStatus()
                   : Error("text after the end of the value");
  }

 private:
  bool AtEnd() const { return at_ == text_.size(); }
  // '\0' at the end, which no rule accepts.
  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }
  bool Accept(char c) {
    if (AtEnd() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void SkipSpace() {
    while (!AtEnd() && absl::StrContains(" \t\r\n", text_.substr(at_, 1))) {
      ++at_;
    }
  }

  absl::Status Error(absl::string_view what) const {
    const absl::string_view before = text_.substr(0, at_);
    size_t line = 1;
    for (const char c : before) line += c == '\n' ? 1 : 0;
    const size_t line_start = before.rfind('\n');
    const size_t column =
        line_start == absl::string_view::npos ? at_ + 1 : at_ - line_start;
    return absl::InvalidArgumentError(
        absl::StrCat(line, ":", column, ": not JSON: ", what));
  }

  absl::Status CheckValue(int depth) {
    if (depth > depth_max_) {
      return Error(absl::StrCat("nested deeper than ", depth_max_));
    }
    if (++values_ > values_max_) {
      return Error(absl::StrCat("more than ", values_max_, " values"));
    }
    SkipSpace();
    const char c = Peek();
    if (c == '{') return CheckObject(depth);
    if (c == '[') return CheckArray(depth);
    if (c == '"') return CheckString();
    if (c == '-' || absl::ascii_isdigit(c)) return CheckNumber();
    for (const absl::string_view word : {"true", "false", "null"}) {
      if (!absl::StartsWith(text_.substr(at_), word)) continue;
      at_ += word.size();
      return absl::OkStatus();
    }
    if (AtEnd()) return Error("it ends where a value should be");
    if (c == '\'') return Error("strings are written in double quotes");
    return Error("expected a value");
  }

  absl::Status CheckObject(int depth) {
    Accept('{');
    absl::flat_hash_set<absl::string_view> keys;
    SkipSpace();
    if (Accept('}')) return absl::OkStatus();
    while (true) {
      SkipSpace();
      const size_t key_start = at_;
      SYNCLINE_RETURN_IF_ERROR(CheckKey());
      const absl::string_view key = text_.substr(key_start, at_ - key_start);
      if (!keys.insert(key).second) {
        at_ = key_start;
        return Error(absl::StrCat("key ", key, " occurs twice"));
      }
      SkipSpace();
      if (!Accept(':')) return Error("expected ':' after a key");
      SYNCLINE_RETURN_IF_ERROR(CheckValue(depth + 1));
      SkipSpace();
      if (Accept('}')) return absl::OkStatus();
      if (!Accept(',')) return Error("expected ',' or '}'");
    }
  }

  absl::Status CheckKey() {
    const char c = Peek();
    if (c == '"') return CheckString();
    if (c == '\'') return Error("keys are written in double quotes");
    if (c == '}') return Error("a comma before '}'");
    return Error("expected a key in double quotes");
  }

  absl::Status CheckArray(int depth) {
    Accept('[');
    SkipSpace();
    if (Accept(']')) return absl::OkStatus();
    while (true) {
      SYNCLINE_RETURN_IF_ERROR(CheckValue(depth + 1));
      SkipSpace();
      if (Accept(']')) return absl::OkStatus();
      if (!Accept(',')) return Error("expected ',' or ']'");
      SkipSpace();
      if (Peek() == ']') return Error("a comma before ']'");
    }
  }

  absl::Status CheckString() {
    Accept('"');
    while (!AtEnd()) {
      if (Accept('"')) return absl::OkStatus();
      if (static_cast<unsigned char>(Peek()) < ' ') {
        return Error("a control character inside a string");
      }
      if (Accept('\\')) {
        SYNCLINE_RETURN_IF_ERROR(CheckEscape());
      } else {
        ++at_;
      }
    }
    return Error("a string without end");
  }

  absl::Status CheckEscape() {
    if (Accept('u')) {
      for (int i = 0; i < 4; ++i, ++at_) {
        if (!absl::ascii_isxdigit(Peek())) return Error("\\u needs 4 digits");
      }
      return absl::OkStatus();
    }
    if (AtEnd() || !absl::StrContains("\"\\/bfnrt", text_.substr(at_, 1))) {
      return Error("unknown escape in a string");
    }
    ++at_;
    return absl::OkStatus();
  }

  absl::Status CheckNumber() {
    Accept('-');
    const bool leading_zero = Peek() == '0';
    const size_t start = at_;
    SYNCLINE_RETURN_IF_ERROR(CheckDigits());
    if (leading_zero && at_ - start > 1) return Error("a number starts with 0");
    if (Accept('.')) SYNCLINE_RETURN_IF_ERROR(CheckDigits());
    if (Accept('e') || Accept('E')) {
      if (!Accept('+')) Accept('-');
      SYNCLINE_RETURN_IF_ERROR(CheckDigits());
    }
    return absl::OkStatus();
  }

  absl::Status CheckDigits() {
    if (!absl::ascii_isdigit(Peek())) return Error("expected a digit");
    while (absl::ascii_isdigit(Peek())) ++at_;
    return absl::OkStatus();
  }

  const absl::string_view text_;
  const int depth_max_;
  const size_t values_max_;
  size_t at_ = 0;
  size_t values_ = 0;
};

}  // namespace

absl::StatusOr<google::protobuf::Value> ParseStrictJson(
    absl::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", text.size(), " bytes; at most ",
                     limits.bytes_max, " are read"));
  }
  SYNCLINE_RETURN_IF_ERROR(JsonChecker(text, limits).Check());
  google::protobuf::Value value;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(std::string(text), &value);
  if (!parsed.ok()) {
    const auto message = parsed.message();
    return absl::InvalidArgumentError(absl::StrCat(
        "not JSON: ", absl::string_view(message.data(), message.size())));
  }
  return value;
}

}  // namespace syncline
