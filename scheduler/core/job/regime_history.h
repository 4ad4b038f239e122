#ifndef SYNCLINE_SCHEDULER_CORE_JOB_REGIME_HISTORY_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_REGIME_HISTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/job.pb.h"

namespace syncline::scheduler {

// How a job trains, from its first regime on: JobStatus.regimes. Pure.
//
// Entries are in the order in which things happened. An attempt that goes on
// from an earlier clock loses the regimes of later ones: an entry for its start
// says so, and takes their place.

// RegimeTransition.reason of the first entry: nothing has changed.
inline constexpr char kAsSubmitted[] = "as submitted";

// The regimes that hold, by ascending first clock; RegimeOf the spec where the
// history is empty. Never empty.
std::vector<Regime> RegimesInForce(const JobStatus& job);

// An attempt begins at this clock: the first one enters the spec's regime, a
// later one what was lost.
void BeginRegimes(int64_t start_clock, absl::Time now, JobStatus* job);

// True if the history has this change: the chief has reported it before.
bool IsKnownChange(const RegimeTransition& transition, const JobStatus& job);

// Takes over what the chief says of a change. False: it has said so before.
bool TakeRegime(const RegimeTransition& transition, absl::Time now,
                JobStatus* job);

// The job is to go on from this checkpoint, of whose past the record may lack
// changes: what the checkpoint says of it is added where it differs. False: a
// regime is not one of this version, or they are not in order; nothing has
// changed.
bool TakeRegimesOf(const FoundCheckpoint& found, absl::Time now,
                   JobStatus* job);

// True if the last entry is that of an attempt which has gone back behind a
// change: BeginRegimes.
bool HasLostChanges(const JobStatus& job);

// Somebody, in any attempt, has changed how the job trains, but for what it
// tries by itself (JobSpec.auto_regime).
bool WasChangedByOthers(const JobStatus& job);

// The reason of the regime in force where the job only tries it
// (JobSpec.auto_regime), and goes back by itself; empty: it does not.
std::string TrialInForce(const JobStatus& job);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_REGIME_HISTORY_H_
