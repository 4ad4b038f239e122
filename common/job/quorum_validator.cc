#include "common/job/quorum_validator.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"

namespace syncline {
namespace {

using C = ConsistencySpec;

// Where the mode waits for all workers, or for none.
void CheckUnused(const ConsistencySpec& consistency, Problems* problems) {
  constexpr char kFor[] = "is for SYNC_WITH_BACKUPS and SYNC_WITH_TIMEOUT only";
  if (consistency.needed() != 0) problems->Add("consistency.needed", kFor);
  if (consistency.timeout_seconds() != 0) {
    problems->Add("consistency.timeout_seconds",
                  "is for SYNC_WITH_TIMEOUT only");
  }
  if (consistency.late() != C::LATE_UNSPECIFIED) {
    problems->Add("consistency.late", kFor);
  }
}

void CheckNeeded(const JobSpec& spec, Problems* problems) {
  const uint32_t needed = spec.consistency().needed();
  const uint32_t workers = std::max(1u, spec.resources().workers());
  if (needed == 0) {
    return problems->Add("consistency.needed",
                         "is required: without how many workers no clock ends, "
                         "1..",
                         workers);
  }
  if (needed > workers) {
    problems->Add("consistency.needed", needed,
                  " is more than resources.workers, ", workers);
  }
}

void CheckTimeout(const JobSpec& spec, Problems* problems) {
  const double seconds = spec.consistency().timeout_seconds();
  if (spec.consistency().mode() != C::SYNC_WITH_TIMEOUT) {
    if (seconds != 0) {
      problems->Add("consistency.timeout_seconds",
                    "is for SYNC_WITH_TIMEOUT only");
    }
    return;
  }
  const double step_timeout =
      WithDefaults(spec).limits().step_timeout_seconds();
  if (std::isfinite(seconds) && seconds > 0 && seconds < step_timeout) return;
  problems->Add("consistency.timeout_seconds", seconds,
                " must be > 0 and below limits.step_timeout_seconds, ",
                step_timeout);
}

void CheckLate(const ConsistencySpec& consistency, Problems* problems) {
  if (consistency.late() == C::SCALE) {
    problems->Add("consistency.late", "SCALE is not built yet; use DROP");
  } else if (consistency.late() == C::COMPENSATE) {
    problems->Add("consistency.late",
                  "COMPENSATE is not built: a ps would have to keep the values "
                  "that each worker has read, as many copies of the parameters "
                  "as there are workers; use DROP");
  }
}

}  // namespace

bool LeavesBehind(ConsistencySpec::Mode mode) {
  return mode == C::SYNC_WITH_BACKUPS || mode == C::SYNC_WITH_TIMEOUT;
}

bool IsSyncOrKin(ConsistencySpec::Mode mode) {
  return mode == C::MODE_UNSPECIFIED || mode == C::SYNC || mode == C::LOCAL ||
         LeavesBehind(mode);
}

void CheckQuorum(const JobSpec& spec, Problems* problems) {
  const ConsistencySpec& consistency = spec.consistency();
  if (consistency.compensation() != 0) {
    problems->Add("consistency.compensation",
                  "is for late: COMPENSATE only, which is not built");
  }
  if (!LeavesBehind(consistency.mode())) {
    return CheckUnused(consistency, problems);
  }
  CheckNeeded(spec, problems);
  CheckTimeout(spec, problems);
  CheckLate(consistency, problems);
  const std::string& mode = C::Mode_Name(consistency.mode());
  if (spec.training().sync_batch_statistics()) {
    problems->Add("training.sync_batch_statistics", "is not for ", mode,
                  ": within a step it waits for all workers; use SYNC");
  }
  if (spec.precision() == FLOAT16) {
    problems->Add("precision", "FLOAT16 is not for ", mode,
                  ": its loss scale follows what all workers skip together; "
                  "use BFLOAT16, or SYNC");
  }
}

std::string QuorumNote(const JobSpec& spec) {
  const ConsistencySpec& consistency = spec.consistency();
  if (!LeavesBehind(consistency.mode())) return "";
  return absl::StrCat(
      "consistency.mode ", C::Mode_Name(consistency.mode()),
      ": a clock may end without some workers; the samples that they have for "
      "it are not trained in that epoch (`synctl get` counts them by worker), "
      "and two runs do not end with the same bits");
}

}  // namespace syncline
