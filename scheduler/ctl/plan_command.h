#ifndef SYNCLINE_SCHEDULER_CTL_PLAN_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_PLAN_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "scheduler/ctl/job_file.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct PlanOptions {
  std::string job_file;
  // Instead of what the job says.
  JobOverrides overrides = {};
  // Largest tensors that are listed.
  uint32_t tensors = 10;
};

// `synctl plan`: what a job will take of memory and compute, before anything
// runs. Returns the exit code.
int RunPlan(const PlanOptions& options, const JobPlanner& planner,
            const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_PLAN_COMMAND_H_
