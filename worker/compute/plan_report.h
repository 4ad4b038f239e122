#ifndef SYNCLINE_WORKER_COMPUTE_PLAN_REPORT_H_
#define SYNCLINE_WORKER_COMPUTE_PLAN_REPORT_H_

#include <vector>

#include "absl/types/span.h"
#include "common/model/job_plan.h"
#include "common/model/training_graph.h"
#include "worker/compute/step_plan.h"

namespace syncline::worker {

// A plan as `synctl plan` shows it.

// The cost of all nodes of each operator in so many runs of a plan, dearest
// first.
std::vector<PlannedOperator> OperatorsByCost(
    absl::Span<const StepPlan::NodeCost> costs, double runs);

// Parameters and what is in the arena, largest first.
std::vector<PlannedTensor> TensorsBySize(
    const StepPlan& plan,
    absl::Span<const TrainingGraph::Parameter> parameters);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_PLAN_REPORT_H_
