#include "common/job/regime_rules.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/job/compression_rules.h"
#include "common/job/elastic_validator.h"
#include "common/job/job_spec_fields.h"
#include "common/job/lease_rules.h"
#include "common/job/local_rules.h"
#include "common/job/quorum_validator.h"
#include "common/job/strategy_change.h"
#include "common/job/strategy_rules.h"
#include "common/job/worker_groups.h"

namespace syncline {
namespace {

using Mode = ConsistencySpec::Mode;

absl::Status Refuse(absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", why));
}

Mode ModeOf(const Regime& regime) {
  const Mode mode = regime.consistency().mode();
  return mode == ConsistencySpec::MODE_UNSPECIFIED ? ConsistencySpec::SYNC
                                                   : mode;
}

double FactorOf(const Regime& regime) {
  return regime.learning_rate_factor() == 0 ? 1 : regime.learning_rate_factor();
}

bool HasPs(const Regime& regime) {
  const StrategyRule* const rule = FindStrategyRule(StrategyOf(regime));
  return rule == nullptr || rule->has_ps;
}

// The strategy after a change, with its stage.
absl::Status ChangeStrategy(const JobSpec& spec, const Regime& current,
                            const RegimeChange& change, Regime* next) {
  if (change.strategy() != STRATEGY_UNSPECIFIED &&
      change.strategy() != StrategyOf(current)) {
    SYNCLINE_RETURN_IF_ERROR(CheckStrategyChange(spec, current, change));
    next->set_strategy(change.strategy());
  }
  const uint32_t stage = change.sharding_stage();
  if (StrategyOf(*next) != SHARDED) {
    next->clear_sharding_stage();
    if (stage == 0) return absl::OkStatus();
    return Refuse(
        "sharding_stage",
        absl::StrCat("has no meaning for ", Strategy_Name(StrategyOf(*next)),
                     ", only for SHARDED"));
  }
  const uint32_t of_job = ShardingStageOf(spec);
  next->set_sharding_stage(of_job);
  if (stage == 0 || stage == of_job) return absl::OkStatus();
  if (stage > 3) {
    return Refuse("sharding_stage", absl::StrCat(stage, " is not known"));
  }
  return Refuse(
      "sharding_stage",
      absl::StrCat(stage, ", but the steps of this job are planned for ",
                   of_job,
                   ": a job that begins in SHARDED, stage 2, frees gradients, "
                   "one that begins in stage 3 frees values, too, and others "
                   "keep them"));
}

// How gradients travel to the ps changes while they do, and their strategy
// stays.
absl::Status CheckThroughPs(absl::string_view field, const Regime& current,
                            const Regime& next) {
  if (StrategyOf(next) != StrategyOf(current)) {
    return Refuse(field,
                  "changes alone: change the strategy before or after it");
  }
  if (StrategyOf(current) == PARAMETER_SERVER) return absl::OkStatus();
  return Refuse(
      field,
      absl::StrCat("changes while the job trains by PARAMETER_SERVER",
                   field == "wire_type" ? " or ALL_REDUCE" : "",
                   ", and it trains by ", Strategy_Name(StrategyOf(current))));
}

// The wire type changes where the state need not move to who trains with it:
// through the ps, and by ALL_REDUCE, where every worker has whole values.
absl::Status CheckTypeCanChange(const JobSpec& spec, const Regime& current,
                                const Regime& next) {
  if (StrategyOf(next) != StrategyOf(current) ||
      StrategyOf(current) != ALL_REDUCE) {
    return CheckThroughPs("wire_type", current, next);
  }
  const absl::Status moves = CheckStateMoves(spec);
  if (moves.ok()) return moves;
  return Refuse("wire_type",
                absl::StrCat("by ALL_REDUCE it changes as the strategy does, "
                             "where that can; ",
                             moves.message()));
}

WireType Known(WireType type) {
  return type == WIRE_TYPE_UNSPECIFIED ? WIRE_FLOAT32 : type;
}

// The wire type after a change, whose strategy is that of `next`.
absl::Status ChangeWireType(const JobSpec& spec, const Regime& current,
                            const RegimeChange& change, Regime* next) {
  const WireType type = change.wire_type() == WIRE_TYPE_UNSPECIFIED
                            ? Known(current.wire_type())
                            : change.wire_type();
  const bool same_strategy = StrategyOf(*next) == StrategyOf(current);
  if (!same_strategy && Known(current.wire_type()) != Known(spec.wire_type())) {
    return Refuse("strategy",
                  absl::StrCat("changes while the wire type is the one that "
                               "the job began with, ",
                               WireType_Name(Known(spec.wire_type())),
                               "; change back to it first"));
  }
  if (type == Known(current.wire_type())) return absl::OkStatus();
  if (type != WIRE_FLOAT32 && type != WIRE_BFLOAT16 && type != WIRE_FLOAT16) {
    return Refuse("wire_type", absl::StrCat(type, " is none"));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckTypeCanChange(spec, current, *next));
  if (current.compression_spec().values()) {
    return Refuse("wire_type",
                  "values come back compressed (compression.values): change "
                  "compression to NONE first");
  }
  if (type == WIRE_FLOAT32 && Known(spec.wire_type()) != WIRE_FLOAT32) {
    return Refuse(
        "wire_type",
        absl::StrCat("WIRE_FLOAT32 takes more memory than ",
                     WireType_Name(spec.wire_type()),
                     ", which the job began with and is planned for"));
  }
  next->set_wire_type(type);
  return absl::OkStatus();
}

CompressionSpec::Kind CompressionOf(const Regime& regime) {
  return regime.compression() == Regime::COMPRESSED
             ? regime.compression_spec().kind()
             : CompressionSpec::NONE;
}

void SetCompression(const CompressionSpec& compression, Regime* regime) {
  if (compression.kind() <= CompressionSpec::NONE) {
    regime->clear_compression();
    regime->clear_compression_spec();
    return;
  }
  regime->set_compression(Regime::COMPRESSED);
  *regime->mutable_compression_spec() = compression;
}

// A job in `regime` could have begun so.
absl::Status CheckCompressesIn(const JobSpec& spec, const Regime& regime,
                               const CompressionSpec& compression) {
  JobSpec job = spec;
  job.set_strategy(PARAMETER_SERVER);
  job.set_wire_type(regime.wire_type());
  *job.mutable_consistency() = regime.consistency();
  *job.mutable_compression() = compression;
  std::vector<std::string> list;
  Problems problems(&list);
  CheckCompression(job, &problems);
  CheckElastic(job, &problems);
  return list.empty() ? absl::OkStatus() : Refuse("compression", list[0]);
}

// The compression after a change, whose strategy and mode are those of `next`.
absl::Status ChangeCompression(const JobSpec& spec, const Regime& current,
                               const RegimeChange& change, Regime* next) {
  using C = CompressionSpec;
  const C::Kind now = CompressionOf(current);
  const C::Kind kind =
      change.compression() == C::KIND_UNSPECIFIED ? now : change.compression();
  const bool same_strategy = StrategyOf(*next) == StrategyOf(current);
  if (!same_strategy && now != C::NONE) {
    return Refuse(
        "strategy",
        absl::StrCat("changes while nothing is compressed, and it is "
                     "by ",
                     C::Kind_Name(now), ": change compression to NONE first"));
  }
  if (kind == now) return absl::OkStatus();
  if (kind == C::DGC || now == C::DGC) {
    return Refuse("compression",
                  "DGC has the momentum at the workers from the start: a "
                  "running job cannot change to it or from it; TOP_K sends as "
                  "few elements");
  }
  if (now == C::ONE_BIT_ADAM) {
    return Refuse("compression",
                  "with ONE_BIT_ADAM the second moment stays as the warm-up "
                  "has left it: a running job cannot change from it");
  }
  if (!IsOneOf(kind, {C::NONE, C::INT8, C::TOP_K, C::TERNGRAD})) {
    return Refuse("compression",
                  absl::StrCat(C::Kind_IsValid(kind) ? C::Kind_Name(kind)
                                                     : absl::StrCat(kind),
                               " is none that a running job can change to; "
                               "expected NONE, INT8, TOP_K or TERNGRAD"));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckThroughPs("compression", current, *next));
  // With the job's own fraction and block size, where they are of this kind.
  JobSpec job;
  job.mutable_compression()->set_kind(kind);
  if (spec.compression().kind() == kind) {
    *job.mutable_compression() = spec.compression();
  }
  FillCompression(&job);
  SYNCLINE_RETURN_IF_ERROR(CheckCompressesIn(spec, *next, job.compression()));
  SetCompression(job.compression(), next);
  return absl::OkStatus();
}

absl::StatusOr<ConsistencySpec> ChangedConsistency(const Regime& current,
                                                   const RegimeChange& change) {
  ConsistencySpec next;
  next.set_mode(change.mode() == ConsistencySpec::MODE_UNSPECIFIED
                    ? ModeOf(current)
                    : change.mode());
  const bool bounded = next.mode() == ConsistencySpec::BOUNDED_STALENESS;
  if (next.mode() == ConsistencySpec::LOCAL && next.mode() == ModeOf(current)) {
    return Refuse("mode",
                  "the regime of a job in LOCAL cannot change yet, it is kept "
                  "for later");
  }
  if (!bounded && next.mode() != ConsistencySpec::SYNC &&
      next.mode() != ConsistencySpec::ASYNC) {
    const std::string& name = ConsistencySpec::Mode_Name(next.mode());
    if (name.empty()) {
      return Refuse("mode", absl::StrCat(next.mode(),
                                         " is none; expected SYNC, "
                                         "BOUNDED_STALENESS or ASYNC"));
    }
    return Refuse("mode",
                  absl::StrCat("a running job cannot change to ", name,
                               " yet, only to SYNC, BOUNDED_STALENESS or "
                               "ASYNC; consistency.mode of the job file says "
                               "how a job begins"));
  }
  if (!bounded && change.has_staleness_bound()) {
    return Refuse("staleness_bound",
                  absl::StrCat("is for BOUNDED_STALENESS only, the mode is ",
                               ConsistencySpec::Mode_Name(next.mode())));
  }
  if (!bounded) return next;
  if (!change.has_staleness_bound() &&
      ModeOf(current) != ConsistencySpec::BOUNDED_STALENESS) {
    return Refuse("staleness_bound", "BOUNDED_STALENESS needs one");
  }
  next.set_staleness_bound(change.has_staleness_bound()
                               ? change.staleness_bound()
                               : current.consistency().staleness_bound());
  if (next.staleness_bound() > kRegimeStalenessBoundMax) {
    return Refuse("staleness_bound",
                  absl::StrCat(next.staleness_bound(), " is outside 0..",
                               kRegimeStalenessBoundMax));
  }
  return next;
}

// Neither mode nor rate: those who compute updates have them from the start.
absl::Status CheckRegimeCanChange(const JobSpec& spec) {
  if (spec.strategy() == HYBRID) {
    return Refuse(
        "strategy",
        "HYBRID: its regime cannot change yet, that is kept for later");
  }
  if (LeavesBehind(spec.consistency().mode()) || IsLocal(spec)) {
    return Refuse(
        "consistency.mode",
        absl::StrCat("the regime of a job in ",
                     ConsistencySpec::Mode_Name(spec.consistency().mode()),
                     " cannot change yet, it is kept for later"));
  }
  if (HasGroups(spec)) {
    return Refuse("groups",
                  "the regime of a job with groups cannot change yet, it is "
                  "kept for later");
  }
  for (int t = 0; t < spec.tables_size(); ++t) {
    const TableSpec& table = spec.tables(t);
    if (table.cache_rows() == 0 || table.cache_clocks() == 0) continue;
    return Refuse(absl::StrCat("tables[", t, "].cache_clocks"),
                  "workers that keep rows from step to step update them by the "
                  "regime that the job begins in");
  }
  return absl::OkStatus();
}

// A job with leased data trains by `next` too.
absl::Status CheckLeasesUnder(const ConsistencySpec& next, uint32_t workers) {
  if (next.mode() == ConsistencySpec::SYNC) {
    return Refuse("mode",
                  "SYNC does not go with data.sharing LEASED: each worker "
                  "would have a part of every clock; use ASYNC or "
                  "BOUNDED_STALENESS");
  }
  if (next.mode() != ConsistencySpec::BOUNDED_STALENESS) {
    return absl::OkStatus();
  }
  const std::string why = WhyBoundTooTight(next.staleness_bound(), workers);
  return why.empty() ? absl::OkStatus() : Refuse("staleness_bound", why);
}

// Each worker's gradient is a step of its own where SYNC ends.
double DefaultFactor(const Regime& current, Mode next, uint32_t workers) {
  const bool was_sync = ModeOf(current) == ConsistencySpec::SYNC;
  const bool is_sync = next == ConsistencySpec::SYNC;
  if (was_sync == is_sync) return FactorOf(current);
  return is_sync ? 1 : 1.0 / workers;
}

// As ChangedRegime, and OK too if nothing differs or the job is tied to its
// mode.
absl::StatusOr<Regime> NextRegime(const JobSpec& spec, uint32_t workers,
                                  const Regime& current,
                                  const RegimeChange& change) {
  Regime next = current;
  next.clear_first_clock();
  SYNCLINE_RETURN_IF_ERROR(ChangeStrategy(spec, current, change, &next));
  SYNCLINE_RETURN_IF_ERROR(ChangeWireType(spec, current, change, &next));
  SYNCLINE_ASSIGN_OR_RETURN(*next.mutable_consistency(),
                            ChangedConsistency(current, change));
  SYNCLINE_RETURN_IF_ERROR(ChangeCompression(spec, current, change, &next));
  if (next.compression_spec().values() &&
      ModeOf(next) != ConsistencySpec::SYNC) {
    return Refuse(
        "mode",
        absl::StrCat(ConsistencySpec::Mode_Name(ModeOf(next)),
                     " does not go with compression.values; leave it out of "
                     "the job"));
  }
  if (LeasesData(spec)) {
    SYNCLINE_RETURN_IF_ERROR(CheckLeasesUnder(
        next.consistency(), std::max(workers, spec.resources().max_workers())));
  }
  const double factor = change.learning_rate_factor();
  // Not a number is no factor either.
  if (change.has_learning_rate_factor() &&
      !(factor > 0 && factor <= kRegimeFactorMax)) {
    return Refuse("learning_rate_factor",
                  absl::StrCat("is ", factor, ", must be > 0 and at most ",
                               kRegimeFactorMax));
  }
  next.set_learning_rate_factor(
      change.has_learning_rate_factor()
          ? factor
          : DefaultFactor(current, ModeOf(next), workers));
  return next;
}

}  // namespace

Strategy StrategyOf(const Regime& regime) {
  return regime.strategy() == STRATEGY_UNSPECIFIED ? PARAMETER_SERVER
                                                   : regime.strategy();
}

bool TrainTheSame(const Regime& a, const Regime& b) {
  return ModeOf(a) == ModeOf(b) && StrategyOf(a) == StrategyOf(b) &&
         a.consistency().staleness_bound() ==
             b.consistency().staleness_bound() &&
         FactorOf(a) == FactorOf(b) &&
         Known(a.wire_type()) == Known(b.wire_type()) &&
         CompressionOf(a) == CompressionOf(b);
}

Regime FirstRegimeOf(const JobSpec& spec) {
  Regime first;
  *first.mutable_consistency() = spec.consistency();
  // A bound that does not count is no difference.
  if (ModeOf(first) != ConsistencySpec::BOUNDED_STALENESS) {
    first.mutable_consistency()->clear_staleness_bound();
  }
  if (spec.has_table_consistency()) {
    *first.mutable_table_consistency() = spec.table_consistency();
  }
  first.set_strategy(spec.strategy());
  first.set_wire_type(spec.wire_type());
  SetCompression(spec.compression(), &first);
  first.set_group_size(KnownGroupSize(spec));
  return first;
}

absl::Status CheckModeCanChange(const JobSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(CheckRegimeCanChange(spec));
  if (spec.optimizer().kind() == OptimizerSpec::LAMB) {
    return Refuse("optimizer.kind", "LAMB is for SYNC");
  }
  if (spec.training().sync_batch_statistics()) {
    return Refuse("training.sync_batch_statistics", "is for SYNC");
  }
  if (spec.precision() == FLOAT16) {
    return Refuse("precision",
                  "the loss scale of FLOAT16 follows the mode that the job "
                  "begins in");
  }
  return absl::OkStatus();
}

absl::StatusOr<Regime> ChangedRegime(const JobSpec& spec, uint32_t workers,
                                     const Regime& current,
                                     const RegimeChange& change) {
  SYNCLINE_ASSIGN_OR_RETURN(Regime next,
                            NextRegime(spec, workers, current, change));
  if (StrategyOf(next) != StrategyOf(current)) return next;
  if (!TrainTheSame(next, current) && !HasPs(current)) {
    Regime with_its_type = current;
    with_its_type.set_wire_type(next.wire_type());
    if (TrainTheSame(next, with_its_type)) return next;
    const absl::Status can = CheckTrainsBy(spec, PARAMETER_SERVER);
    return Refuse(
        "strategy",
        absl::StrCat(Strategy_Name(StrategyOf(current)),
                     ": without ps neither mode nor rate can change; ",
                     can.ok() ? "change to PARAMETER_SERVER first"
                              : "and this job cannot change to "
                                "PARAMETER_SERVER first: ",
                     can.message()));
  }
  if (TrainTheSame(next, current)) {
    return Refuse(
        change.strategy() == STRATEGY_UNSPECIFIED ? "mode" : "strategy",
        absl::StrCat("the job trains so already: ", RegimeText(next)));
  }
  const bool keeps_mode = ModeOf(next) == ModeOf(current) &&
                          next.consistency().staleness_bound() ==
                              current.consistency().staleness_bound();
  if (const absl::Status can =
          keeps_mode ? CheckRegimeCanChange(spec) : CheckModeCanChange(spec);
      !can.ok()) {
    const bool keeps_type =
        Known(next.wire_type()) == Known(current.wire_type());
    const bool keeps_compression =
        CompressionOf(next) == CompressionOf(current);
    return Refuse(
        !keeps_mode          ? "mode"
        : !keeps_type        ? "wire_type"
        : !keeps_compression ? "compression"
                             : "learning_rate_factor",
        absl::StrCat("cannot change while this job runs: ", can.message()));
  }
  return next;
}

namespace {

void CheckWhen(const std::string& path, const JobSpec& spec,
               const RegimeRule::When& when, Problems* problems) {
  switch (when.condition_case()) {
    case RegimeRule::When::kClock:
      if (when.clock() <= 0) {
        problems->Add(path + ".clock", when.clock(), " must be > 0");
      } else if (const uint64_t last = spec.training().max_clocks();
                 last > 0 && static_cast<uint64_t>(when.clock()) >= last) {
        problems->Add(path + ".clock", when.clock(),
                      " is not below training.max_clocks, ", last,
                      ": nothing follows the last clock");
      }
      return;
    case RegimeRule::When::kEpoch: {
      const uint32_t epochs = std::max(1u, spec.training().epochs());
      if (when.epoch() < 1 || when.epoch() >= epochs) {
        problems->Add(path + ".epoch", when.epoch(), " is outside 1..",
                      epochs - 1, ": training.epochs is ", epochs,
                      ", and nothing follows the last one");
      }
      return;
    }
    case RegimeRule::When::kLossBelow:
      // No loss of LossSpec is negative.
      if (!(std::isfinite(when.loss_below()) && when.loss_below() > 0)) {
        problems->Add(path + ".loss_below", when.loss_below(),
                      " must be finite and > 0: no loss is below 0");
      }
      return;
    case RegimeRule::When::kPlateau:
      if (when.plateau().evaluations() < 1 ||
          when.plateau().evaluations() > 1000) {
        problems->Add(path + ".plateau.evaluations",
                      when.plateau().evaluations(), " is outside 1..1000");
      }
      problems->UnitInterval(path + ".plateau.min_improvement",
                             when.plateau().min_improvement());
      if (!spec.data().has_test()) {
        problems->Add(path + ".plateau",
                      "needs data.test: it is about the test loss");
      }
      return;
    case RegimeRule::When::kStraggler:
      if (!(std::isfinite(when.straggler()) && when.straggler() > 1)) {
        problems->Add(path + ".straggler", when.straggler(),
                      " must be finite and > 1");
      }
      if (spec.resources().workers() < 2) {
        problems->Add(path + ".straggler",
                      "needs resources.workers of at least 2");
      }
      if (LeasesData(spec)) {
        problems->Add(path + ".straggler",
                      "has no meaning with data.sharing LEASED, where nobody "
                      "waits for a slow worker's batches");
      }
      return;
    case RegimeRule::When::CONDITION_NOT_SET:
      break;
  }
  problems->Add(path,
                "is required: one of clock, epoch, loss_below, plateau and "
                "straggler");
}

// The rule may find the job in any regime that other rules, or users, have
// brought about.
void CheckThen(const std::string& path, const JobSpec& spec,
               const RegimeChange& change, Problems* problems) {
  if (change.ByteSizeLong() == 0) {
    return problems->Add(path, "is required: what changes");
  }
  const uint32_t workers = std::max(1u, spec.resources().workers());
  absl::Status refused;
  std::vector<CompressionSpec::Kind> kinds = {spec.compression().kind()};
  if (!IsOneOf(kinds[0],
               {CompressionSpec::DGC, CompressionSpec::ONE_BIT_ADAM})) {
    kinds.insert(kinds.end(), {CompressionSpec::NONE, CompressionSpec::INT8});
  }
  // A factor of 1 is a change where another one came before.
  for (const double factor : {1.0, 2.0}) {
    for (const Mode mode :
         {spec.consistency().mode(), ConsistencySpec::SYNC,
          ConsistencySpec::BOUNDED_STALENESS, ConsistencySpec::ASYNC}) {
      for (const Strategy strategy :
           {spec.strategy(), PARAMETER_SERVER, ALL_REDUCE}) {
        if (!CheckTrainsBy(spec, strategy).ok()) continue;
        for (const WireType type : {Known(spec.wire_type()), WIRE_BFLOAT16}) {
          Regime current;
          current.mutable_consistency()->set_mode(mode);
          if (mode == ConsistencySpec::BOUNDED_STALENESS) {
            current.mutable_consistency()->set_staleness_bound(
                spec.consistency().staleness_bound());
          }
          current.set_strategy(strategy);
          current.set_wire_type(type);
          current.set_learning_rate_factor(factor);
          for (const CompressionSpec::Kind kind : kinds) {
            CompressionSpec compression;
            compression.set_kind(kind);
            if (kind == spec.compression().kind()) {
              compression = spec.compression();
            }
            SetCompression(compression, &current);
            const auto next = ChangedRegime(spec, workers, current, change);
            if (next.ok()) return;
            if (refused.ok()) refused = next.status();
          }
        }
      }
    }
  }
  // "mode: why", or of a field of the job.
  const absl::string_view text = refused.message();
  const size_t colon = text.find(": ");
  const std::string field(text.substr(0, colon));
  if (RegimeChange::descriptor()->FindFieldByName(field) == nullptr) {
    return problems->Add(path, "cannot be made in this job: ", text);
  }
  problems->Add(absl::StrCat(path, ".", field), text.substr(colon + 2));
}

// If no rule leads away from the first regime, none ever acts.
void CheckSomeRuleActs(const JobSpec& spec, Problems* problems) {
  const uint32_t workers = std::max(1u, spec.resources().workers());
  const Regime first = FirstRegimeOf(spec);
  for (const RegimeRule& rule : spec.regimes()) {
    const auto next = NextRegime(spec, workers, first, rule.then());
    // A refused change is named by the check of each rule.
    if (!next.ok() || rule.then().ByteSizeLong() == 0) return;
    if (!TrainTheSame(*next, first)) return;
  }
  for (int i = 0; i < spec.regimes_size(); ++i) {
    problems->Add(Indexed("regimes", i) + ".then",
                  "changes nothing: the job begins so (", RegimeText(first),
                  "), and no other rule changes that");
  }
}

}  // namespace

void CheckRegimeRules(const JobSpec& spec, Problems* problems) {
  if (spec.regimes_size() > kRegimeRulesMax) {
    return problems->Add("regimes", spec.regimes_size(), " rules, at most ",
                         kRegimeRulesMax);
  }
  for (int i = 0; i < spec.regimes_size(); ++i) {
    const std::string path = Indexed("regimes", i);
    CheckWhen(path + ".when", spec, spec.regimes(i).when(), problems);
    CheckThen(path + ".then", spec, spec.regimes(i).then(), problems);
  }
  CheckSomeRuleActs(spec, problems);
}

std::string RegimeText(const Regime& regime) {
  std::string text;
  if (StrategyOf(regime) != PARAMETER_SERVER) {
    absl::StrAppend(&text, Strategy_Name(StrategyOf(regime)), " ");
    if (regime.sharding_stage() > 1) {
      absl::StrAppend(&text, "(stage ", regime.sharding_stage(), ") ");
    }
  }
  absl::StrAppend(&text, ConsistencySpec::Mode_Name(ModeOf(regime)));
  if (ModeOf(regime) == ConsistencySpec::BOUNDED_STALENESS) {
    absl::StrAppend(&text, ", bound ", regime.consistency().staleness_bound());
  }
  if (Known(regime.wire_type()) != WIRE_FLOAT32) {
    absl::StrAppend(&text, ", ", WireType_Name(regime.wire_type()));
  }
  if (CompressionOf(regime) != CompressionSpec::NONE) {
    absl::StrAppend(&text, ", compressed by ",
                    CompressionSpec::Kind_Name(CompressionOf(regime)));
  }
  if (LeavesBehind(ModeOf(regime))) {
    absl::StrAppend(&text, ", needed ", regime.consistency().needed());
    if (const double seconds = regime.consistency().timeout_seconds();
        seconds > 0) {
      absl::StrAppend(&text, ", timeout ", seconds, " s");
    }
  }
  if (ModeOf(regime) == ConsistencySpec::LOCAL) {
    const LocalSpec& local = regime.consistency().local();
    absl::StrAppend(&text, ", rounds of ", local.steps(), " steps, ",
                    OptimizerSpec::Kind_Name(local.optimizer().kind()), " x ",
                    local.learning_rate(), " on the ps");
  }
  if (regime.has_table_consistency()) {
    const ConsistencySpec& rows = regime.table_consistency();
    const bool is_sync = rows.mode() == ConsistencySpec::MODE_UNSPECIFIED;
    absl::StrAppend(&text, ", rows ",
                    ConsistencySpec::Mode_Name(is_sync ? ConsistencySpec::SYNC
                                                       : rows.mode()));
    if (rows.mode() == ConsistencySpec::BOUNDED_STALENESS) {
      absl::StrAppend(&text, ", bound ", rows.staleness_bound());
    }
  }
  if (regime.group_size() > 1) {
    absl::StrAppend(&text, ", groups of ", regime.group_size());
  }
  if (FactorOf(regime) != 1) {
    absl::StrAppend(&text, ", learning rate x ", FactorOf(regime));
  }
  return text;
}

}  // namespace syncline
