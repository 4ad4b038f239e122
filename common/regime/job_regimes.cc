#include "common/regime/job_regimes.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/job/compression_rules.h"
#include "common/job/local_rules.h"
#include "common/job/strategy_change.h"
#include "common/job/strategy_rules.h"
#include "common/job/worker_groups.h"
#include "common/regime/compression_message.h"
#include "common/wire/wire_element_type.h"

namespace syncline {
namespace {

constexpr uint32_t kStalenessBoundMax = 1'000'000;  // as the job's validator
constexpr uint32_t kGroupSizeMax = 1024;            // as resources.workers

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
    // SYNC, but for the workers with which a clock ends: QuorumOf.
    case ConsistencySpec::SYNC_WITH_BACKUPS:
    case ConsistencySpec::SYNC_WITH_TIMEOUT:
    // SYNC, of rounds: StepsOfClock.
    case ConsistencySpec::LOCAL:
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

// HYBRID has a mode of the rows besides that of the dense part, and it is the
// rows' that the regime goes by. REQUIRES: the regime has the dense part's.
absl::Status ReadTableConsistency(const std::string& field,
                                  const Regime& message,
                                  TrainingRegime* regime) {
  const std::string name = absl::StrCat(field, ".table_consistency");
  if (message.strategy() != HYBRID) {
    return message.has_table_consistency() ? Refuse(name, "is for HYBRID only")
                                           : absl::OkStatus();
  }
  if (!regime->sync()) {
    return Refuse(
        absl::StrCat(field, ".consistency.mode"),
        absl::StrCat(
            ConsistencySpec::Mode_Name(message.consistency().mode()),
            ", but HYBRID is for SYNC: it is of the dense parameters; rows "
            "have table_consistency"));
  }
  if (message.table_consistency().mode() == ConsistencySpec::LOCAL) {
    return Refuse(absl::StrCat(name, ".mode"), "LOCAL is not built");
  }
  return ReadConsistency(name, message.table_consistency(), regime);
}

// The fields of which this version builds one value.
absl::Status CheckBuilt(const std::string& field, const Regime& regime) {
  const auto not_built = [&](absl::string_view part, absl::string_view value) {
    return Refuse(absl::StrCat(field, ".", part),
                  absl::StrCat(value, " is not built"));
  };
  if (FindStrategyRule(regime.strategy()) == nullptr) {
    return not_built("strategy", TextOf(regime.strategy(),
                                        Strategy_Name(regime.strategy())));
  }
  if (regime.group_size() > kGroupSizeMax) {
    return not_built("group_size", absl::StrCat(regime.group_size()));
  }
  if (!WireType_IsValid(regime.wire_type())) {
    return not_built("wire_type", absl::StrCat(regime.wire_type()));
  }
  if (!Regime::Compression_IsValid(regime.compression())) {
    return not_built("compression", absl::StrCat(regime.compression()));
  }
  if (regime.late_policy() != Regime::LATE_POLICY_UNSPECIFIED &&
      regime.late_policy() != Regime::NONE_IS_LATE &&
      regime.late_policy() != Regime::AS_CONSISTENCY_SAYS) {
    return not_built("late_policy", absl::StrCat(regime.late_policy()));
  }
  return absl::OkStatus();
}

absl::Status ReadCompression(const std::string& field, const Regime& message,
                             GradientCompression* compression) {
  if (message.compression() != Regime::COMPRESSED) return absl::OkStatus();
  const auto read = ReadCompression(message.compression_spec());
  if (!read.ok()) {
    return Refuse(absl::StrCat(field, ".compression_spec"),
                  read.status().message());
  }
  *compression = *read;
  return absl::OkStatus();
}

TrainingRegime::Strategy StrategyOf(Strategy strategy) {
  switch (strategy) {
    case ALL_REDUCE:
      return TrainingRegime::Strategy::kAllReduce;
    case SHARDED:
      return TrainingRegime::Strategy::kSharded;
    case HYBRID:
      return TrainingRegime::Strategy::kHybrid;
    default:
      return TrainingRegime::Strategy::kParameterServer;
  }
}

Strategy ToProto(TrainingRegime::Strategy strategy) {
  switch (strategy) {
    case TrainingRegime::Strategy::kAllReduce:
      return ALL_REDUCE;
    case TrainingRegime::Strategy::kSharded:
      return SHARDED;
    case TrainingRegime::Strategy::kHybrid:
      return HYBRID;
    case TrainingRegime::Strategy::kParameterServer:
      break;
  }
  return PARAMETER_SERVER;
}

// The job's spec wants nothing that this regime has not.
absl::Status CheckWithSpec(const std::string& field,
                           const TrainingRegime& regime, const JobSpec& spec) {
  const bool is_hybrid = regime.strategy == TrainingRegime::Strategy::kHybrid;
  // Of what the ps hold.
  const std::string consistency =
      absl::StrCat(field, is_hybrid ? ".table_consistency" : ".consistency");
  const std::string mode_field = absl::StrCat(consistency, ".mode");
  const Regime message = ToProto(regime);
  const absl::string_view mode =
      ConsistencySpec::Mode_Name(is_hybrid ? message.table_consistency().mode()
                                           : message.consistency().mode());
  const Strategy strategy = ToProto(regime.strategy);
  if (is_hybrid != (spec.strategy() == HYBRID)) {
    return Refuse(
        absl::StrCat(field, ".strategy"),
        absl::StrCat(Strategy_Name(strategy), ", but the job's is ",
                     Strategy_Name(ToProto(StrategyOf(spec.strategy())))));
  }
  const bool is_of_spec =
      regime.group_size == 1 ||
      (HasGroups(spec) &&
       (spec.groups().by_host() || spec.groups().size() == regime.group_size));
  if (!is_of_spec) {
    return Refuse(
        absl::StrCat(field, ".group_size"),
        absl::StrCat(regime.group_size, ", but the job has ",
                     HasGroups(spec)
                         ? absl::StrCat("groups of ", spec.groups().size())
                         : "no groups"));
  }
  if (const absl::Status can = CheckTrainsBy(spec, strategy); !can.ok()) {
    return Refuse(
        absl::StrCat(field, ".strategy"),
        absl::StrCat(Strategy_Name(strategy), ", but ", can.message()));
  }
  if (!regime.has_ps() && !regime.sync()) {
    return Refuse(
        mode_field,
        absl::StrCat(mode, ", but ", Strategy_Name(strategy), " is for SYNC"));
  }
  if (regime.wire_type != ElementType::kFloat32 && strategy == SHARDED &&
      spec.strategy() != SHARDED) {
    return Refuse(absl::StrCat(field, ".wire_type"),
                  "SHARDED is for float32 where a job has not begun with it");
  }
  if (IsLocal(spec) && !regime.sync()) {
    return Refuse(mode_field, absl::StrCat(mode, ", but the job's is LOCAL"));
  }
  if (!regime.in_step() && spec.optimizer().kind() == OptimizerSpec::LAMB) {
    return Refuse(mode_field,
                  absl::StrCat(mode, ", but optimizer.kind LAMB is for SYNC"));
  }
  if (!regime.in_step() && spec.training().sync_batch_statistics()) {
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
      return Refuse(absl::StrCat(consistency, ".staleness_bound"),
                    absl::StrCat(*regime.bound(), " is less than tables[", t,
                                 "].cache_clocks, ", table.cache_clocks()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingRegime> ReadRegimeOf(const JobSpec& spec,
                                            const std::string& field,
                                            const Regime& message) {
  // Workers go by the spec.
  if (message.consistency().mode() == ConsistencySpec::LOCAL &&
      !IsLocal(spec)) {
    return Refuse(absl::StrCat(field, ".consistency.mode"),
                  "LOCAL, but the job does not begin in it");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const TrainingRegime regime,
                            ReadRegime(field, message));
  SYNCLINE_RETURN_IF_ERROR(CheckWithSpec(field, regime, spec));
  return regime;
}

}  // namespace

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
  SYNCLINE_RETURN_IF_ERROR(ReadTableConsistency(field, message, &regime));
  SYNCLINE_RETURN_IF_ERROR(CheckBuilt(field, message));
  regime.strategy = StrategyOf(message.strategy());
  regime.group_size = std::max(1u, message.group_size());
  regime.wire_type = ElementTypeOf(message.wire_type());
  SYNCLINE_RETURN_IF_ERROR(
      ReadCompression(field, message, &regime.compression));
  const double factor = message.learning_rate_factor();
  if (!std::isfinite(factor) || factor < 0) {
    return Refuse(absl::StrCat(field, ".learning_rate_factor"),
                  absl::StrCat("is ", factor, ", must be finite and > 0"));
  }
  if (factor > 0) regime.learning_rate_factor = factor;
  return regime;
}

Regime RegimeOf(const JobSpec& spec) {
  Regime regime;
  *regime.mutable_consistency() = spec.consistency();
  if (spec.has_table_consistency()) {
    *regime.mutable_table_consistency() = spec.table_consistency();
  }
  regime.set_strategy(spec.strategy());
  regime.set_group_size(KnownGroupSize(spec));
  regime.set_wire_type(spec.wire_type());
  if (Compresses(spec)) {
    regime.set_compression(Regime::COMPRESSED);
    *regime.mutable_compression_spec() = spec.compression();
  }
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
  if (regime.strategy == TrainingRegime::Strategy::kHybrid) {
    *message.mutable_table_consistency() = message.consistency();
    message.clear_consistency();
    message.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  }
  message.set_strategy(ToProto(regime.strategy));
  message.set_group_size(regime.group_size);
  message.set_wire_type(WireTypeOf(regime.wire_type));
  message.set_compression(regime.compression.any() ? Regime::COMPRESSED
                                                   : Regime::UNCOMPRESSED);
  if (regime.compression.any()) {
    *message.mutable_compression_spec() = ToProto(regime.compression);
  }
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
    const TrainingRegime& before = schedule->regimes().back();
    if (regime->strategy != before.strategy &&
        !(regime->sync() && before.sync())) {
      return refuse(Refuse(absl::StrCat(field, ".strategy"),
                           "is another one than before, and the strategy "
                           "changes in SYNC alone"));
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

absl::StatusOr<RegimeSchedule> ReadRegimes(
    const google::protobuf::RepeatedPtrField<Regime>& messages) {
  std::optional<RegimeSchedule> schedule;
  for (int i = 0; i < messages.size(); ++i) {
    const std::string field = absl::StrCat("regimes[", i, "]");
    SYNCLINE_ASSIGN_OR_RETURN(const TrainingRegime regime,
                              ReadRegime(field, messages.Get(i)));
    if (!schedule.has_value()) {
      schedule.emplace(regime);
      continue;
    }
    SYNCLINE_RETURN_IF_ERROR(
        Annotate(schedule->Add(regime, /*begun=*/0), field));
  }
  if (!schedule.has_value()) return Refuse("regimes", "there are none");
  return *schedule;
}

absl::StatusOr<RegimeSchedule> ReadRegimes(const JobSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const TrainingRegime regime,
                            ReadRegimeOf(spec, "regimes[0]", RegimeOf(spec)));
  return RegimeSchedule(regime);
}

}  // namespace syncline
