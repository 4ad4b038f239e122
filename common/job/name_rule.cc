#include "common/job/name_rule.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

constexpr size_t kBytesMax = 1024;

// The text that a "*" of a pattern stands for.
struct Star {
  size_t pattern_at = 0;  // behind it
  size_t begin = 0;       // in the name
  size_t end = 0;
};

// Empty optional: no match. Only the last "*" so far is ever made longer: if a
// match exists, one exists with the earlier ones as short as they can be.
std::optional<std::vector<Star>> Match(absl::string_view pattern,
                                       absl::string_view name) {
  std::vector<Star> stars;
  size_t p = 0;
  size_t n = 0;
  while (n < name.size() || p < pattern.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      stars.push_back({++p, n, n});
    } else if (p < pattern.size() && n < name.size() &&
               (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (!stars.empty() && stars.back().end < name.size()) {
      n = ++stars.back().end;
      p = stars.back().pattern_at;
    } else {
      return std::nullopt;
    }
  }
  return stars;
}

}  // namespace

absl::Status CheckNameRule(const NameRule& rule) {
  if (rule.pattern().empty()) {
    return absl::InvalidArgumentError("pattern is required");
  }
  if (rule.pattern().size() > kBytesMax || rule.name().size() > kBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern or name has more than ", kBytesMax, " bytes"));
  }
  const auto stars = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '*');
  };
  if (stars(rule.name()) > stars(rule.pattern())) {
    return absl::InvalidArgumentError(
        absl::StrCat("name has ", stars(rule.name()),
                     " \"*\", and pattern has ", stars(rule.pattern()),
                     ": each one stands for what the pattern's one "
                     "of the same place stood for"));
  }
  return absl::OkStatus();
}

std::optional<std::string> ApplyNameRule(const NameRule& rule,
                                         absl::string_view name) {
  const auto stars = Match(rule.pattern(), name);
  if (!stars.has_value()) return std::nullopt;
  std::string renamed;
  size_t next = 0;
  for (const char c : rule.name()) {
    if (c != '*') {
      renamed.push_back(c);
    } else if (next < stars->size()) {
      const Star& star = (*stars)[next++];
      absl::StrAppend(&renamed, name.substr(star.begin, star.end - star.begin));
    }
  }
  return renamed;
}

std::string RenamedTensor(
    const google::protobuf::RepeatedPtrField<NameRule>& rules,
    absl::string_view name) {
  for (const NameRule& rule : rules) {
    std::optional<std::string> renamed = ApplyNameRule(rule, name);
    if (renamed.has_value()) return *std::move(renamed);
  }
  return std::string(name);
}

absl::StatusOr<NameRule> ParseNameRule(absl::string_view text) {
  const size_t equals = text.find('=');
  if (equals == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not OLD=NEW, as 'backbone.*=*'"));
  }
  NameRule rule;
  rule.set_pattern(std::string(text.substr(0, equals)));
  rule.set_name(std::string(text.substr(equals + 1)));
  const absl::Status checked = CheckNameRule(rule);
  if (checked.ok()) return rule;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "': ", checked.message()));
}

}  // namespace syncline
