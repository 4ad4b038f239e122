#include "common/system/available_memory.h"

#include <sys/resource.h>

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
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
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
  // Version 1 counts those of the groups below only in its totals.
  const auto files = [stat](absl::string_view total, absl::string_view own) {
    const std::optional<uint64_t> all = FindNumber(stat, total);
    return all.has_value() ? *all : FindNumber(stat, own).value_or(0);
  };
  const uint64_t cached = files("total_inactive_file ", "inactive_file ") +
                          files("total_active_file ", "active_file ");
  used -= std::min(used, cached);
  return limit - std::min(limit, used);
}

std::string ParseCgroupPath(absl::string_view cgroup) {
  for (absl::string_view line : absl::StrSplit(cgroup, '\n')) {
    if (absl::ConsumePrefix(&line, "0::/")) return absl::StrCat("/", line);
  }
  return "";
}

std::string ParseMemoryControllerPath(absl::string_view cgroup) {
  for (absl::string_view line : absl::StrSplit(cgroup, '\n')) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty()) continue;
    for (absl::string_view controller : absl::StrSplit(parts[1], ',')) {
      if (controller == "memory") return parts[2];
    }
  }
  return "";
}

uint64_t ParseProcessLeft(uint64_t address_space_limit, uint64_t data_limit,
                          absl::string_view status) {
  const auto left = [status](uint64_t limit, absl::string_view name) {
    if (limit == kUnknown) return kUnknown;
    const uint64_t used = FindNumber(status, name).value_or(0) * 1024;
    return limit - std::min(limit, used);
  };
  return std::min(left(address_space_limit, "VmSize:"),
                  left(data_limit, "VmData:"));
}

namespace {

uint64_t LimitOf(__rlimit_resource resource) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0) return kUnknown;
  return limit.rlim_cur == RLIM_INFINITY ? kUnknown : limit.rlim_cur;
}

// Bytes left in a group and in those above it: a group lives within the
// limits of those above.
uint64_t LeftInGroups(const std::string& root, std::string group,
                      absl::string_view limit, absl::string_view use) {
  uint64_t left = kUnknown;
  while (true) {
    const std::string folder = absl::StrCat(root, group, "/");
    left = std::min(
        left, ParseCgroupLeft(ReadAll(absl::StrCat(folder, limit)),
                              ReadAll(absl::StrCat(folder, use)),
                              ReadAll(absl::StrCat(folder, "memory.stat"))));
    if (group.empty()) return left;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

uint64_t AvailableMemoryBytes() {
  const std::string cgroup = ReadAll("/proc/self/cgroup");
  return std::min(
      {ParseMemAvailable(ReadAll("/proc/meminfo")),
       LeftInGroups("/sys/fs/cgroup", ParseCgroupPath(cgroup), "memory.max",
                    "memory.current"),
       LeftInGroups("/sys/fs/cgroup/memory", ParseMemoryControllerPath(cgroup),
                    "memory.limit_in_bytes", "memory.usage_in_bytes"),
       ParseProcessLeft(LimitOf(RLIMIT_AS), LimitOf(RLIMIT_DATA),
                        ReadAll("/proc/self/status"))});
}

}  // namespace syncline
