#ifndef SYNCLINE_TESTS_TESTING_PROCESS_MEMORY_H_
#define SYNCLINE_TESTS_TESTING_PROCESS_MEMORY_H_

#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace syncline {

inline constexpr double kMiB = 1 << 20;

// "VmRSS" or "VmHWM" of /proc/PID/status, in bytes; 0 if unreadable.
inline uint64_t ProcessMemoryBytes(pid_t pid, const std::string& field) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, field.size() + 1, field + ":") != 0) continue;
    const absl::string_view rest =
        absl::string_view(line).substr(field.size() + 1);
    uint64_t kib = 0;
    if (absl::SimpleAtoi(rest.substr(0, rest.find('k')), &kib)) {
      return kib * 1024;
    }
  }
  return 0;
}

// Bytes that a ps may have resident for one job: its parameters and optimizer
// slots with a fifth for what they need around them, its program, and the
// gradients that the consistency mode makes it keep for others.
inline double PsMemoryLimitBytes(double state_bytes,
                                 double waiting_gradient_bytes) {
  return 1.2 * state_bytes + 64 * kMiB + waiting_gradient_bytes;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_PROCESS_MEMORY_H_
