#include "common/model/zoo/zoo_settings.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace syncline {

ZooSettings::ZooSettings(std::map<std::string, std::string> given)
    : given_(std::move(given)) {}

const std::string* ZooSettings::Take(absl::string_view key,
                                     const std::string& fallback) {
  known_.push_back(absl::StrCat(key, " (default ", fallback, ")"));
  const auto found = given_.find(std::string(key));
  if (found == given_.end()) return nullptr;
  taken_ = std::move(found->second);
  given_.erase(found);
  return &taken_;
}

int64_t ZooSettings::Int(absl::string_view key, int64_t fallback, int64_t least,
                         int64_t most) {
  const std::string* const text = Take(key, absl::StrCat(fallback));
  if (text == nullptr) return fallback;
  int64_t value = 0;
  if (absl::SimpleAtoi(*text, &value) && value >= least && value <= most) {
    return value;
  }
  problems_.push_back(absl::StrCat(
      key, ": '", *text, "' is not a whole number from ", least, " to ", most));
  return fallback;
}

std::vector<int64_t> ZooSettings::Ints(absl::string_view key,
                                       const std::vector<int64_t>& fallback,
                                       int64_t least, int64_t most) {
  const std::string* const text = Take(key, absl::StrJoin(fallback, ","));
  if (text == nullptr) return fallback;
  std::vector<int64_t> values;
  for (const absl::string_view part : absl::StrSplit(*text, ',')) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(part, &value) || value < least || value > most) {
      problems_.push_back(absl::StrCat(key, ": '", part,
                                       "' is not a whole number from ", least,
                                       " to ", most));
      return fallback;
    }
    values.push_back(value);
  }
  return values;
}

float ZooSettings::Float(absl::string_view key, float fallback, float least,
                         float most) {
  const std::string* const text = Take(key, absl::StrCat(fallback));
  if (text == nullptr) return fallback;
  float value = 0;
  if (absl::SimpleAtof(*text, &value) && value >= least && value <= most) {
    return value;
  }
  problems_.push_back(absl::StrCat(key, ": '", *text, "' is not a number from ",
                                   least, " to ", most));
  return fallback;
}

std::string ZooSettings::Choice(absl::string_view key,
                                const std::vector<std::string>& words) {
  const std::string* const text = Take(key, words.front());
  if (text == nullptr) return words.front();
  if (absl::c_linear_search(words, *text)) return *text;
  problems_.push_back(absl::StrCat(key, ": '", *text, "' is not one of ",
                                   absl::StrJoin(words, ", ")));
  return words.front();
}

absl::Status ZooSettings::Check() const {
  std::vector<std::string> problems = problems_;
  for (const auto& [key, value] : given_) {
    problems.push_back(absl::StrCat(key,
                                    ": there is no such setting; there is ",
                                    absl::StrJoin(known_, ", ")));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

}  // namespace syncline
