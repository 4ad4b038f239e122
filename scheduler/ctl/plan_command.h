#ifndef SYNCLINE_SCHEDULER_CTL_PLAN_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_PLAN_COMMAND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/job_plan.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "proto/job_spec.pb.h"
#include "scheduler/ctl/job_file.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

// Plans the memory and the operations of a job, with the code of the worker and
// the ps. `spec` has its defaults, `training` is what it is over `model`.
using JobPlanner = std::function<absl::StatusOr<JobPlan>(
    const JobSpec& spec, std::shared_ptr<const Model> model,
    const TrainingGraph& training)>;

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
