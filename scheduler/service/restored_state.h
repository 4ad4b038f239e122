#ifndef SYNCLINE_SCHEDULER_SERVICE_RESTORED_STATE_H_
#define SYNCLINE_SCHEDULER_SERVICE_RESTORED_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "scheduler/service/state_store.h"

namespace syncline::scheduler {

// Job numbers that a state which was unpacked from a backup skips. Clients may
// know jobs that were submitted after the backup was taken; a job that only
// waited is known to no member, so nobody else tells its number.
inline constexpr uint64_t kJobNumbersSkipped = 10'000;

// Notices that `directory` was unpacked from a backup since the last start: it
// has the archive's MANIFEST. Then kJobNumbersSkipped numbers behind the
// largest known one are made durable as taken, and the MANIFEST is renamed to
// MANIFEST.restored. Also adds the skipped number of this and of earlier
// restores to loaded->without_record. Errors: those of the store and of the
// file system.
absl::Status SkipJobNumbers(const std::string& directory, StateStore* state,
                            StateStore::Loaded* loaded);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_RESTORED_STATE_H_
