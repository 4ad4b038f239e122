#ifndef SYNCLINE_COMMON_BASE_AVAILABLE_MEMORY_H_
#define SYNCLINE_COMMON_BASE_AVAILABLE_MEMORY_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace syncline {

// What this process may still allocate without being killed for it: the least
// of the machine's and the control group's. The largest number if neither says.
uint64_t AvailableMemoryBytes();

// "MemAvailable:   123 kB" in the text of /proc/meminfo, in bytes; the largest
// number if it is not there.
uint64_t ParseMemAvailable(absl::string_view meminfo);

// What is left of a control group's limit, from the texts of memory.max ("max"
// is none) and memory.current; the largest number if either is unreadable.
uint64_t ParseCgroupLeft(absl::string_view max, absl::string_view current);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_AVAILABLE_MEMORY_H_
