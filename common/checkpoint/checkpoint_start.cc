#include "common/checkpoint/checkpoint_start.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/manifest.h"
#include "common/job/checkpoint_trouble.h"

namespace syncline {

bool TakesValuesOnly(const JobAssignment& assignment) {
  const StartSpec& start = assignment.spec().start();
  const CheckpointInfo& from = assignment.start_from();
  return start.weights_only() && start.checkpoint() == from.path() &&
         start.manifest_crc32c() == from.manifest_crc32c();
}

absl::Duration StartDiskWaitMax(const JobSpec& spec) {
  const double step = spec.limits().step_timeout_seconds();
  return step > 0 ? std::min(absl::Minutes(1), absl::Seconds(step))
                  : absl::Minutes(1);
}

absl::Status CheckStart(const CheckpointManifest& manifest, uint32_t crc32c,
                        const JobAssignment& assignment) {
  const CheckpointInfo& from = assignment.start_from();
  if (crc32c != from.manifest_crc32c()) {
    return absl::FailedPreconditionError(
        absl::StrCat(kDamagedCheckpoint, ": its manifest has the checksum ",
                     absl::Hex(crc32c, absl::kZeroPad8),
                     ", the job is to start from one with ",
                     absl::Hex(from.manifest_crc32c(), absl::kZeroPad8),
                     ": another checkpoint is there"));
  }
  const int64_t clock = TakesValuesOnly(assignment) ? 0 : manifest.clock();
  if (assignment.start_clock() != clock) {
    return absl::FailedPreconditionError(
        absl::StrCat("the attempt begins at clock ", assignment.start_clock(),
                     ", with this checkpoint it would at ", clock));
  }
  return CheckSameModel(manifest, assignment);
}

absl::Status WithFileTrouble(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return status;
  return Annotate(status, absl::IsDataLoss(status) ? kDamagedCheckpoint
                                                   : kUnseenCheckpoint);
}

absl::Status WithStartTrouble(const absl::Status& status,
                              const JobAssignment& assignment) {
  const char* trouble = nullptr;
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      trouble = kDamagedCheckpoint;
      break;
    // Of files: one that is gone, or that a disk or a server does not give.
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
      trouble = kUnseenCheckpoint;
      break;
    default:
      break;
  }
  if (trouble == nullptr || absl::StrContains(status.message(), trouble)) {
    return status;
  }
  return Annotate(
      status, absl::StrCat("checkpoint ", assignment.start_from().path(), ": ",
                           trouble));
}

}  // namespace syncline
