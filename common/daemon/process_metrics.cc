#include "common/daemon/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/system/available_memory.h"
#include "common/system/file.h"

namespace syncline {
namespace {

constexpr size_t kProcFileBytesMax = 1 << 20;

// Fields of /proc/PID/stat behind the name, from the state on, which is the
// third one of all.
constexpr size_t kUserTime = 11;
constexpr size_t kSystemTime = 12;
constexpr size_t kThreads = 17;
constexpr size_t kStartTime = 19;
constexpr size_t kVirtualBytes = 20;
constexpr size_t kResidentPages = 21;

// Nothing: /proc is not there.
std::optional<int64_t> OpenFiles() {
  std::error_code error;
  int64_t count = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    ++count;
  }
  if (error) return std::nullopt;
  return count - 1;  // without the one that reads the folder
}

}  // namespace

std::optional<ProcessStat> ParseProcessStat(absl::string_view stat,
                                            double ticks_per_second,
                                            uint64_t page_bytes) {
  const size_t name_end = stat.rfind(')');
  if (name_end == absl::string_view::npos || ticks_per_second <= 0) {
    return std::nullopt;
  }
  const std::vector<absl::string_view> fields = absl::StrSplit(
      stat.substr(name_end + 1), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  if (fields.size() <= kResidentPages) return std::nullopt;
  uint64_t user = 0;
  uint64_t system = 0;
  uint64_t start = 0;
  uint64_t pages = 0;
  ProcessStat process;
  if (!absl::SimpleAtoi(fields[kUserTime], &user) ||
      !absl::SimpleAtoi(fields[kSystemTime], &system) ||
      !absl::SimpleAtoi(fields[kThreads], &process.threads) ||
      !absl::SimpleAtoi(fields[kStartTime], &start) ||
      !absl::SimpleAtoi(fields[kVirtualBytes], &process.virtual_bytes) ||
      !absl::SimpleAtoi(fields[kResidentPages], &pages)) {
    return std::nullopt;
  }
  process.cpu_seconds =
      (static_cast<double>(user) + static_cast<double>(system)) /
      ticks_per_second;
  process.start_seconds = static_cast<double>(start) / ticks_per_second;
  process.resident_bytes = pages * page_bytes;
  return process;
}

std::optional<double> ParseBootTime(absl::string_view stat) {
  for (absl::string_view line : absl::StrSplit(stat, '\n')) {
    int64_t seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") &&
        absl::SimpleAtoi(line, &seconds)) {
      return static_cast<double>(seconds);
    }
  }
  return std::nullopt;
}

void CollectProcessMetrics(MetricSamples* samples) {
  const auto stat = ReadFile("/proc/self/stat", kProcFileBytesMax);
  const std::optional<ProcessStat> process =
      stat.ok()
          ? ParseProcessStat(*stat, static_cast<double>(sysconf(_SC_CLK_TCK)),
                             static_cast<uint64_t>(sysconf(_SC_PAGESIZE)))
          : std::nullopt;
  if (process.has_value()) {
    samples->Add("process_cpu_seconds_total", {}, process->cpu_seconds);
    samples->Add("process_resident_memory_bytes", {},
                 static_cast<double>(process->resident_bytes));
    samples->Add("process_virtual_memory_bytes", {},
                 static_cast<double>(process->virtual_bytes));
    samples->Add("process_threads", {}, static_cast<double>(process->threads));
    const auto machine = ReadFile("/proc/stat", kProcFileBytesMax);
    const std::optional<double> boot =
        machine.ok() ? ParseBootTime(*machine) : std::nullopt;
    if (boot.has_value()) {
      samples->Add("process_start_time_seconds", {},
                   *boot + process->start_seconds);
    }
  }
  if (const auto files = OpenFiles(); files.has_value()) {
    samples->Add("process_open_fds", {}, static_cast<double>(*files));
  }
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    samples->Add("process_max_fds", {}, static_cast<double>(limit.rlim_cur));
  }
  const uint64_t available = AvailableMemoryBytes();
  if (available != std::numeric_limits<uint64_t>::max()) {
    samples->Add("syncline_process_available_memory_bytes", {},
                 static_cast<double>(available));
  }
}

}  // namespace syncline
