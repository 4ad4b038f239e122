#ifndef SYNCLINE_SCHEDULER_CTL_SCALE_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_SCALE_COMMAND_H_

#include <cstdint>
#include <string>

#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct ScaleOptions {
  std::string scheduler;  // its address
  std::string job_id;
  uint32_t workers = 0;
  std::string reason;
};

// `synctl scale`: gives a job another number of workers, and says what follows.
// Does not wait for it. Returns the exit code.
int RunScale(const ScaleOptions& options, const Console& console);

// The answer of RunScale, for people. `job` is as it was before the call,
// `cluster` as it is behind it. Pure.
std::string ScaleAnswer(const JobStatus& job, const ClusterStatus& cluster,
                        uint32_t workers);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_SCALE_COMMAND_H_
