#ifndef SYNCLINE_WORKER_JOB_JOB_PLANNER_H_
#define SYNCLINE_WORKER_JOB_JOB_PLANNER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/model/job_plan.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "proto/job_spec.pb.h"

namespace syncline::worker {

// Memory that the chief of a job would take, and operations that it would
// compute, found with the planning code of a run. Opens no data and takes
// little memory. REQUIRES: `spec` has its defaults; `training` is what it is
// over `model`. Errors: InvalidArgument: something cannot be trained.
absl::StatusOr<WorkerPlan> PlanWorker(const JobSpec& spec,
                                      std::shared_ptr<const Model> model,
                                      const TrainingGraph& training);

// The same for the job's evaluator. REQUIRES: the job has test data.
absl::StatusOr<WorkerPlan> PlanEvaluator(const JobSpec& spec,
                                         std::shared_ptr<const Model> model,
                                         const TrainingGraph& training);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_JOB_PLANNER_H_
