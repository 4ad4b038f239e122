#include "common/job/job_spec_validator.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/auto_regime_rules.h"
#include "common/job/checkpoint_validator.h"
#include "common/job/compression_rules.h"
#include "common/job/data_spec_validator.h"
#include "common/job/elastic_validator.h"
#include "common/job/evaluate_validator.h"
#include "common/job/group_rules.h"
#include "common/job/job_spec_fields.h"
#include "common/job/job_spec_problems.h"
#include "common/job/lease_rules.h"
#include "common/job/local_rules.h"
#include "common/job/precision_validator.h"
#include "common/job/quorum_validator.h"
#include "common/job/regime_rules.h"
#include "common/job/restart_validator.h"
#include "common/job/step_limits.h"
#include "common/job/stop_validator.h"
#include "common/job/strategy_rules.h"
#include "common/job/table_spec_validator.h"

namespace syncline {
namespace {

// Ranges are those of proto/job_spec.proto.

constexpr uint32_t kBatchMax = 1'048'576;

void CheckName(const std::string& name, Problems* problems) {
  const bool valid_length = !name.empty() && name.size() <= 64;
  bool valid_characters = true;
  for (char c : name) {
    valid_characters &= absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                        c == '.' || c == '_' || c == '-';
  }
  if (!valid_length || !valid_characters) {
    problems->Add("name", QuoteText(name.substr(0, 80)),
                  " is not 1..64 characters of [A-Za-z0-9._-]");
  }
}

void CheckRule(const std::string& path, const InitializerRule& rule,
               Problems* problems) {
  problems->NotEmpty(path + ".pattern", rule.pattern());
  if (rule.scheme() == InitializerRule::SCHEME_UNSPECIFIED) {
    problems->Add(path + ".scheme", "is required");
  }
  problems->NotNegative(path + ".scale", rule.scale());
  if (!InitializerRule::Scheme_IsValid(rule.scheme())) return;
  if (rule.value() != 0 && rule.scheme() != InitializerRule::CONSTANT) {
    problems->Add(path + ".value", "is for CONSTANT only");
  }
  if (rule.scale() != 0 &&
      IsOneOf(rule.scheme(),
              {InitializerRule::ZEROS, InitializerRule::CONSTANT})) {
    problems->Add(path + ".scale", "has no meaning for ZEROS and CONSTANT");
  }
}

void CheckModel(const ModelSpec& model, Problems* problems) {
  problems->NotEmpty("model.path", model.path());
  absl::flat_hash_map<std::string, std::string> seen;
  for (int i = 0; i < model.initialize_size(); ++i) {
    const std::string path = Indexed("model.initialize", i);
    CheckRule(path, model.initialize(i), problems);
    const auto [first, inserted] =
        seen.emplace(model.initialize(i).pattern(), path);
    if (!inserted) {
      problems->Add(path + ".pattern", "repeats ", first->second,
                    ", which wins");
    }
  }
  seen.clear();
  for (int i = 0; i < model.freeze_size(); ++i) {
    const std::string path = Indexed("model.freeze", i);
    problems->NotEmpty(path, model.freeze(i));
    const auto [first, inserted] = seen.emplace(model.freeze(i), path);
    if (!inserted) problems->Add(path, "repeats ", first->second);
  }
  seen.clear();
  for (int i = 0; i < model.train_size(); ++i) {
    const std::string path = Indexed("model.train", i);
    problems->NotEmpty(path, model.train(i));
    const auto [first, inserted] = seen.emplace(model.train(i), path);
    if (!inserted) problems->Add(path, "repeats ", first->second);
  }
}

// The number of classes, which the model knows, aside.
bool HasMeaning(Metric metric, LossSpec::Kind loss) {
  switch (loss) {
    case LossSpec::MEAN_SQUARED_ERROR:
      return metric == MEAN_SQUARED_ERROR;
    case LossSpec::SIGMOID_CROSS_ENTROPY:
      return metric != TOP5_ACCURACY;
    default:
      return true;
  }
}

void CheckLossAndMetrics(const JobSpec& spec, Problems* problems) {
  const LossSpec::Kind loss = spec.loss().kind();
  if (loss == LossSpec::KIND_UNSPECIFIED) {
    problems->Add("loss.kind", "is required");
  }
  if (spec.metrics_size() > 0 && !spec.data().has_test()) {
    problems->Add("metrics", "nothing is evaluated without data.test");
  }
  bool seen[Metric_ARRAYSIZE] = {};
  for (int i = 0; i < spec.metrics_size(); ++i) {
    const std::string path = Indexed("metrics", i);
    const Metric metric = spec.metrics(i);
    if (!Metric_IsValid(metric)) continue;
    if (metric == METRIC_UNSPECIFIED) {
      problems->Add(path, "METRIC_UNSPECIFIED names no metric");
      continue;
    }
    if (metric == LOSS) {
      problems->Add(path,
                    "LOSS is computed in any case; it is for "
                    "export.best_of only");
      continue;
    }
    if (std::exchange(seen[metric], true)) {
      problems->Add(path, Metric_Name(metric), " is listed twice");
    }
    if (!HasMeaning(metric, loss)) {
      problems->Add(path, Metric_Name(metric), " has no meaning for ",
                    LossSpec::Kind_Name(loss));
    }
  }
}

void CheckExport(const JobSpec& spec, Problems* problems) {
  constexpr char kPath[] = "export.best_of";
  const Metric by = spec.export_().best_of();
  if (by == METRIC_UNSPECIFIED || !Metric_IsValid(by)) return;
  if (!spec.data().has_test()) {
    problems->Add(kPath, "nothing is evaluated without data.test");
  }
  if (spec.tables_size() > 0 && !EvaluatesCheckpoints(spec)) {
    problems->Add(kPath,
                  "jobs with tables store their last parameters only; leave it "
                  "out, or use evaluate { checkpoints: true }, which keeps the "
                  "best checkpoint");
  }
  const JobSpec full = WithDefaults(spec);
  if (by != LOSS && spec.data().has_test() &&
      std::find(full.metrics().begin(), full.metrics().end(), by) ==
          full.metrics().end()) {
    problems->Add(kPath, Metric_Name(by),
                  " is not computed; add it to metrics, or use LOSS");
  }
}

void CheckOptimizer(const OptimizerSpec& optimizer, Problems* problems) {
  using O = OptimizerSpec;
  const O::Kind kind = optimizer.kind();
  if (kind == O::KIND_UNSPECIFIED) {
    problems->Add("optimizer.kind", "is required");
    return;  // what else is given cannot be judged without it
  }
  if (kind == O::ROW_WISE_ADAGRAD) {
    problems->Add("optimizer.kind",
                  "ROW_WISE_ADAGRAD is for tables only; name it in "
                  "tables[].optimizer");
    return;
  }
  CheckOptimizerFields("optimizer", optimizer, problems);
  if (optimizer.clip_value() != 0 && optimizer.clip_norm() != 0) {
    problems->Add("optimizer.clip_norm", "not together with clip_value");
  }
}

void CheckLearningRate(const LearningRateSpec& rate, Problems* problems) {
  using L = LearningRateSpec;
  const L::Schedule schedule = rate.schedule();
  problems->Positive("learning_rate.base", rate.base());
  if (!L::Schedule_IsValid(schedule)) return;
  const auto unread = [&](absl::string_view path, bool given, bool read) {
    if (given && !read) {
      problems->Add(path, "has no meaning for ", L::Schedule_Name(schedule));
    }
  };
  const bool step = schedule == L::STEP;
  unread("learning_rate.step_clocks", rate.step_clocks() != 0, step);
  unread("learning_rate.gamma", rate.gamma() != 0, step);
  unread("learning_rate.warmup_clocks", rate.warmup_clocks() != 0,
         ReadsWarmup(schedule));
  unread("learning_rate.total_clocks", rate.total_clocks() != 0,
         ReadsTotal(schedule));
  unread("learning_rate.start", rate.has_start(), ReadsStart(schedule));
  unread("learning_rate.final", rate.has_final(), ReadsFinal(schedule));
  if (step && rate.step_clocks() <= 0) {
    problems->Add("learning_rate.step_clocks", rate.step_clocks(),
                  " must be > 0");
  }
  if (step && !(rate.gamma() >= 0 && rate.gamma() <= 1)) {
    problems->Add("learning_rate.gamma", rate.gamma(), " is outside (0, 1]");
  }
  problems->NotNegative("learning_rate.warmup_clocks", rate.warmup_clocks());
  problems->NotNegative("learning_rate.total_clocks", rate.total_clocks());
  if (ReadsWarmup(schedule) && ReadsTotal(schedule) &&
      rate.total_clocks() > 0 && rate.warmup_clocks() >= rate.total_clocks()) {
    problems->Add("learning_rate.warmup_clocks", rate.warmup_clocks(),
                  " must be less than total_clocks, ", rate.total_clocks());
  }
  const auto below_base = [&](absl::string_view path, float value) {
    problems->NotNegative(path, value);
    if (value > rate.base()) {
      problems->Add(path, value, " is above learning_rate.base, ", rate.base());
    }
  };
  if (rate.has_start()) below_base("learning_rate.start", rate.start());
  if (rate.has_final()) below_base("learning_rate.final", rate.final());
  if (schedule == L::RANGE_TEST && rate.has_start() && rate.start() == 0) {
    problems->Add("learning_rate.start",
                  "must be > 0 for RANGE_TEST, which "
                  "grows by a constant factor");
  }
}

void CheckConsistency(const JobSpec& spec, Problems* problems) {
  using C = ConsistencySpec;
  const ConsistencySpec& consistency = spec.consistency();
  CheckQuorum(spec, problems);
  CheckLocal(spec, problems);
  if (spec.optimizer().kind() == OptimizerSpec::LAMB &&
      IsOneOf(consistency.mode(), {C::BOUNDED_STALENESS, C::ASYNC})) {
    problems->Add("optimizer.kind",
                  "LAMB is for SYNC only: its trust ratio is of whole tensors "
                  "at one clock; use ADAMW");
  }
  if (spec.training().sync_batch_statistics() &&
      IsOneOf(consistency.mode(), {C::BOUNDED_STALENESS, C::ASYNC})) {
    problems->Add("training.sync_batch_statistics",
                  "is for SYNC only: in other modes workers do not compute the "
                  "same step at the same time");
  }
  if (consistency.staleness_bound() != 0 &&
      C::Mode_IsValid(consistency.mode()) &&
      consistency.mode() != C::BOUNDED_STALENESS) {
    problems->Add("consistency.staleness_bound",
                  "is for BOUNDED_STALENESS only");
  }
  problems->AtMost("consistency.staleness_bound", consistency.staleness_bound(),
                   1'000'000);
}

void CheckWhatIsNotBuilt(const JobSpec& spec, Problems* problems) {
  if (spec.durability() > CHECKPOINT) {
    NotBuilt("durability", spec.durability(), "CHECKPOINT", problems);
  }
}

void CheckSizes(const JobSpec& spec, Problems* problems) {
  const TrainingSpec& training = spec.training();
  problems->AtMost("training.epochs", training.epochs(), 1'000'000);
  problems->AtMost("training.max_clocks", training.max_clocks(),
                   uint64_t{1} << 62);
  problems->AtMost("training.batch_size", training.batch_size(), kBatchMax);
  problems->AtMost("training.eval_batch_size", training.eval_batch_size(),
                   kBatchMax);
  problems->AtMost("training.micro_batches", training.micro_batches(),
                   WithDefaults(spec).training().batch_size());
  problems->AtMost("training.recompute_segments", training.recompute_segments(),
                   1024);
  problems->AtMost("training.threads", training.threads(), 1024);
  problems->AtMost("resources.workers", spec.resources().workers(), 1024);
  problems->AtMost("resources.ps", spec.resources().ps(), 1024);
  const double step_timeout = spec.limits().step_timeout_seconds();
  problems->NotNegative("limits.step_timeout_seconds", step_timeout);
  if ((step_timeout > 0 && step_timeout < kStepTimeoutSecondsMin) ||
      step_timeout > kStepTimeoutSecondsMax) {
    problems->Add("limits.step_timeout_seconds", step_timeout,
                  " is out of range, must be ", kStepTimeoutSecondsMin, " to ",
                  kStepTimeoutSecondsMax, ", or 0 for 60");
  }
  // Beyond 1e9 s a duration no longer has nanoseconds.
  problems->Seconds("limits.max_seconds", spec.limits().max_seconds());
}

}  // namespace

void CheckOptimizerFields(const std::string& path,
                          const OptimizerSpec& optimizer, Problems* problems) {
  using O = OptimizerSpec;
  // A field that the kind does not read is a mistake, not a wish to ignore.
  const auto only_for = [&](absl::string_view field, bool given,
                            std::initializer_list<O::Kind> kinds) {
    if (!given || IsOneOf(optimizer.kind(), kinds)) return;
    if (!O::Kind_IsValid(optimizer.kind())) return;  // that is said elsewhere
    problems->Add(absl::StrCat(path, ".", field), "has no meaning for ",
                  O::Kind_Name(optimizer.kind()), ", only for ",
                  absl::StrJoin(kinds, ", ", [](std::string* out, O::Kind k) {
                    absl::StrAppend(out, O::Kind_Name(k));
                  }));
  };
  only_for("momentum", optimizer.has_momentum(),
           {O::MOMENTUM, O::NESTEROV, O::RMSPROP});
  only_for("beta1", optimizer.has_beta1(), {O::ADAM, O::ADAMW, O::LAMB});
  only_for("beta2", optimizer.has_beta2(), {O::ADAM, O::ADAMW, O::LAMB});
  only_for("epsilon", optimizer.has_epsilon(),
           {O::ADAM, O::ADAMW, O::LAMB, O::RMSPROP, O::ADAGRAD,
            O::ROW_WISE_ADAGRAD});
  only_for("initial_accumulator", optimizer.has_initial_accumulator(),
           {O::ADAGRAD, O::ROW_WISE_ADAGRAD, O::FTRL});
  only_for("decay", optimizer.has_decay(), {O::RMSPROP});
  only_for("centered", optimizer.centered(), {O::RMSPROP});
  only_for("l1", optimizer.l1() != 0, {O::FTRL});
  only_for("l2", optimizer.l2() != 0, {O::FTRL});
  only_for("learning_rate_power", optimizer.has_learning_rate_power(),
           {O::FTRL});
  problems->UnitInterval(path + ".momentum", optimizer.momentum());
  problems->UnitInterval(path + ".beta1", optimizer.beta1());
  problems->UnitInterval(path + ".beta2", optimizer.beta2());
  problems->UnitInterval(path + ".decay", optimizer.decay());
  if (optimizer.has_epsilon()) {
    problems->Positive(path + ".epsilon", optimizer.epsilon());
  }
  problems->NotNegative(path + ".initial_accumulator",
                        optimizer.initial_accumulator());
  problems->NotNegative(path + ".weight_decay", optimizer.weight_decay());
  problems->NotNegative(path + ".clip_value", optimizer.clip_value());
  problems->NotNegative(path + ".clip_norm", optimizer.clip_norm());
  problems->NotNegative(path + ".l1", optimizer.l1());
  problems->NotNegative(path + ".l2", optimizer.l2());
  if (!(optimizer.learning_rate_power() >= -1 &&
        optimizer.learning_rate_power() <= 0)) {
    problems->Add(path + ".learning_rate_power",
                  optimizer.learning_rate_power(), " is outside [-1, 0]");
  }
}

std::vector<std::string> ValidateJobSpec(const JobSpec& spec) {
  std::vector<std::string> list;
  CheckFieldValues(spec, &list);
  Problems problems(&list);
  CheckName(spec.name(), &problems);
  CheckModel(spec.model(), &problems);
  CheckData(spec, &problems);
  CheckLossAndMetrics(spec, &problems);
  CheckExport(spec, &problems);
  CheckOptimizer(spec.optimizer(), &problems);
  CheckLearningRate(spec.learning_rate(), &problems);
  CheckConsistency(spec, &problems);
  CheckStrategy(spec, &problems);
  CheckTables(spec, &problems);
  CheckWhatIsNotBuilt(spec, &problems);
  CheckPrecision(spec, &problems);
  CheckCompression(spec, &problems);
  CheckCheckpoint(spec, &problems);
  CheckRestart(spec, &problems);
  CheckRegimeRules(spec, &problems);
  CheckAutoRegime(spec, &problems);
  CheckStop(spec, &problems);
  CheckEvaluate(spec, &problems);
  CheckSizes(spec, &problems);
  CheckElastic(spec, &problems);
  CheckGroups(spec, &problems);
  CheckLeases(spec, &problems);
  return list;
}

absl::Status ProblemsToStatus(const std::vector<std::string>& problems) {
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

}  // namespace syncline
