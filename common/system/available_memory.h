#ifndef SYNCLINE_COMMON_SYSTEM_AVAILABLE_MEMORY_H_
#define SYNCLINE_COMMON_SYSTEM_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace syncline {

// Bytes that this process may still allocate without being killed or refused:
// the least of the machine's memory, of the control groups' (version 1 and 2)
// that it is in, and of its own limits (RLIMIT_AS, RLIMIT_DATA). A group's
// memory that only caches files counts as available. The largest uint64_t if
// there is no limit.
uint64_t AvailableMemoryBytes();

// "MemAvailable:   123 kB" in the text of /proc/meminfo, in bytes; the largest
// number if it is not there.
uint64_t ParseMemAvailable(absl::string_view meminfo);

// Bytes left of a control group's limit, from the texts of its limit
// (memory.max, "max" is none; version 1: memory.limit_in_bytes), its use
// (memory.current; memory.usage_in_bytes) and memory.stat; the largest number
// if one of the first two is unreadable.
uint64_t ParseCgroupLeft(absl::string_view max, absl::string_view current,
                         absl::string_view stat);

// The path of the process's group of version 2, "/system.slice/x.service", in
// the text of /proc/self/cgroup; empty if it is not there.
std::string ParseCgroupPath(absl::string_view cgroup);

// The same of version 1: the path of the hierarchy whose controllers include
// "memory"; empty if there is none.
std::string ParseMemoryControllerPath(absl::string_view cgroup);

// Bytes left of a limit on the process's address space and of one on its
// data, each the largest number for none, from the text of /proc/self/status
// (VmSize, VmData); the largest number if there is neither.
uint64_t ParseProcessLeft(uint64_t address_space_limit, uint64_t data_limit,
                          absl::string_view status);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_AVAILABLE_MEMORY_H_
