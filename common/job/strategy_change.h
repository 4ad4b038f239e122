#ifndef SYNCLINE_COMMON_JOB_STRATEGY_CHANGE_H_
#define SYNCLINE_COMMON_JOB_STRATEGY_CHANGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Which strategies a job can train by while it runs, beside the one that it
// begins with: one set of rules for validation, the scheduler, the chief and
// the members. docs/jobs.md has them for users.

// True if gradients leave a worker's memory as soon as they are computed: a
// job that begins in SHARDED from stage 2 on has that plan of its steps, for
// all of its time.
bool FreesGradients(const JobSpec& spec);

// True if values are at their owners alone, and are gathered for each use: a
// job in SHARDED, stage 3.
bool FreesValues(const JobSpec& spec);

// The stage of SHARDED that a job of this spec has where it trains by that
// strategy.
uint32_t ShardingStageOf(const JobSpec& spec);

// OK if this job can train by `strategy` for some of its clocks, in SYNC and
// with float32 on the wire; always for the one that it begins with. Errors:
// InvalidArgument, "field: why": what the job has and the strategy does not go
// with, a strategy that is not built, ps that are not reserved.
absl::Status CheckTrainsBy(const JobSpec& spec, Strategy strategy);

// The field by which ranks need another exchange to go from one regime to the
// next, "strategy", or without ps "wire_type"; empty: they do not.
absl::string_view FieldOfOtherExchange(const Regime& from, const Regime& to);

// OK if the dense state of this job can move from one exchange to another while
// it runs. Errors: InvalidArgument, as above.
absl::Status CheckStateMoves(const JobSpec& spec);

// OK if the strategy can change from `current` by `change`, which names one
// that differs. Errors: as CheckTrainsBy, with the field of RegimeChange too: a
// mode or wire type that does not go with it, a change of something else at
// the same time.
absl::Status CheckStrategyChange(const JobSpec& spec, const Regime& current,
                                 const RegimeChange& change);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_STRATEGY_CHANGE_H_
