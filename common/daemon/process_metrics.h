#ifndef SYNCLINE_COMMON_DAEMON_PROCESS_METRICS_H_
#define SYNCLINE_COMMON_DAEMON_PROCESS_METRICS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "common/daemon/metrics.h"

namespace syncline {

// Of a process, out of the text of /proc/PID/stat (proc(5)).
struct ProcessStat {
  double cpu_seconds = 0;       // user and system
  double start_seconds = 0;     // after the machine's start
  uint64_t virtual_bytes = 0;   // address space
  uint64_t resident_bytes = 0;  // of it, in RAM
  uint64_t threads = 0;
};

// `ticks_per_second` and `page_bytes`: the system's. Nothing: the text is none
// of the kernel's. A program's name may have any characters.
std::optional<ProcessStat> ParseProcessStat(absl::string_view stat,
                                            double ticks_per_second,
                                            uint64_t page_bytes);

// "btime 1700000000" in the text of /proc/stat: when the machine started, in
// seconds since 1970. Nothing: it is not there.
std::optional<double> ParseBootTime(absl::string_view stat);

// Adds what a process says of itself: process_*, under the names that
// Prometheus' own clients use, and syncline_process_available_memory_bytes.
// Reads a few files of /proc; a value that cannot be read is left out.
void CollectProcessMetrics(MetricSamples* samples);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_DAEMON_PROCESS_METRICS_H_
