#include "common/job/field_locations.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace syncline {

std::vector<std::string> LocateProblems(
    absl::string_view text, const JobFileSourceMap& source_map,
    absl::string_view label, const std::vector<std::string>& problems) {
  std::vector<std::string> located;
  for (const std::string& problem : problems) {
    const JobFileSourceMap::Field* field = source_map.FindNearest(
        absl::string_view(problem).substr(0, problem.find(':')));
    if (field == nullptr) {
      located.push_back(absl::StrCat(label, ": ", problem));
      continue;
    }
    const absl::string_view before = text.substr(0, field->begin);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    located.push_back(absl::StrCat(label, ":", line, ": ", problem));
  }
  return located;
}

}  // namespace syncline
