#ifndef SYNCLINE_SCHEDULER_CTL_WATCH_H_
#define SYNCLINE_SCHEDULER_CTL_WATCH_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

// Shows the job's progress until it is final and returns that status.
// `on_idle` runs at least five times a second with the last status seen; the
// first that is not OK ends the watch and is returned.
using OnIdle = std::function<absl::Status(const JobStatus& latest)>;
absl::StatusOr<JobStatus> WatchOnConsole(JobsClient* client,
                                         const std::string& job_id,
                                         const Console& console,
                                         InterruptSignals* interrupts,
                                         const OnIdle& on_idle);

// Says how a final job ended, unless in JSON, where its last status has said
// so. Returns the exit code.
int PrintOutcome(const JobStatus& job, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_WATCH_H_
