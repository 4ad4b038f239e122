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

void CheckLate(const JobSpec& spec, Problems* problems) {
  const ConsistencySpec& consistency = spec.consistency();
  // A value that is not finite is refused with all others.
  if (consistency.late() != C::COMPENSATE) return;
  problems->NotNegative("consistency.compensation", consistency.compensation());
}

}  // namespace

bool LeavesBehind(ConsistencySpec::Mode mode) {
  return mode == C::SYNC_WITH_BACKUPS || mode == C::SYNC_WITH_TIMEOUT;
}

bool IsSyncOrKin(ConsistencySpec::Mode mode) {
  return mode == C::MODE_UNSPECIFIED || mode == C::SYNC || mode == C::LOCAL ||
         LeavesBehind(mode);
}

bool PushesLate(const JobSpec& spec) {
  return LeavesBehind(spec.consistency().mode()) &&
         (spec.consistency().late() == C::SCALE ||
          spec.consistency().late() == C::COMPENSATE);
}

std::optional<float> CompensationOf(const JobSpec& spec) {
  constexpr float kDefault = 0.04f;  // job_spec.proto
  const ConsistencySpec& consistency = spec.consistency();
  if (consistency.late() != C::COMPENSATE) return std::nullopt;
  return consistency.compensation() > 0 ? consistency.compensation() : kDefault;
}

void CheckQuorum(const JobSpec& spec, Problems* problems) {
  const ConsistencySpec& consistency = spec.consistency();
  if (consistency.compensation() != 0 && consistency.late() != C::COMPENSATE) {
    problems->Add("consistency.compensation",
                  "is for consistency.late COMPENSATE only");
  }
  if (!LeavesBehind(consistency.mode())) {
    return CheckUnused(consistency, problems);
  }
  CheckNeeded(spec, problems);
  CheckTimeout(spec, problems);
  CheckLate(spec, problems);
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
      ": a clock may end without some workers; ",
      PushesLate(spec)
          ? "they push what they have at the clock that is open then, and the "
            "samples that they have for that one are not trained in that epoch "
            "(`synctl get` counts, by worker, what came too late)"
          : "the samples that they have for it are not trained in that epoch "
            "(`synctl get` counts them by worker)",
      ", and two runs do not end with the same bits");
}

}  // namespace syncline
