// WithDefaults: the defaults that proto/job_spec.proto documents.

#include <algorithm>

#include "common/job/checkpoint_validator.h"
#include "common/job/compression_rules.h"
#include "common/job/job_spec_fields.h"
#include "common/job/job_spec_validator.h"
#include "common/job/local_rules.h"
#include "common/job/precision_validator.h"
#include "common/job/quorum_validator.h"
#include "common/job/restart_validator.h"
#include "common/job/strategy_rules.h"

namespace syncline {
namespace {

float DefaultScale(InitializerRule::Scheme scheme) {
  switch (scheme) {
    case InitializerRule::UNIFORM:
    case InitializerRule::NORMAL:
      return 0.05f;
    case InitializerRule::XAVIER_UNIFORM:
    case InitializerRule::XAVIER_NORMAL:
    case InitializerRule::HE_UNIFORM:
    case InitializerRule::HE_NORMAL:
      return 1;
    default:
      return 0;  // not read
  }
}

void FillData(DataSpec* data) {
  for (DataSource* source :
       {data->mutable_train(),
        data->has_test() ? data->mutable_test() : nullptr}) {
    if (source != nullptr && source->has_csv() &&
        source->csv().delimiter().empty()) {
      source->mutable_csv()->set_delimiter(",");
    }
  }
  for (Feed& feed : *data->mutable_feeds()) {
    if (feed.scale() == 0) feed.set_scale(1);
  }
  data->mutable_label()->set_field(LabelField(data->label()));
  if (data->sharing() == DataSpec::SHARING_UNSPECIFIED) {
    data->set_sharing(DataSpec::STATIC);
  }
  if (!data->has_shuffle()) data->set_shuffle(true);
}

// Only what the kind reads, so that the result is valid again.
void FillOptimizer(OptimizerSpec* optimizer) {
  using O = OptimizerSpec;
  const O::Kind kind = optimizer->kind();
  if (IsOneOf(kind, {O::MOMENTUM, O::NESTEROV}) && !optimizer->has_momentum()) {
    optimizer->set_momentum(0.9f);
  }
  if (IsOneOf(kind, {O::ADAM, O::ADAMW, O::LAMB})) {
    if (!optimizer->has_beta1()) optimizer->set_beta1(0.9f);
    if (!optimizer->has_beta2()) optimizer->set_beta2(0.999f);
    if (!optimizer->has_epsilon()) {
      optimizer->set_epsilon(kind == O::LAMB ? 1e-6f : 1e-8f);
    }
  }
  if (kind == O::RMSPROP) {
    if (!optimizer->has_momentum()) optimizer->set_momentum(0);
    if (!optimizer->has_decay()) optimizer->set_decay(0.99f);
    if (!optimizer->has_epsilon()) optimizer->set_epsilon(1e-8f);
  }
  if (IsOneOf(kind, {O::ADAGRAD, O::ROW_WISE_ADAGRAD})) {
    if (!optimizer->has_epsilon()) optimizer->set_epsilon(1e-10f);
    if (!optimizer->has_initial_accumulator()) {
      optimizer->set_initial_accumulator(0);
    }
  }
  if (kind == O::FTRL) {
    if (!optimizer->has_initial_accumulator()) {
      optimizer->set_initial_accumulator(0);
    }
    if (!optimizer->has_learning_rate_power()) {
      optimizer->set_learning_rate_power(-0.5f);
    }
  }
}

void FillLearningRate(LearningRateSpec* rate) {
  if (rate->schedule() == LearningRateSpec::STEP && rate->gamma() == 0) {
    rate->set_gamma(0.1f);
  }
  if (ReadsStart(rate->schedule()) && !rate->has_start()) {
    rate->set_start(rate->base() / 25);
  }
  if (ReadsFinal(rate->schedule()) && !rate->has_final()) rate->set_final(0);
}

// Filters are a quarter of a small table at most.
uint64_t DefaultFilterBytes(uint64_t memory_bytes) {
  constexpr uint64_t kFilterBytes = 16 << 20;
  return memory_bytes == 0 ? kFilterBytes
                           : std::min(kFilterBytes, memory_bytes / 4);
}

void FillTable(const OptimizerSpec& of_job, TableSpec* table) {
  if (table->scheme() == InitializerRule::SCHEME_UNSPECIFIED) {
    table->set_scheme(InitializerRule::UNIFORM);
  }
  if (table->scale() == 0) table->set_scale(DefaultScale(table->scheme()));
  if (!table->has_optimizer()) {
    *table->mutable_optimizer() = of_job;
    table->mutable_optimizer()->clear_clip_value();
    table->mutable_optimizer()->clear_clip_norm();
  }
  FillOptimizer(table->mutable_optimizer());
  AdmissionSpec* admission = table->mutable_admission();
  if (admission->min_sightings() == 0) admission->set_min_sightings(1);
  if (admission->min_sightings() == 1) {
    if (admission->probability() == 0) admission->set_probability(1);
  } else if (admission->filter_bytes() == 0) {
    admission->set_filter_bytes(DefaultFilterBytes(table->memory_bytes()));
  }
  ExpirySpec* expiry = table->mutable_expiry();
  if (expiry->min_score() > 0 && expiry->decay() == 0) expiry->set_decay(0.98f);
}

}  // namespace

JobSpec WithDefaults(const JobSpec& spec) {
  JobSpec full = spec;
  for (InitializerRule& rule : *full.mutable_model()->mutable_initialize()) {
    if (rule.scale() == 0) rule.set_scale(DefaultScale(rule.scheme()));
  }
  FillData(full.mutable_data());
  if (full.metrics().empty() && full.data().has_test() &&
      full.loss().kind() != LossSpec::MEAN_SQUARED_ERROR) {
    full.add_metrics(ACCURACY);
  }
  FillOptimizer(full.mutable_optimizer());
  for (TableSpec& table : *full.mutable_tables()) {
    FillTable(full.optimizer(), &table);
  }
  FillLearningRate(full.mutable_learning_rate());
  if (full.consistency().mode() == ConsistencySpec::MODE_UNSPECIFIED) {
    full.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  }
  if (LeavesBehind(full.consistency().mode()) &&
      full.consistency().late() == ConsistencySpec::LATE_UNSPECIFIED) {
    full.mutable_consistency()->set_late(ConsistencySpec::DROP);
  }
  FillLocal(&full);
  if (IsLocal(full)) {
    FillOptimizer(
        full.mutable_consistency()->mutable_local()->mutable_optimizer());
  }
  FillStrategy(&full);
  FillPrecision(&full);
  FillCompression(&full);
  FillCheckpoint(&full);
  full.set_durability(CHECKPOINT);
  FillRestart(&full);
  if (full.wire_type() == WIRE_TYPE_UNSPECIFIED) {
    full.set_wire_type(WIRE_FLOAT32);
  }
  if (full.non_finite() == NON_FINITE_POLICY_UNSPECIFIED) {
    full.set_non_finite(FAIL_JOB);
  }

  TrainingSpec* training = full.mutable_training();
  if (training->epochs() == 0) training->set_epochs(1);
  if (training->batch_size() == 0) training->set_batch_size(32);
  if (training->eval_batch_size() == 0) training->set_eval_batch_size(256);
  if (training->micro_batches() == 0) training->set_micro_batches(1);
  ResourcesSpec* resources = full.mutable_resources();
  if (resources->workers() == 0) resources->set_workers(1);
  if (resources->device() == ResourcesSpec::DEVICE_UNSPECIFIED) {
    resources->set_device(ResourcesSpec::AUTO);
  }
  LimitsSpec* limits = full.mutable_limits();
  if (limits->step_timeout_seconds() == 0) limits->set_step_timeout_seconds(60);
  return full;
}

}  // namespace syncline
