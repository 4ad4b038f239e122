#include "worker/data/reading/memory_budget.h"

#include "absl/strings/str_cat.h"

namespace syncline::worker {

absl::Status MemoryBudget::Check(uint64_t bytes, Where where) const {
  if (bytes < kUncheckedBytes) return absl::OkStatus();
  const uint64_t available = available_();
  if (available > kLeftBytes && bytes <= available - kLeftBytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      where(), ": the data does not fit into memory: it needs ",
      (bytes + (1 << 20) - 1) >> 20, " MiB more, ", available >> 20,
      " MiB are available, of which ", kLeftBytes >> 20,
      " MiB are left to the rest of the job; use less data at a time, fewer "
      "fields, or a machine or container with more memory"));
}

}  // namespace syncline::worker
