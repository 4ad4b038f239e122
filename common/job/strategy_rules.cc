#include "common/job/strategy_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/hybrid_rules.h"
#include "common/job/strategy_change.h"

namespace syncline {
namespace {

using C = ConsistencySpec;

constexpr C::Mode kAllModes[] = {C::SYNC,
                                 C::SYNC_WITH_BACKUPS,
                                 C::SYNC_WITH_TIMEOUT,
                                 C::BOUNDED_STALENESS,
                                 C::ASYNC,
                                 C::LOCAL};
constexpr C::Mode kSyncOnly[] = {C::SYNC};

constexpr StrategyRule kRules[] = {
    {.strategy = PARAMETER_SERVER, .modes = kAllModes},
    {.strategy = ALL_REDUCE,
     .has_ps = false,
     .modes = kSyncOnly,
     .has_tables = false},
    {.strategy = SHARDED,
     .has_ps = false,
     .modes = kSyncOnly,
     .has_tables = false,
     .changes_with_16_bits = false,
     .sharding_stages = 3},
    {.strategy = HYBRID, .modes = kSyncOnly, .tables_apart = true},
};

std::string NameOf(const StrategyRule& rule) {
  return Strategy_Name(rule.strategy);
}

void CheckMode(const JobSpec& spec, const StrategyRule& rule,
               Problems* problems) {
  const C::Mode mode = spec.consistency().mode();
  // A mode that is not built has a problem of its own.
  if (std::find(std::begin(kAllModes), std::end(kAllModes), mode) ==
          std::end(kAllModes) ||
      std::find(rule.modes.begin(), rule.modes.end(), mode) !=
          rule.modes.end()) {
    return;
  }
  problems->Add("consistency.mode", C::Mode_Name(mode), " does not go with ",
                NameOf(rule), ", which takes ",
                absl::StrJoin(rule.modes, ", ",
                              [](std::string* out, C::Mode of) {
                                absl::StrAppend(out, C::Mode_Name(of));
                              }),
                rule.tables_apart ? " for the dense parameters; rows have "
                                    "table_consistency"
                                  : "; use PARAMETER_SERVER");
}

// Steps that gather values for each use are built for float32 on the workers'
// processors.
void CheckFreesValues(const JobSpec& spec, Problems* problems) {
  const auto refuse = [&](absl::string_view field, const auto& value,
                          absl::string_view use) {
    problems->Add(field, value,
                  " is not built for SHARDED, stage 3, which gathers values "
                  "for each use; use ",
                  use, ", or sharding { stage: 2 }");
  };
  if (const uint32_t segments = spec.training().recompute_segments();
      segments > 1) {
    refuse("training.recompute_segments", segments, "1");
  }
  if (spec.precision() == BFLOAT16 || spec.precision() == FLOAT16) {
    refuse("precision", Precision_Name(spec.precision()), "FLOAT32");
  }
  if (spec.resources().device() == ResourcesSpec::CUDA) {
    refuse("resources.device", "CUDA", "CPU");
  }
}

void CheckSharding(const JobSpec& spec, const StrategyRule& rule,
                   Problems* problems) {
  if (!spec.has_sharding()) return;
  if (rule.sharding_stages == 0) {
    problems->Add("sharding", "has no meaning for ", NameOf(rule),
                  ", only for SHARDED");
    return;
  }
  const uint32_t stage = spec.sharding().stage();
  if (stage > rule.sharding_stages) {
    problems->Add("sharding.stage", stage,
                  " is not known; use 1, which divides the optimizer's state, "
                  "2, which divides the gradients, too, or 3, which divides "
                  "the values, too");
  }
  if (FreesValues(spec)) CheckFreesValues(spec, problems);
}

}  // namespace

const StrategyRule* FindStrategyRule(Strategy strategy) {
  if (strategy == STRATEGY_UNSPECIFIED) strategy = PARAMETER_SERVER;
  for (const StrategyRule& rule : kRules) {
    if (rule.strategy == strategy) return &rule;
  }
  return nullptr;
}

bool IsWithoutPs(const JobSpec& spec) {
  const StrategyRule* const rule = FindStrategyRule(spec.strategy());
  return rule != nullptr && !rule->has_ps;
}

bool ReducesAmongWorkers(const JobSpec& spec) {
  const StrategyRule* const rule = FindStrategyRule(spec.strategy());
  return rule != nullptr && (!rule->has_ps || rule->tables_apart);
}

void CheckStrategy(const JobSpec& spec, Problems* problems) {
  const StrategyRule* const rule = FindStrategyRule(spec.strategy());
  if (rule == nullptr) {
    const std::string name = Strategy_Name(spec.strategy());
    problems->Add("strategy",
                  name.empty() ? absl::StrCat(spec.strategy()) : name,
                  name.empty() ? " is not known" : " is not built yet",
                  "; use PARAMETER_SERVER, ALL_REDUCE, SHARDED or HYBRID");
    return;
  }
  CheckMode(spec, *rule, problems);
  CheckSharding(spec, *rule, problems);
  // Reserved for a change to PARAMETER_SERVER; tables have a problem of their
  // own.
  if (!rule->has_ps && spec.resources().ps() > 0 && spec.tables_size() == 0) {
    const absl::Status can = CheckTrainsBy(spec, PARAMETER_SERVER);
    if (!can.ok()) {
      problems->Add("resources.ps", spec.resources().ps(),
                    " reserved for a change to PARAMETER_SERVER, which this "
                    "job cannot make: ",
                    can.message());
    }
  }
  if (!rule->has_tables && spec.tables_size() > 0) {
    problems->Add("tables", "do not go with ", NameOf(*rule),
                  ": rows are on ps; use HYBRID or PARAMETER_SERVER");
  }
  CheckTablesApart(spec, rule->tables_apart, problems);
}

void FillStrategy(JobSpec* spec) {
  if (spec->strategy() == STRATEGY_UNSPECIFIED) {
    spec->set_strategy(PARAMETER_SERVER);
  }
  const StrategyRule* const rule = FindStrategyRule(spec->strategy());
  if (rule == nullptr) return;
  if (rule->has_ps && spec->resources().ps() == 0) {
    spec->mutable_resources()->set_ps(1);
  }
  if (rule->tables_apart) FillTablesApart(spec);
  if (rule->sharding_stages > 0 && spec->sharding().stage() == 0) {
    spec->mutable_sharding()->set_stage(1);
  }
}

}  // namespace syncline
