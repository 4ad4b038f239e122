#ifndef SYNCLINE_WORKER_DATA_READING_MEMORY_BUDGET_H_
#define SYNCLINE_WORKER_DATA_READING_MEMORY_BUDGET_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/system/available_memory.h"

namespace syncline::worker {

// Looks at the memory that is left before data takes more of it, so that data
// that does not fit is refused, and the process is not killed for it. Others
// may take memory meanwhile; some of it is left to the rest of the job. Thread-
// compatible.
class MemoryBudget {
 public:
  // Says where the data is that needs it: "FILE:LINE".
  using Where = absl::FunctionRef<std::string()>;
  // Left to the rest of the job.
  static constexpr uint64_t kLeftBytes = 128 << 20;
  // Less than that is taken without looking.
  static constexpr uint64_t kUncheckedBytes = 1 << 20;

  explicit MemoryBudget(
      std::function<uint64_t()> available = AvailableMemoryBytes)
      : available_(std::move(available)) {}

  // Before `bytes` more are taken. Errors: ResourceExhausted, which says how
  // much is needed, how much there is, and what to do.
  absl::Status Check(uint64_t bytes, Where where) const;

  // Makes room for `count` more values at the end of *values, for at least as
  // many as there are if it must be moved. Errors: likewise.
  template <typename T>
  absl::Status Grow(size_t count, Where where, std::vector<T>* values) const {
    const size_t needed = values->size() + count;
    if (needed <= values->capacity()) return absl::OkStatus();
    const size_t capacity = std::max(needed, 2 * values->size());
    SYNCLINE_RETURN_IF_ERROR(Check(capacity * sizeof(T), where));
    values->reserve(capacity);
    return absl::OkStatus();
  }
  // Gives back what *values has too much, if there is memory to move it to.
  template <typename T>
  void Shrink(std::vector<T>* values) const {
    if (Fits(values->size() * sizeof(T))) values->shrink_to_fit();
  }

 private:
  bool Fits(uint64_t bytes) const {
    return Check(bytes, [] { return std::string(); }).ok();
  }
  const std::function<uint64_t()> available_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_READING_MEMORY_BUDGET_H_
