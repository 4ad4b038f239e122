#include "worker/job/job_planner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/job/elastic_validator.h"
#include "common/job/local_rules.h"
#include "common/job/quorum_validator.h"
#include "common/job/strategy_change.h"
#include "common/job/strategy_rules.h"
#include "common/job/worker_groups.h"
#include "common/regime/job_regimes.h"
#include "common/update/update_spec.h"
#include "common/wire/block_map.h"
#include "common/wire/wire_element_type.h"
#include "worker/client/ps_client.h"
#include "worker/compute/late_gradient.h"
#include "worker/compute/local_updater.h"
#include "worker/compute/loss.h"
#include "worker/compute/parameter_memory.h"
#include "worker/compute/planned_gpu.h"
#include "worker/data/prefetcher.h"
#include "worker/embedding/job_rows.h"
#include "worker/job/compression_options.h"
#include "worker/job/prepared_job.h"
#include "worker/job/update_place.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/group_exchange.h"
#include "worker/peers/peer_exchange.h"

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
  const bool converts =
      type != ElementType::kFloat32 ||
      absl::c_any_of(spec.regimes(), [](const RegimeRule& rule) {
        return rule.then().wire_type() != WIRE_TYPE_UNSPECIFIED;
      });
  int64_t bytes = 0;
  for (uint32_t shard = 0; shard < map.shard_count(); ++shard) {
    const int64_t of_shard =
        map.shard_elements(shard) * static_cast<int64_t>(ElementBytes(type));
    bytes += std::min(of_shard, pulled_max);
    if (converts) bytes += std::min(of_shard, pushed_max);
  }
  return bytes;
}

// The bytes that compression takes of a rank.
absl::StatusOr<int64_t> ResidualBytes(const JobSpec& spec,
                                      const TrainingGraph& training) {
  SYNCLINE_ASSIGN_OR_RETURN(const RegimeSchedule regimes, ReadRegimes(spec));
  return static_cast<int64_t>(CompressionBytes(spec, regimes, training));
}

