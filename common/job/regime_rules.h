#ifndef SYNCLINE_COMMON_JOB_REGIME_RULES_H_
#define SYNCLINE_COMMON_JOB_REGIME_RULES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_spec_problems.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The changes of its regime that a running job can make: one set of rules for
// those who check a job's spec, the scheduler, which answers users, and the
// chief, which makes the change. docs/jobs.md has them for users.

// A job has at most so many changes, failed ones included.
inline constexpr int kRegimeChangesMax = 256;

// Of JobSpec.regimes.
inline constexpr int kRegimeRulesMax = 64;

// As JobSpec.consistency's.
inline constexpr uint32_t kRegimeStalenessBoundMax = 1'000'000;

// RegimeChange.learning_rate_factor is in (0, this]. No schedule needs more,
// and a slip of the keyboard ends the job at the next step.
inline constexpr double kRegimeFactorMax = 1e6;

// OK if the mode, or the bound, of this job can change while it runs. Errors:
// InvalidArgument: names the field that is tied to the mode which the job
// begins in ("optimizer.kind: LAMB is for SYNC").
absl::Status CheckModeCanChange(const JobSpec& spec);

// The regime after `current` by what `change` says differs, of a job with so
// many workers; its first clock is still to be set. The factor of the learning
// rate follows the mode where the change does not name one: 1 / workers where
// SYNC ends, 1 where it begins.
// Errors: InvalidArgument, with the field of RegimeChange: a value that is
// none, that is not built, or that does not go with the job; nothing would
// change.
absl::StatusOr<Regime> ChangedRegime(const JobSpec& spec, uint32_t workers,
                                     const Regime& current,
                                     const RegimeChange& change);

// How a job of this spec begins, as those know it who change it.
Regime FirstRegimeOf(const JobSpec& spec);

// A job trains by both in the same way; the wire type does not change.
bool TrainTheSame(const Regime& a, const Regime& b);

// The regime's strategy, with its default.
Strategy StrategyOf(const Regime& regime);

// JobSpec.regimes: each rule has a condition that can come true, and a change
// that some regime of the job can make. If no rule changes the regime that the
// job begins in, each of them is refused: it would change nothing.
void CheckRegimeRules(const JobSpec& spec, Problems* problems);

// "BOUNDED_STALENESS, bound 4, learning rate x 0.25", for people.
std::string RegimeText(const Regime& regime);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_REGIME_RULES_H_
