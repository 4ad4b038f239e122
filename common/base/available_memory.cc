#include "common/base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace syncline {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// Files of the kernel have no size; empty if it cannot be read.
std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The number in the line "NAME 123" of a text.
std::optional<uint64_t> FindNumber(absl::string_view text,
                                   absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t number = 0;
    if (words.empty() || !absl::SimpleAtoi(words[0], &number)) break;
    return number;
  }
  return std::nullopt;
}

}  // namespace

uint64_t ParseMemAvailable(absl::string_view meminfo) {
  const std::optional<uint64_t> kib = FindNumber(meminfo, "MemAvailable:");
  return kib.has_value() ? *kib * 1024 : kUnknown;
}

uint64_t ParseCgroupLeft(absl::string_view max, absl::string_view current,
                         absl::string_view stat) {
  uint64_t limit = 0;
  uint64_t used = 0;
  if (!absl::SimpleAtoi(max, &limit) || !absl::SimpleAtoi(current, &used)) {
    return kUnknown;
  }
  const uint64_t files = FindNumber(stat, "inactive_file ").value_or(0) +
                         FindNumber(stat, "active_file ").value_or(0);
  used -= std::min(used, files);
  return limit - std::min(limit, used);
}

std::string ParseCgroupPath(absl::string_view cgroup) {
  for (absl::string_view line : absl::StrSplit(cgroup, '\n')) {
    if (absl::ConsumePrefix(&line, "0::/")) return absl::StrCat("/", line);
  }
  return "";
}

uint64_t AvailableMemoryBytes() {
  uint64_t available = ParseMemAvailable(ReadAll("/proc/meminfo"));
  // A group lives within the limits of those above it.
  std::string group = ParseCgroupPath(ReadAll("/proc/self/cgroup"));
  while (true) {
    const std::string folder = absl::StrCat("/sys/fs/cgroup", group);
    available =
        std::min(available, ParseCgroupLeft(ReadAll(folder + "/memory.max"),
                                            ReadAll(folder + "/memory.current"),
                                            ReadAll(folder + "/memory.stat")));
    if (group.empty()) return available;
    group.resize(group.rfind('/'));
  }
}

}  // namespace syncline
