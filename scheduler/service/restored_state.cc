#include "scheduler/service/restored_state.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {

absl::Status SkipJobNumbers(const std::string& directory, StateStore* state,
                            StateStore::Loaded* loaded) {
  const std::string manifest = directory + "/MANIFEST";
  SYNCLINE_ASSIGN_OR_RETURN(uint64_t skipped, state->SkippedJobNumber());
  std::error_code error;
  if (std::filesystem::exists(manifest, error)) {
    uint64_t largest = skipped;
    for (const StoredJob& job : loaded->jobs) {
      largest = std::max(largest, JobNumber(job.status.job_id()));
    }
    for (const auto& record : loaded->unreadable) {
      largest = std::max(largest, JobNumber(record.job_id));
    }
    for (const std::string& job_id : loaded->without_record) {
      largest = std::max(largest, JobNumber(job_id));
    }
    skipped = largest + kJobNumbersSkipped;
    // First: a crash between the two skips numbers twice.
    SYNCLINE_RETURN_IF_ERROR(state->PutSkippedJobNumber(skipped));
    if (std::rename(manifest.c_str(), (manifest + ".restored").c_str()) != 0) {
      return FileError(errno, "rename", manifest);
    }
    LogWarning("the state was restored from a backup: job numbers are skipped")
        .Field("directory", directory)
        .Field("largest_known", largest)
        .Field("next", skipped + 1);
  }
  if (skipped > 0) {
    loaded->without_record.push_back(absl::StrFormat("j-%04d", skipped));
  }
  return absl::OkStatus();
}

}  // namespace syncline::scheduler
