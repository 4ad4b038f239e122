#ifndef SYNCLINE_COMMON_JOB_AUTO_REGIME_RULES_H_
#define SYNCLINE_COMMON_JOB_AUTO_REGIME_RULES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/job_spec_problems.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Regimes that a job may try by itself (JobSpec.auto_regime), and how many
// of its clocks: one set of rules for the check of a job's spec, the plan
// of its memory, and the chief, which makes the trials. docs/jobs.md has them
// for users.

inline constexpr int kAutoCandidatesMax = 8;
// A window with fewer clocks says nothing of a loss.
inline constexpr int64_t kTrialClocksMin = 10;

// The reason of each RegimeTransition that a job has made by itself begins so.
inline constexpr char kAutoReason[] = "auto: ";
// That of a regime which is tried goes on so.
inline constexpr char kTrialBegin[] = "trying ";

// The regimes that a job with so many workers tries, the one that it begins in
// first; no two of them train the same. Errors: InvalidArgument, with the path
// of the field of JobSpec: a candidate that is none for this job, or nothing to
// choose from.
absl::StatusOr<std::vector<Regime>> AutoRegimesOf(const JobSpec& spec,
                                                  uint32_t workers);

// The change that makes one regime of a job into another one.
RegimeChange ChangeBetween(const Regime& from, const Regime& to);

// How a job spends its clocks on trials.
struct TrialPlan {
  int64_t budget =
      0;  // clocks in regimes that are not kept, over the whole job
  int64_t window = 0;  // of these, for each trial
  int rounds = 0;      // spread evenly over the job; in each, all are tried

  friend bool operator==(const TrialPlan&, const TrialPlan&) = default;
};
// `candidates`: regimes besides the one in force, at least one. Errors:
// InvalidArgument, with the path of the field: the job is too short for a
// single trial.
absl::StatusOr<TrialPlan> PlanTrials(const AutoRegimeSpec& spec, int candidates,
                                     int64_t clocks_total);
// Likewise of a whole job, whose number of clocks is known.
absl::StatusOr<TrialPlan> PlanTrials(const JobSpec& spec, uint32_t workers,
                                     int64_t clocks_total);

// Clocks of an attempt's past that were spent on trials of this window, where
// these are the regimes that the attempt was assigned: ascending, the last one
// in force. A regime that was kept was in force for longer than a window.
int64_t TrialClocksIn(absl::Span<const Regime> regimes, int64_t window);

// An entry of JobStatus.regimes tells a decision of the job for the regime that
// is in force already: nothing has changed.
bool IsStay(const google::protobuf::RepeatedPtrField<RegimeTransition>& history,
            int entry);

// AutoRegimeSpec.gain, with its default.
double TrialGainOf(const AutoRegimeSpec& spec);

// The job begins in another mode than SYNC, and may try SYNC.
bool TriesSync(const JobSpec& spec);

// For the job specification's validator.
void CheckAutoRegime(const JobSpec& spec, Problems* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_AUTO_REGIME_RULES_H_
