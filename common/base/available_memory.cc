#include "common/base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace syncline {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// Files of the kernel have no size; empty if it cannot be read.
std::string ReadAll(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

uint64_t ParseMemAvailable(absl::string_view meminfo) {
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    if (!absl::ConsumePrefix(&line, "MemAvailable:")) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t kib = 0;
    if (words.empty() || !absl::SimpleAtoi(words[0], &kib)) return kUnknown;
    return kib * 1024;
  }
  return kUnknown;
}

uint64_t ParseCgroupLeft(absl::string_view max, absl::string_view current) {
  uint64_t limit = 0;
  uint64_t used = 0;
  if (!absl::SimpleAtoi(max, &limit) || !absl::SimpleAtoi(current, &used)) {
    return kUnknown;
  }
  return limit - std::min(limit, used);
}

uint64_t AvailableMemoryBytes() {
  return std::min(ParseMemAvailable(ReadAll("/proc/meminfo")),
                  ParseCgroupLeft(ReadAll("/sys/fs/cgroup/memory.max"),
                                  ReadAll("/sys/fs/cgroup/memory.current")));
}

}  // namespace syncline
