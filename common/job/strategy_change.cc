#include "common/job/strategy_change.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/job/lease_rules.h"
#include "common/job/local_rules.h"
#include "common/job/quorum_validator.h"
#include "common/job/strategy_rules.h"
#include "common/job/worker_groups.h"

namespace syncline {
namespace {

absl::Status Refuse(absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", why));
}

Strategy Known(Strategy strategy) {
  return strategy == STRATEGY_UNSPECIFIED ? PARAMETER_SERVER : strategy;
}

std::string NameOf(Strategy strategy) {
  const std::string& name = Strategy_Name(strategy);
  return name.empty() ? absl::StrCat(strategy) : name;
}

// With 16 bits each side of a change has whole values and trains on rounded
// ones; by SHARDED the whole ones are at their owners alone, and an evaluation
// at the clock of the change would find them nowhere.
absl::Status CheckWireType(WireType type, absl::Span<const Strategy> sides) {
  if (type != WIRE_BFLOAT16 && type != WIRE_FLOAT16) return absl::OkStatus();
  for (const Strategy side : sides) {
    const StrategyRule* const rule = FindStrategyRule(side);
    if (rule != nullptr && rule->changes_with_16_bits) continue;
    return Refuse(
        "wire_type",
        absl::StrCat(WireType_Name(type), ": a job changes to or from ",
                     NameOf(Known(side)), " only with WIRE_FLOAT32"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view FieldOfOtherExchange(const Regime& from, const Regime& to) {
  if (Known(from.strategy()) != Known(to.strategy())) return "strategy";
  const StrategyRule* const rule = FindStrategyRule(Known(to.strategy()));
  const auto type = [](const Regime& of) {
    return of.wire_type() == WIRE_TYPE_UNSPECIFIED ? WIRE_FLOAT32
                                                   : of.wire_type();
  };
  return !rule->has_ps && type(from) != type(to) ? "wire_type" : "";
}

bool FreesGradients(const JobSpec& spec) {
  return spec.strategy() == SHARDED && spec.sharding().stage() >= 2;
}

bool FreesValues(const JobSpec& spec) {
  return spec.strategy() == SHARDED && spec.sharding().stage() >= 3;
}

uint32_t ShardingStageOf(const JobSpec& spec) {
  return FreesGradients(spec) ? spec.sharding().stage() : 1;
}

// The state that moves is dense, and all of it.
absl::Status CheckStateMoves(const JobSpec& spec) {
  if (spec.tables_size() > 0) {
    return Refuse("tables",
                  "their rows are on ps, and do not move to workers: the "
                  "strategy of a job with tables cannot change");
  }
  if (LeasesData(spec)) {
    return Refuse("data.sharing",
                  "LEASED is for PARAMETER_SERVER alone: the strategy of such "
                  "a job cannot change");
  }
  if (spec.has_compression() &&
      spec.compression().kind() != CompressionSpec::NONE) {
    return Refuse("compression",
                  "what gradients have lost is not moved: the strategy of a "
                  "job with compression cannot change");
  }
  if (spec.training().sync_batch_statistics()) {
    return Refuse("training.sync_batch_statistics",
                  "statistics over all workers are folded where the job "
                  "begins: its strategy cannot change");
  }
  if (LeavesBehind(spec.consistency().mode()) || IsLocal(spec)) {
    return Refuse(
        "consistency.mode",
        absl::StrCat(ConsistencySpec::Mode_Name(spec.consistency().mode()),
                     " needs ps for all of a job's time: its strategy cannot "
                     "change"));
  }
  if (HasGroups(spec)) {
    return Refuse("groups",
                  "are for PARAMETER_SERVER: the strategy of a job with groups "
                  "cannot change");
  }
  if (spec.has_stop()) {
    return Refuse("stop", "is for jobs that keep their ps");
  }
  return absl::OkStatus();
}

absl::Status CheckTrainsBy(const JobSpec& spec, Strategy strategy) {
  if (Known(strategy) == Known(spec.strategy())) return absl::OkStatus();
  for (const Strategy each : {Known(strategy), Known(spec.strategy())}) {
    if (each == PARAMETER_SERVER || each == ALL_REDUCE || each == SHARDED) {
      continue;
    }
    return Refuse("strategy", absl::StrCat(NameOf(each),
                                           " cannot begin or end while a job "
                                           "runs"));
  }
  if (FreesValues(spec)) {
    return Refuse("sharding.stage",
                  absl::StrCat(spec.sharding().stage(),
                               ": values are at their owners alone, and other "
                               "strategies need them at each worker: the "
                               "strategy of this job cannot change; use stage "
                               "1 or 2"));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckStateMoves(spec));
  SYNCLINE_RETURN_IF_ERROR(
      CheckWireType(spec.wire_type(), {strategy, spec.strategy()}));
  if (Known(strategy) == PARAMETER_SERVER) {
    if (spec.resources().ps() == 0) {
      return Refuse("resources.ps",
                    "no ps are reserved for this job: it can change to "
                    "PARAMETER_SERVER only if it asks for some");
    }
    if (FreesGradients(spec)) {
      return Refuse("sharding.stage",
                    absl::StrCat(spec.sharding().stage(),
                                 ": gradients leave the memory of workers as "
                                 "soon as they are computed, and "
                                 "PARAMETER_SERVER needs them there; use "
                                 "stage 1"));
    }
    return absl::OkStatus();
  }
  if (spec.has_checkpoint() && spec.checkpoint().directory().empty()) {
    return Refuse("checkpoint.directory",
                  absl::StrCat("is required with strategy ", NameOf(strategy),
                               ": workers write their parts there, and have "
                               "no --checkpoint-dir"));
  }
  return absl::OkStatus();
}

absl::Status CheckStrategyChange(const JobSpec& spec, const Regime& current,
                                 const RegimeChange& change) {
  SYNCLINE_RETURN_IF_ERROR(CheckStateMoves(spec));
  SYNCLINE_RETURN_IF_ERROR(CheckTrainsBy(spec, change.strategy()));
  const auto mode = [](ConsistencySpec::Mode m) {
    return m == ConsistencySpec::MODE_UNSPECIFIED ? ConsistencySpec::SYNC : m;
  };
  if (mode(current.consistency().mode()) != ConsistencySpec::SYNC) {
    return Refuse(
        "strategy",
        absl::StrCat("changes in SYNC alone, and the job trains in ",
                     ConsistencySpec::Mode_Name(current.consistency().mode()),
                     ": change the mode to SYNC first"));
  }
  if (mode(change.mode()) != ConsistencySpec::SYNC ||
      change.has_staleness_bound()) {
    return Refuse(change.has_staleness_bound() ? "staleness_bound" : "mode",
                  "changes after the strategy, not with it");
  }
  if (change.has_learning_rate_factor()) {
    return Refuse("learning_rate_factor",
                  "changes before or after the strategy, not with it");
  }
  return CheckWireType(current.wire_type(),
                       {change.strategy(), current.strategy()});
}

}  // namespace syncline
