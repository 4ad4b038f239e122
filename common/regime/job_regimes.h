#ifndef SYNCLINE_COMMON_REGIME_JOB_REGIMES_H_
#define SYNCLINE_COMMON_REGIME_JOB_REGIMES_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/regime/regime_schedule.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Regimes as messages, and those of a job. Members take mode, bound, strategy
// and wire type from here alone: JobSpec says how a job begins, its assignment
// how it trains.

// As the job begins: the one place that reads these fields of a spec for those
// who train. The regime's first clock is 0.
Regime RegimeOf(const JobSpec& spec);

Regime ToProto(const TrainingRegime& regime);

// `spec`, which has its defaults, may refuse a regime: LAMB and statistics over
// all workers are for SYNC, rows are not cached in SYNC.
// Errors, here and below: InvalidArgument, which name the field
// ("regimes[1].consistency.mode"): a value that this version does not build, or
// that is out of range; clocks that do not ascend, or leave the start without a
// regime; no regime at all.
absl::StatusOr<RegimeSchedule> ReadRegimes(const JobAssignment& assignment);
// A regime by itself, as a change brings it; `field` is its name for messages.
absl::StatusOr<TrainingRegime> ReadRegime(const std::string& field,
                                          const Regime& message);
// Those that a shard has told (GetRegimesResponse.regimes).
absl::StatusOr<RegimeSchedule> ReadRegimes(
    const google::protobuf::RepeatedPtrField<Regime>& messages);
// Of a job that has not been assigned yet, for those who plan it.
absl::StatusOr<RegimeSchedule> ReadRegimes(const JobSpec& spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_REGIME_JOB_REGIMES_H_
