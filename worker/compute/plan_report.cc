#include "worker/compute/plan_report.h"

#include <algorithm>
#include <map>
#include <string>

namespace syncline::worker {

std::vector<PlannedOperator> OperatorsByCost(
    absl::Span<const StepPlan::NodeCost> costs, double runs) {
  std::map<std::string, PlannedOperator> by_type;
  for (const StepPlan::NodeCost& cost : costs) {
    PlannedOperator& planned = by_type[cost.node->op_type];
    planned.op_type = cost.node->op_type;
    ++planned.nodes;
    planned.forward_flops += runs * cost.flops.forward;
    planned.backward_flops += runs * cost.flops.backward;
    if (cost.runs_again) planned.recomputed_flops += runs * cost.flops.forward;
  }
  std::vector<PlannedOperator> operators;
  for (auto& [type, planned] : by_type) operators.push_back(planned);
  std::stable_sort(operators.begin(), operators.end(),
                   [](const PlannedOperator& a, const PlannedOperator& b) {
                     return a.flops() > b.flops();
                   });
  return operators;
}

std::vector<PlannedTensor> TensorsBySize(
    const StepPlan& plan,
    absl::Span<const TrainingGraph::Parameter> parameters) {
  std::vector<PlannedTensor> tensors = plan.ArenaTensors();
  for (const TrainingGraph::Parameter& p : parameters) {
    tensors.push_back({p.name, "parameter", p.dims,
                       ElementCount(p.dims) * int64_t{sizeof(float)}});
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const PlannedTensor& a, const PlannedTensor& b) {
                     return a.bytes > b.bytes;
                   });
  return tensors;
}

}  // namespace syncline::worker