// Counts the memory that a worker in LOCAL has besides its executor.
absl::Status PlanLocalSteps(const JobSpec& spec, const TrainingGraph& training,
                            Device* device, WorkerPlan* plan) {
  SYNCLINE_ASSIGN_OR_RETURN(const RegimeSchedule regimes, ReadRegimes(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const DenseUpdater::Options update,
                            ReadLocalUpdate(spec, regimes));
  std::vector<int64_t> counts;
  for (const TrainingGraph::Parameter& parameter : training.parameters) {
    counts.push_back(ElementCount(parameter.dims));
  }
  const bool on_device =
      device != nullptr && LocalUpdater::RunsOn(*device, update.optimizer.kind);
  const LocalUpdater::Memory memory =
      LocalUpdater::MemoryOf(update.optimizer, counts, on_device);
  plan->round_bytes = static_cast<int64_t>(memory.change_bytes);
  plan->slot_bytes = static_cast<int64_t>(memory.slot_bytes);
  plan->executor.local_bytes = static_cast<int64_t>(memory.device_bytes);
  return absl::OkStatus();
}

// Plans the memory of the rank that owns most, but for its executor. Where the
// strategy changes from one without ps to another, it holds both states.
absl::Status PlanAmongWorkers(const JobSpec& spec,
                              absl::Span<const Strategy> strategies,
                              const TrainingGraph& training, WorkerPlan* plan) {
  SYNCLINE_ASSIGN_OR_RETURN(const RegimeSchedule regimes, ReadRegimes(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const DenseUpdater::Options update,
                            ReadUpdate(spec, regimes));
  SYNCLINE_ASSIGN_OR_RETURN(
      const BlockMap map,
      OwnedBlocks(TensorSizesOf(training), spec.resources().workers()));
  PeerExchange::Options options;
  options.update = update;
  options.frees_gradients = FreesGradients(spec);
  options.frees_values = FreesValues(spec);
  options.wire_type = ElementTypeOf(spec.wire_type());
  options.compression.compressor =
      CompressorOptionsOf(spec, regimes, training, /*rank=*/0);
  if (spec.has_checkpoint()) {
    options.checkpoints.emplace();
    if (spec.checkpoint().has_copy_bytes()) {
      options.checkpoints->copy_bytes = spec.checkpoint().copy_bytes();
    }
  }
  for (uint32_t rank = 0; rank < map.shard_count(); ++rank) {
    PeerExchange::Memory memory;
    for (const Strategy strategy : strategies) {
      options.replicates = strategy != SHARDED;
      const PeerExchange::Memory one =
          PeerExchange::MemoryOf(options, map, rank);
      memory.value_bytes += one.value_bytes;
      memory.slot_bytes += one.slot_bytes;
      memory.gradient_bytes += one.gradient_bytes;
      memory.copy_bytes += one.copy_bytes;
    }
    if (memory.bytes() <= plan->updated_bytes + plan->slot_bytes +
                              plan->waiting_bytes + plan->copy_bytes) {
      continue;
    }
    plan->updated_bytes = memory.value_bytes;
    plan->slot_bytes = memory.slot_bytes;
    plan->waiting_bytes = memory.gradient_bytes;
    plan->copy_bytes = memory.copy_bytes;
  }
  return absl::OkStatus();
}

// Counts what the leader of a group has, which is the most of its members: by
// hosts of the largest group that there can be.
absl::Status PlanGroup(const JobSpec& spec, const TrainingGraph& training,
                       WorkerPlan* plan) {
  const uint32_t size = spec.groups().by_host() ? spec.resources().workers()
                                                : spec.groups().size();
  SYNCLINE_ASSIGN_OR_RETURN(const BlockMap map,
                            OwnedBlocks(TensorSizesOf(training), size));
  plan->waiting_bytes += GroupExchange::MemoryBytes(map, /*member=*/0);
  return absl::OkStatus();
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
      BatchBytes(spec, *model, training, LargestShare(spec)));
  plan.batch_bytes = (Prefetcher::Options().depth + 1) * batch;
  if (evaluates) {
    SYNCLINE_ASSIGN_OR_RETURN(
        const int64_t evaluated,
        BatchBytes(spec, *model, training, spec.training().eval_batch_size()));
    plan.batch_bytes += evaluated;
  }
  std::vector<Strategy> among_workers;
  bool has_ps = false;
  for (const Strategy strategy : StrategiesOf(spec, spec.strategy())) {
    const StrategyRule* const rule = FindStrategyRule(strategy);
    if (rule == nullptr || rule->has_ps) has_ps = true;
    if (rule != nullptr && (!rule->has_ps || rule->tables_apart)) {
      among_workers.push_back(strategy);
    }
  }
  if (trains && !among_workers.empty()) {
    SYNCLINE_RETURN_IF_ERROR(
        PlanAmongWorkers(spec, among_workers, training, &plan));
    if (options.device != nullptr) {
      SYNCLINE_ASSIGN_OR_RETURN(const RegimeSchedule regimes,
                                ReadRegimes(spec));
      SYNCLINE_ASSIGN_OR_RETURN(
          const uint64_t bytes,
          UpdateBytesOn(gpu, spec, regimes, among_workers, training));
      plan.executor.update_bytes = static_cast<int64_t>(bytes);
    }
  }
  if (trains && HasGroups(spec)) {
    SYNCLINE_RETURN_IF_ERROR(PlanGroup(spec, training, &plan));
  }
  if (trains && FreesValues(spec)) {
    for (const TrainingGraph::Parameter& parameter : training.parameters) {
      plan.whole_bytes +=
          ParameterMemory::BytesOf(ElementCount(parameter.dims));
    }
  }
  if (trains && IsLocal(spec)) {
    SYNCLINE_RETURN_IF_ERROR(
        PlanLocalSteps(spec, training, options.device, &plan));
  }
  if (trains && PushesLate(spec) && CompensationOf(spec).has_value()) {
    std::vector<int64_t> counts;
    for (const TrainingGraph::Parameter& parameter : training.parameters) {
      counts.push_back(ElementCount(parameter.dims));
    }
    plan.late_bytes = static_cast<int64_t>(LateGradient::BytesOf(counts));
  }
  if (trains) {
    SYNCLINE_RETURN_IF_ERROR(CheckFraction(spec, training));
    SYNCLINE_ASSIGN_OR_RETURN(plan.residual_bytes,
                              ResidualBytes(spec, training));
  }
  if (!has_ps) return plan;
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
