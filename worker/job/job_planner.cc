#include "worker/job/job_planner.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/regime/job_regimes.h"
#include "common/wire/block_map.h"
#include "worker/client/ps_client.h"
#include "worker/compute/loss.h"
#include "worker/compute/planned_gpu.h"
#include "worker/data/prefetcher.h"
#include "worker/embedding/job_rows.h"
#include "worker/job/prepared_job.h"

namespace syncline::worker {
namespace {

// Of a batch as data delivers it: feeds and labels.
absl::StatusOr<int64_t> BatchBytes(const JobSpec& spec, const Model& model,
                                   const TrainingGraph& training,
                                   int64_t samples) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<Dims> shapes,
                            model.InferShapes(samples));
  SYNCLINE_ASSIGN_OR_RETURN(
      const Loss loss,
      Loss::Create(spec.loss().kind(), shapes[training.loss_output], samples));
  int64_t bytes = samples * loss.label_width() * int64_t{sizeof(float)};
  for (const ValueId feed : training.feeds) {
    if (feed == kNoValue) continue;
    bytes += ElementCount(shapes[feed]) *
             static_cast<int64_t>(DTypeBytes(model.graph().values[feed].dtype));
  }
  return bytes;
}

// Of values that a worker has asked the ps for, and of gradients that leave
// converted to another type; others leave from where they lie. Rows are copied
// both ways, and a batch may have as many as a window takes.
absl::StatusOr<int64_t> MessageBytes(const JobSpec& spec,
                                     const TrainingGraph& training) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const BlockMap map,
      BlockMap::Create(TensorSizesOf(training), spec.resources().ps()));
  const PsClient::Options defaults;
  const int64_t pulled_max = defaults.pull_window_bytes;
  const int64_t pushed_max = defaults.push_window_bytes;
  if (spec.tables_size() > 0) {
    return int64_t{map.shard_count()} * (pulled_max + pushed_max);
  }
  SYNCLINE_ASSIGN_OR_RETURN(const RegimeSchedule regimes, ReadRegimes(spec));
  const ElementType type = regimes.WidestWireType();
  int64_t bytes = 0;
  for (uint32_t shard = 0; shard < map.shard_count(); ++shard) {
    const int64_t of_shard =
        map.shard_elements(shard) * static_cast<int64_t>(ElementBytes(type));
    bytes += std::min(of_shard, pulled_max);
    if (type != ElementType::kFloat32) bytes += std::min(of_shard, pushed_max);
  }
  return bytes;
}

absl::StatusOr<WorkerPlan> PlanMember(const JobSpec& spec, bool trains,
                                      std::shared_ptr<const Model> model,
                                      const TrainingGraph& training) {
  const bool evaluates = spec.data().has_test();
  Executor::Options options = ExecutorOptionsOf(spec, evaluates);
  options.trains = trains;
  PlannedGpu gpu;
  if (spec.resources().device() == ResourcesSpec::CUDA) options.device = &gpu;
  WorkerPlan plan;
  SYNCLINE_ASSIGN_OR_RETURN(plan.executor,
                            Executor::Plan(model, training, options));
  SYNCLINE_ASSIGN_OR_RETURN(plan.row_bytes,
                            JobRowsBytes(spec, *model, training, evaluates));
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t batch,
      BatchBytes(spec, *model, training, spec.training().batch_size()));
  plan.batch_bytes = (Prefetcher::Options().depth + 1) * batch;
  if (evaluates) {
    SYNCLINE_ASSIGN_OR_RETURN(
        const int64_t evaluated,
        BatchBytes(spec, *model, training, spec.training().eval_batch_size()));
    plan.batch_bytes += evaluated;
  }
  SYNCLINE_ASSIGN_OR_RETURN(plan.message_bytes, MessageBytes(spec, training));
  return plan;
}

}  // namespace

absl::StatusOr<WorkerPlan> PlanWorker(const JobSpec& spec,
                                      std::shared_ptr<const Model> model,
                                      const TrainingGraph& training) {
  return PlanMember(spec, /*trains=*/true, std::move(model), training);
}

absl::StatusOr<WorkerPlan> PlanEvaluator(const JobSpec& spec,
                                         std::shared_ptr<const Model> model,
                                         const TrainingGraph& training) {
  SYNCLINE_ASSIGN_OR_RETURN(
      WorkerPlan plan,
      PlanMember(EvaluatorSpec(spec), /*trains=*/false, model, training));
  SYNCLINE_ASSIGN_OR_RETURN(
      plan.batch_bytes,
      BatchBytes(spec, *model, training, spec.training().eval_batch_size()));
  return plan;
}

}  // namespace syncline::worker
