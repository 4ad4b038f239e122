#ifndef SYNCLINE_SCHEDULER_CORE_JOB_JOB_COMMANDS_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_JOB_COMMANDS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/job/job_pass.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/job/job_checkpoints.h"
#include "scheduler/core/job/job_members.h"

namespace syncline::scheduler {

// The commands that the scheduler sends to the members of a job
// (proto/scheduler.proto). Their sizes are checked when a job is submitted
// (message_sizes.h).

// PrepareJob: the spec, every member, every parameter and every table.
SchedulerMessage PrepareCommand(const JobStatus& job, const JobMembers& members,
                                absl::Span<const ParameterInfo> parameters,
                                absl::Span<const TableInfo> tables,
                                const JobPass& pass, const StartPoint& start);

// RunJob, with the clocks that the chief has counted.
SchedulerMessage RunCommand(const std::string& job_id, uint32_t attempt,
                            int64_t clocks_per_epoch, int64_t clocks_total);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_JOB_COMMANDS_H_
