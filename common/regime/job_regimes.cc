#include "common/regime/job_regimes.h"

#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/wire/wire_element_type.h"

namespace syncline {
namespace {

constexpr uint32_t kStalenessBoundMax = 1'000'000;  // as the job's validator

absl::Status Refuse(const std::string& field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", why));
}

// The name of an enumerator; its number where it has none here.
std::string TextOf(int value, const std::string& name) {
  return name.empty() ? absl::StrCat(value) : name;
}

absl::Status ReadConsistency(const std::string& field,
                             const ConsistencySpec& spec,
                             TrainingRegime* regime) {
  switch (spec.mode()) {
    case ConsistencySpec::MODE_UNSPECIFIED:
    case ConsistencySpec::SYNC:
      regime->mode = ConsistencyMode::kSync;
      break;
    case ConsistencySpec::BOUNDED_STALENESS:
      regime->mode = ConsistencyMode::kBoundedStaleness;
      break;
    case ConsistencySpec::ASYNC:
      regime->mode = ConsistencyMode::kAsync;
      break;
    default:
      return Refuse(
          absl::StrCat(field, ".mode"),
          absl::StrCat(
              TextOf(spec.mode(), ConsistencySpec::Mode_Name(spec.mode())),
              " is not built"));
  }
  const bool is_bounded = regime->mode == ConsistencyMode::kBoundedStaleness;
  if (spec.staleness_bound() > (is_bounded ? kStalenessBoundMax : 0)) {
    return Refuse(
        absl::StrCat(field, ".staleness_bound"),
        is_bounded ? absl::StrCat(spec.staleness_bound(),
                                  " is too large, at most ", kStalenessBoundMax)
                   : "is for BOUNDED_STALENESS only");
  }
  regime->staleness_bound = spec.staleness_bound();
  return absl::OkStatus();
}

// The fields of which this version builds one value.
absl::Status CheckBuilt(const std::string& field, const Regime& regime) {
  const auto not_built = [&](absl::string_view part, absl::string_view value) {
    return Refuse(absl::StrCat(field, ".", part),
                  absl::StrCat(value, " is not built"));
  };
  if (regime.strategy() != STRATEGY_UNSPECIFIED &&
      regime.strategy() != PARAMETER_SERVER) {
    return not_built("strategy", TextOf(regime.strategy(),
                                        Strategy_Name(regime.strategy())));
  }
  if (regime.group_size() > 1) {
    return not_built("group_size", absl::StrCat(regime.group_size()));
  }
  if (!WireType_IsValid(regime.wire_type())) {
    return not_built("wire_type", absl::StrCat(regime.wire_type()));
  }
  if (regime.compression() != Regime::COMPRESSION_UNSPECIFIED &&
      regime.compression() != Regime::UNCOMPRESSED) {
    return not_built("compression", absl::StrCat(regime.compression()));
  }
  if (regime.late_policy() != Regime::LATE_POLICY_UNSPECIFIED &&
      regime.late_policy() != Regime::NONE_IS_LATE) {
    return not_built("late_policy", absl::StrCat(regime.late_policy()));
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingRegime> ReadRegime(const std::string& field,
                                          const Regime& message) {
  TrainingRegime regime;
  if (message.first_clock() < 0) {
    return Refuse(absl::StrCat(field, ".first_clock"),
                  absl::StrCat(message.first_clock(), " is negative"));
  }
  regime.first_clock = message.first_clock();
  SYNCLINE_RETURN_IF_ERROR(ReadConsistency(absl::StrCat(field, ".consistency"),
                                           message.consistency(), &regime));
  SYNCLINE_RETURN_IF_ERROR(CheckBuilt(field, message));
  regime.wire_type = ElementTypeOf(message.wire_type());
  const double factor = message.learning_rate_factor();
  if (!std::isfinite(factor) || factor < 0) {
    return Refuse(absl::StrCat(field, ".learning_rate_factor"),
                  absl::StrCat("is ", factor, ", must be finite and > 0"));
  }
  if (factor > 0) regime.learning_rate_factor = factor;
  return regime;
}

// The job's spec wants nothing that this regime has not.
absl::Status CheckWithSpec(const std::string& field,
                           const TrainingRegime& regime, const JobSpec& spec) {
  const std::string mode_field = absl::StrCat(field, ".consistency.mode");
  const absl::string_view mode =
      ConsistencySpec::Mode_Name(ToProto(regime).consistency().mode());
  if (!regime.sync() && spec.optimizer().kind() == OptimizerSpec::LAMB) {
    return Refuse(mode_field,
                  absl::StrCat(mode, ", but optimizer.kind LAMB is for SYNC"));
  }
  if (!regime.sync() && spec.training().sync_batch_statistics()) {
    return Refuse(
        mode_field,
        absl::StrCat(mode, ", but training.sync_batch_statistics is for SYNC"));
  }
  for (int t = 0; t < spec.tables_size(); ++t) {
    const TableSpec& table = spec.tables(t);
    if (table.cache_rows() == 0 || table.cache_clocks() == 0) continue;
    if (regime.sync()) {
      return Refuse(mode_field, absl::StrCat("SYNC, but tables[", t,
                                             "].cache_clocks is not for SYNC"));
    }
    if (regime.bound().has_value() && table.cache_clocks() > *regime.bound()) {
      return Refuse(absl::StrCat(field, ".consistency.staleness_bound"),
                    absl::StrCat(*regime.bound(), " is less than tables[", t,
                                 "].cache_clocks, ", table.cache_clocks()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingRegime> ReadRegimeOf(const JobSpec& spec,
                                            const std::string& field,
                                            const Regime& message) {
  SYNCLINE_ASSIGN_OR_RETURN(const TrainingRegime regime,
                            ReadRegime(field, message));
  SYNCLINE_RETURN_IF_ERROR(CheckWithSpec(field, regime, spec));
  return regime;
}

}  // namespace

Regime RegimeOf(const JobSpec& spec) {
  Regime regime;
  *regime.mutable_consistency() = spec.consistency();
  regime.set_strategy(spec.strategy());
  regime.set_wire_type(spec.wire_type());
  return regime;
}

Regime ToProto(const TrainingRegime& regime) {
  Regime message;
  message.set_first_clock(regime.first_clock);
  switch (regime.mode) {
    case ConsistencyMode::kSync:
      message.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
      break;
    case ConsistencyMode::kBoundedStaleness:
      message.mutable_consistency()->set_mode(
          ConsistencySpec::BOUNDED_STALENESS);
      break;
    case ConsistencyMode::kAsync:
      message.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
      break;
  }
  message.mutable_consistency()->set_staleness_bound(
      static_cast<uint32_t>(regime.staleness_bound));
  message.set_strategy(PARAMETER_SERVER);
  message.set_group_size(regime.group_size);
  message.set_wire_type(WireTypeOf(regime.wire_type));
  message.set_compression(Regime::UNCOMPRESSED);
  message.set_late_policy(Regime::NONE_IS_LATE);
  message.set_learning_rate_factor(regime.learning_rate_factor);
  return message;
}

absl::StatusOr<RegimeSchedule> ReadRegimes(const JobAssignment& assignment) {
  const auto refuse = [&](const absl::Status& why) {
    return Annotate(why, absl::StrCat("job ", assignment.job_id()));
  };
  if (assignment.regimes().empty()) {
    return refuse(Refuse("regimes", "the assignment has none"));
  }
  std::optional<RegimeSchedule> schedule;
  for (int i = 0; i < assignment.regimes_size(); ++i) {
    const std::string field = absl::StrCat("regimes[", i, "]");
    const auto regime =
        ReadRegimeOf(assignment.spec(), field, assignment.regimes(i));
    if (!regime.ok()) return refuse(regime.status());
    if (!schedule.has_value()) {
      schedule.emplace(*regime);
      continue;
    }
    if (regime->first_clock <= schedule->regimes().back().first_clock) {
      return refuse(
          Refuse(absl::StrCat(field, ".first_clock"),
                 absl::StrCat(regime->first_clock,
                              " is not after that of the "
                              "regime before it, ",
                              schedule->regimes().back().first_clock)));
    }
    const absl::Status added = schedule->Add(*regime, /*begun=*/0);
    if (!added.ok()) return refuse(Annotate(added, field));
  }
  if (schedule->regimes()[0].first_clock > assignment.start_clock()) {
    return refuse(Refuse("regimes[0].first_clock",
                         absl::StrCat(schedule->regimes()[0].first_clock,
                                      " is after the job's first clock, ",
                                      assignment.start_clock())));
  }
  return *schedule;
}

absl::StatusOr<RegimeSchedule> ReadRegimes(const JobSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const TrainingRegime regime,
                            ReadRegimeOf(spec, "regimes[0]", RegimeOf(spec)));
  return RegimeSchedule(regime);
}

}  // namespace syncline
