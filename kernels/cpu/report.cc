#include "kernels/cpu/report.h"

#include "common/base/mutex.h"

namespace syncline {

void Report(const ErrorSlot& errors, int32_t kind, int64_t position,
            int64_t value) {
  if (errors.record == nullptr) return;
  // Threads of one kernel may report at the same time.
  static Mutex& mu = *new Mutex();
  MutexLock lock(&mu);
  DataError& record = *errors.record;
  const bool is_first =
      record.node == DataError::kNone ||
      (record.node == errors.node && position < record.position);
  if (!is_first) return;
  record = {
      .node = errors.node, .kind = kind, .position = position, .value = value};
}

}  // namespace syncline
