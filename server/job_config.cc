#include "server/job_config.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/cluster_config.h"

namespace syncline {
namespace {

absl::Status Unsupported(absl::string_view field, absl::string_view value) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " is not built"));
}

absl::StatusOr<OptimizerParams> ReadOptimizer(const OptimizerSpec& spec) {
  OptimizerParams params;
  switch (spec.kind()) {
    case OptimizerSpec::SGD:
      params.kind = OptimizerKind::kSgd;
      break;
    case OptimizerSpec::MOMENTUM:
      params.kind = OptimizerKind::kMomentum;
      break;
    case OptimizerSpec::NESTEROV:
      params.kind = OptimizerKind::kNesterov;
      break;
    case OptimizerSpec::ADAGRAD:
      params.kind = OptimizerKind::kAdagrad;
      break;
    case OptimizerSpec::ADAM:
      params.kind = OptimizerKind::kAdam;
      break;
    case OptimizerSpec::ADAMW:
      params.kind = OptimizerKind::kAdamW;
      break;
    default:
      return Unsupported("optimizer.kind",
                         OptimizerSpec::Kind_Name(spec.kind()));
  }
  params.momentum = spec.momentum();
  params.beta1 = spec.beta1();
  params.beta2 = spec.beta2();
  params.epsilon = spec.epsilon();
  params.initial_accumulator = spec.initial_accumulator();
  params.weight_decay = spec.weight_decay();
  params.clip_value = spec.clip_value();
  return params;
}

absl::StatusOr<LearningRate::Schedule> ReadSchedule(
    LearningRateSpec::Schedule schedule) {
  switch (schedule) {
    case LearningRateSpec::CONSTANT:
      return LearningRate::Schedule::kConstant;
    case LearningRateSpec::STEP:
      return LearningRate::Schedule::kStep;
    case LearningRateSpec::COSINE:
      return LearningRate::Schedule::kCosine;
    case LearningRateSpec::LINEAR_WARMUP:
      return LearningRate::Schedule::kLinearWarmup;
    case LearningRateSpec::WARMUP_LINEAR_DECAY:
      return LearningRate::Schedule::kWarmupLinearDecay;
    case LearningRateSpec::ONE_CYCLE:
      return LearningRate::Schedule::kOneCycle;
    case LearningRateSpec::RANGE_TEST:
      return LearningRate::Schedule::kRangeTest;
    default:
      return Unsupported("learning_rate.schedule",
                         LearningRateSpec::Schedule_Name(schedule));
  }
}

bool EndsWithTheJob(LearningRate::Schedule schedule) {
  using Schedule = LearningRate::Schedule;
  return schedule == Schedule::kCosine ||
         schedule == Schedule::kWarmupLinearDecay ||
         schedule == Schedule::kOneCycle || schedule == Schedule::kRangeTest;
}

absl::StatusOr<LearningRate> ReadLearningRate(const LearningRateSpec& spec) {
  LearningRate rate;
  SYNCLINE_ASSIGN_OR_RETURN(rate.schedule, ReadSchedule(spec.schedule()));
  rate.base = spec.base();
  rate.step_clocks = spec.step_clocks();
  rate.gamma = spec.gamma();
  rate.warmup_clocks = spec.warmup_clocks();
  rate.total_clocks = spec.total_clocks();
  rate.start = spec.start();
  rate.final = spec.final();
  if (rate.schedule == LearningRate::Schedule::kStep && rate.step_clocks <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "learning_rate.step_clocks is ", rate.step_clocks, ", must be > 0"));
  }
  return rate;
}

absl::Status ReadConsistency(const ConsistencySpec& spec,
                             ConsistencyController::Options* options) {
  switch (spec.mode()) {
    case ConsistencySpec::MODE_UNSPECIFIED:
    case ConsistencySpec::SYNC:
      options->mode = ConsistencyMode::kSync;
      return absl::OkStatus();
    case ConsistencySpec::BOUNDED_STALENESS:
      options->mode = ConsistencyMode::kBoundedStaleness;
      options->staleness_bound = spec.staleness_bound();
      return absl::OkStatus();
    case ConsistencySpec::ASYNC:
      options->mode = ConsistencyMode::kAsync;
      return absl::OkStatus();
    default:
      return Unsupported("consistency.mode",
                         ConsistencySpec::Mode_Name(spec.mode()));
  }
}

absl::StatusOr<BlockMap> ReadBlockMap(const JobAssignment& assignment) {
  std::vector<TensorSize> tensors;
  for (const ParameterInfo& parameter : assignment.parameters()) {
    // A product that does not fit is refused by the block map: keep it > 0.
    int64_t count = 1;
    for (const int64_t dim : parameter.dims()) {
      if (dim <= 0 || __builtin_mul_overflow(count, dim, &count)) {
        count = dim <= 0 ? 0 : INT64_MAX;
        break;
      }
    }
    tensors.push_back({parameter.name(), count});
  }
  return BlockMap::Create(tensors, assignment.ps_size());
}

}  // namespace

std::string MemberName(const Member& member) {
  const TaskId task{static_cast<TaskKind>(member.task().type()),
                    member.task().index()};
  return absl::StrCat(TaskName(task), " at ", member.address());
}

absl::StatusOr<JobConfig> ReadJobConfig(const JobAssignment& assignment,
                                        uint32_t ps_rank) {
  if (ps_rank >= static_cast<uint32_t>(assignment.ps_size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", assignment.job_id(), " has ", assignment.ps_size(),
                     " ps, there is no rank ", ps_rank));
  }
  if (assignment.workers_size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", assignment.job_id(), " has no worker"));
  }
  JobConfig config;
  config.job_id = assignment.job_id();
  config.ps_rank = ps_rank;
  config.routing_version = assignment.routing_version();
  config.label = absl::StrCat("job ", config.job_id, " on ",
                              MemberName(assignment.ps(ps_rank).member()));
  SYNCLINE_ASSIGN_OR_RETURN(config.map, ReadBlockMap(assignment));

  const JobSpec& spec = assignment.spec();
  SYNCLINE_ASSIGN_OR_RETURN(config.shard.optimizer,
                            ReadOptimizer(spec.optimizer()));
  SYNCLINE_ASSIGN_OR_RETURN(config.shard.learning_rate,
                            ReadLearningRate(spec.learning_rate()));
  config.shard.clip_norm = spec.optimizer().clip_norm();
  config.needs_total_clocks =
      config.shard.learning_rate.total_clocks == 0 &&
      EndsWithTheJob(config.shard.learning_rate.schedule);
  config.wait_max = absl::Seconds(spec.limits().step_timeout_seconds() > 0
                                      ? spec.limits().step_timeout_seconds()
                                      : 60);

  SYNCLINE_RETURN_IF_ERROR(
      ReadConsistency(spec.consistency(), &config.controller));
  config.controller.clip_norm = config.shard.clip_norm > 0;
  config.controller.label = config.label;
  config.controller.block_count =
      static_cast<uint32_t>(config.map.shard_blocks(ps_rank).size());
  for (const Participant& worker : assignment.workers()) {
    config.controller.workers.push_back(
        {worker.member().incarnation(), MemberName(worker.member())});
  }
  return config;
}

}  // namespace syncline
