#include "common/update/update_spec.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/local_rules.h"

namespace syncline {
namespace {

// The enumerators are those of the proto, in its order.
template <auto ours, auto theirs>
constexpr bool kSame = static_cast<int>(ours) == static_cast<int>(theirs);
using Ours = LearningRate::Schedule;
using Theirs = LearningRateSpec;
static_assert(kSame<Ours::kConstant, Theirs::CONSTANT>);
static_assert(kSame<Ours::kStep, Theirs::STEP>);
static_assert(kSame<Ours::kCosine, Theirs::COSINE>);
static_assert(kSame<Ours::kLinearWarmup, Theirs::LINEAR_WARMUP>);
static_assert(kSame<Ours::kWarmupLinearDecay, Theirs::WARMUP_LINEAR_DECAY>);
static_assert(kSame<Ours::kOneCycle, Theirs::ONE_CYCLE>);
static_assert(kSame<Ours::kRangeTest, Theirs::RANGE_TEST>);
static_assert(kSame<Ours::kRangeTest, Theirs::Schedule_MAX>);

absl::Status Unsupported(absl::string_view field, absl::string_view value) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " is not built"));
}

absl::StatusOr<LearningRate> ReadLearningRate(const LearningRateSpec& spec) {
  if (!LearningRateSpec::Schedule_IsValid(spec.schedule())) {
    return Unsupported("learning_rate.schedule",
                       LearningRateSpec::Schedule_Name(spec.schedule()));
  }
  if (spec.schedule() == LearningRateSpec::STEP && spec.step_clocks() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "learning_rate.step_clocks is ", spec.step_clocks(), ", must be > 0"));
  }
  return LearningRateOf(spec, 0);
}

// By `optimizer` and `learning_rate`.
absl::StatusOr<DenseUpdater::Options> ReadUpdateOfJob(
    const JobSpec& spec, const RegimeSchedule& regimes) {
  DenseUpdater::Options options;
  SYNCLINE_ASSIGN_OR_RETURN(options.optimizer,
                            ReadOptimizer("optimizer", spec.optimizer()));
  if (options.optimizer.kind == OptimizerKind::kRowWiseAdagrad) {
    return Unsupported("optimizer.kind", "ROW_WISE_ADAGRAD for dense tensors");
  }
  // The workers have momentum, and clip, before they compress.
  const bool dense_is_plain =
      regimes.regimes()[0].compression.kind == GradientCompression::Kind::kDgc;
  if (dense_is_plain) options.optimizer.kind = OptimizerKind::kSgd;
  SYNCLINE_ASSIGN_OR_RETURN(options.rule.learning_rate,
                            ReadLearningRate(spec.learning_rate()));
  options.rule.regimes = regimes;
  if (!dense_is_plain) options.rule.clip_norm = spec.optimizer().clip_norm();
  SYNCLINE_ASSIGN_OR_RETURN(options.on_non_finite, ReadGradientPolicy(spec));
  return options;
}

}  // namespace

absl::StatusOr<DenseUpdater::Options> ReadUpdate(
    const JobSpec& spec, const RegimeSchedule& regimes) {
  if (!IsLocal(spec)) return ReadUpdateOfJob(spec, regimes);
  const LocalSpec& local = spec.consistency().local();
  DenseUpdater::Options options;
  SYNCLINE_ASSIGN_OR_RETURN(
      options.optimizer,
      ReadOptimizer("consistency.local.optimizer", local.optimizer()));
  options.rule.learning_rate.base = local.learning_rate();
  options.rule.regimes = regimes;
  SYNCLINE_ASSIGN_OR_RETURN(options.on_non_finite, ReadGradientPolicy(spec));
  return options;
}

absl::StatusOr<DenseUpdater::Options> ReadLocalUpdate(
    const JobSpec& spec, const RegimeSchedule& regimes) {
  return ReadUpdateOfJob(spec, regimes);
}

absl::StatusOr<OptimizerParams> ReadOptimizer(absl::string_view field,
                                              const OptimizerSpec& spec) {
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
    case OptimizerSpec::LAMB:
      params.kind = OptimizerKind::kLamb;
      break;
    case OptimizerSpec::RMSPROP:
      params.kind = OptimizerKind::kRmsProp;
      break;
    case OptimizerSpec::FTRL:
      params.kind = OptimizerKind::kFtrl;
      break;
    case OptimizerSpec::ROW_WISE_ADAGRAD:
      params.kind = OptimizerKind::kRowWiseAdagrad;
      break;
    default:
      return Unsupported(absl::StrCat(field, ".kind"),
                         OptimizerSpec::Kind_Name(spec.kind()));
  }
  params.momentum = spec.momentum();
  params.beta1 = spec.beta1();
  params.beta2 = spec.beta2();
  params.epsilon = spec.epsilon();
  params.initial_accumulator = spec.initial_accumulator();
  params.weight_decay = spec.weight_decay();
  params.clip_value = spec.clip_value();
  params.decay = spec.decay();
  params.centered = spec.centered();
  params.l1 = spec.l1();
  params.l2 = spec.l2();
  params.learning_rate_power = spec.learning_rate_power();
  return params;
}

