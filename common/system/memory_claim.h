#ifndef SYNCLINE_COMMON_SYSTEM_MEMORY_CLAIM_H_
#define SYNCLINE_COMMON_SYSTEM_MEMORY_CLAIM_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/system/available_memory.h"

namespace syncline {

// Memory that a daemon leaves to others, and to its own small things, when it
// takes memory for a job.
inline constexpr uint64_t kMemoryKeptFreeBytes = uint64_t{64} << 20;

// "12.5 MiB": one decimal below 100, none above.
std::string MebibytesText(uint64_t bytes);

// Checks if `bytes` more can be taken; takes none. Errors: ResourceExhausted:
// "WHAT need 12 MiB, 8 MiB are available".
absl::Status CheckMemoryFor(
    absl::string_view what, uint64_t bytes,
    const std::function<uint64_t()>& available = AvailableMemoryBytes);

// Asked between pieces of long work; an error ends the work. Null: nothing ends
// it.
using GoOnCheck = std::function<absl::Status()>;

// Makes every page of `memory` resident, so that what was promised to a job is
// there when it is needed. Contents stay. Before each 64 MiB it asks `go_on`,
// and again for what is available, because other processes take memory at the
// same time. REQUIRES: no other thread writes `memory`. Errors:
// ResourceExhausted, as above; those of `go_on`. Some pages are resident then.
absl::Status TouchMemory(
    absl::string_view what, absl::Span<char> memory, const GoOnCheck& go_on,
    const std::function<uint64_t()>& available = AvailableMemoryBytes);

// Gives the pages that lie wholly in `memory` back to the system. They read as
// zeros, and become resident again when they are touched. REQUIRES: private
// memory of this process, as of AlignedFloats.
void ReleasePages(absl::Span<char> memory);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_MEMORY_CLAIM_H_
