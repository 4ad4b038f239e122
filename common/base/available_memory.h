#ifndef SYNCLINE_COMMON_BASE_AVAILABLE_MEMORY_H_
#define SYNCLINE_COMMON_BASE_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace syncline {

// What this process may still allocate without being killed for it: the least
// of the machine's and of the control groups' (version 2) that it is in; what
// they hold only as a cache of files counts as available. The largest number if
// none says.
uint64_t AvailableMemoryBytes();

// "MemAvailable:   123 kB" in the text of /proc/meminfo, in bytes; the largest
// number if it is not there.
uint64_t ParseMemAvailable(absl::string_view meminfo);

// What is left of a control group's limit, from the texts of memory.max ("max"
// is none), memory.current and memory.stat; the largest number if one of the
// first two is unreadable.
uint64_t ParseCgroupLeft(absl::string_view max, absl::string_view current,
                         absl::string_view stat);

// The path of the process's group of version 2, "/system.slice/x.service", in
// the text of /proc/self/cgroup; empty if it is not there.
std::string ParseCgroupPath(absl::string_view cgroup);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_AVAILABLE_MEMORY_H_