absl::StatusOr<OptimizerParams> ReadTableOptimizer(const JobSpec& spec,
                                                   int table) {
  SYNCLINE_ASSIGN_OR_RETURN(
      OptimizerParams params,
      ReadOptimizer(absl::StrCat("tables[", table, "].optimizer"),
                    spec.tables(table).optimizer()));
  params.clip_value = spec.optimizer().clip_value();
  return params;
}

absl::StatusOr<RowInitializer> ReadRowInitializer(const JobSpec& spec,
                                                  int table, size_t dim) {
  const TableSpec& of_table = spec.tables(table);
  using R = InitializerRule;
  using Scheme = RowInitializer::Scheme;
  const auto make = [&](Scheme scheme, float amplitude) {
    return RowInitializer(scheme, amplitude, spec.training().seed(),
                          of_table.name());
  };
  switch (of_table.scheme()) {
    case R::ZEROS:
      return make(Scheme::kZeros, 0);
    case R::CONSTANT:
      return make(Scheme::kConstant, of_table.value());
    case R::UNIFORM:
      return make(Scheme::kUniform, of_table.scale());
    case R::NORMAL:
      return make(Scheme::kNormal, of_table.scale());
    case R::XAVIER_UNIFORM:
      return make(Scheme::kUniform,
                  RowInitializer::XavierUniform(of_table.scale(), dim));
    case R::XAVIER_NORMAL:
      return make(Scheme::kNormal,
                  RowInitializer::XavierNormal(of_table.scale(), dim));
    default:
      return Unsupported(absl::StrCat("tables[", table, "].scheme"),
                         R::Scheme_Name(of_table.scheme()));
  }
}

ExpiryOptions ReadExpiry(const ExpirySpec& spec) {
  ExpiryOptions options;
  options.unseen_clocks = static_cast<int64_t>(spec.unseen_clocks());
  options.unseen_time = absl::Seconds(spec.unseen_seconds());
  options.min_score = spec.min_score();
  if (spec.min_score() > 0) {
    options.decay = spec.decay();
    options.decay_clocks = static_cast<int64_t>(spec.decay_clocks());
  }
  return options;
}

absl::StatusOr<OnNonFinite> ReadNonFinite(NonFinitePolicy policy) {
  if (!NonFinitePolicy_IsValid(policy)) {
    return Unsupported("non_finite", absl::StrCat(policy));
  }
  return NonFiniteOf(policy);
}

absl::StatusOr<OnNonFinite> ReadGradientPolicy(const JobSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(ReadNonFinite(spec.non_finite()).status());
  return GradientPolicyOf(spec);
}

LearningRate LearningRateOf(const LearningRateSpec& spec,
                            int64_t total_clocks) {
  LearningRate rate;
  rate.schedule = static_cast<Ours>(spec.schedule());
  rate.base = spec.base();
  rate.step_clocks = spec.step_clocks();
  rate.gamma = spec.gamma();
  rate.warmup_clocks = spec.warmup_clocks();
  rate.total_clocks =
      spec.total_clocks() > 0 ? spec.total_clocks() : total_clocks;
  rate.start = spec.start();
  rate.final = spec.final();
  return rate;
}

OnNonFinite NonFiniteOf(NonFinitePolicy policy) {
  switch (policy) {
    case SKIP_STEP:
      return OnNonFinite::kSkipStep;
    case DROP_BLOCK:
      return OnNonFinite::kDropBlock;
    default:
      return OnNonFinite::kFailJob;
  }
}

OnNonFinite GradientPolicyOf(const JobSpec& spec) {
  return HasDynamicLossScale(spec) ? OnNonFinite::kSkipStep
                                   : NonFiniteOf(spec.non_finite());
}

bool HasDynamicLossScale(const JobSpec& spec) {
  return spec.precision() == FLOAT16 && !spec.loss_scale().has_fixed();
}

bool EndsWithTheJob(LearningRate::Schedule schedule) {
  using Schedule = LearningRate::Schedule;
  return schedule == Schedule::kCosine ||
         schedule == Schedule::kWarmupLinearDecay ||
         schedule == Schedule::kOneCycle || schedule == Schedule::kRangeTest;
}

}  // namespace syncline
