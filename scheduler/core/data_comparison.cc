#include "scheduler/core/data_comparison.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace syncline::scheduler {
namespace {

using Source = DataFingerprint::Source;
using File = DataFingerprint::File;

bool HasFile(const Source& source, const std::string& name) {
  return absl::c_any_of(source.files(),
                        [&](const File& file) { return file.name() == name; });
}

std::string Quoted(const std::string& name) {
  return absl::StrCat("\"", name, "\"");
}

// The file at one place of the order differs in name.
std::string NameDifference(const Source& here, const Source& there, int place,
                           absl::string_view other) {
  if (place < there.files_size() && !HasFile(here, there.files(place).name())) {
    return absl::StrCat(Quoted(there.files(place).name()), " is missing here; ",
                        other, " has it");
  }
  if (place < here.files_size() && !HasFile(there, here.files(place).name())) {
    return absl::StrCat(Quoted(here.files(place).name()), " is here; ", other,
                        " does not have it");
  }
  return absl::StrCat("the files are in another order than on ", other);
}

// Empty: there is none.
std::string FileDifference(const File& here, const File& there,
                           absl::string_view other) {
  if (here.size_bytes() != there.size_bytes()) {
    return absl::StrCat(Quoted(here.name()), " has ", here.size_bytes(),
                        " bytes here, and ", there.size_bytes(), " on ", other);
  }
  if (here.crc32c() != there.crc32c()) {
    return absl::StrCat(Quoted(here.name()), " has the same size here and on ",
                        other, ", but other content");
  }
  return "";
}

// Empty: there is none.
std::string Difference(const Source& here, const Source& there,
                       absl::string_view other) {
  const int listed = std::max(here.files_size(), there.files_size());
  for (int i = 0; i < listed; ++i) {
    if (i >= here.files_size() || i >= there.files_size() ||
        here.files(i).name() != there.files(i).name()) {
      return NameDifference(here, there, i, other);
    }
    std::string difference =
        FileDifference(here.files(i), there.files(i), other);
    if (!difference.empty()) return difference;
  }
  if (here.file_count() != there.file_count()) {
    return absl::StrCat(here.file_count(), " files match here, and ",
                        there.file_count(), " on ", other);
  }
  if (here.samples() != there.samples()) {
    return absl::StrCat(here.samples(), " samples here, and ", there.samples(),
                        " on ", other,
                        ", from files of the same names and sizes");
  }
  if (here.crc32c() == there.crc32c()) return "";
  if (here.file_count() == 0) {
    return absl::StrCat("other samples are drawn here than on ", other,
                        "; are all daemons of one version?");
  }
  return absl::StrCat("a file after the first ", listed,
                      " has another name, size or content here than on ",
                      other);
}

}  // namespace

std::vector<std::string> DataComparison::Add(absl::string_view who,
                                             const DataFingerprint& data) {
  std::vector<std::string> problems;
  for (const Source& source : data.sources()) {
    const auto [seen, is_first] =
        first_.try_emplace(source.field(), Seen{std::string(who), source});
    if (is_first) continue;
    const std::string difference =
        Difference(source, seen->second.source, seen->second.who);
    if (difference.empty()) continue;
    problems.push_back(absl::StrCat(source.field(), ": ", difference,
                                    "; all members of a job must have the same "
                                    "data"));
  }
  return problems;
}

}  // namespace syncline::scheduler
