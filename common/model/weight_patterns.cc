#include "common/model/weight_patterns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/edit_distance.h"
#include "common/model/graph/describe.h"
#include "common/model/import/training_mode.h"

namespace syncline {
namespace {

constexpr size_t kNamesShown = 8;
constexpr size_t kNearNamesShown = 3;
// Enough for real models; hostile ones are not measured.
constexpr size_t kNamesMeasured = 10000;
constexpr size_t kNameBytesMeasured = 64;

bool IsOnlyWildcards(absl::string_view pattern) {
  return pattern.find_first_not_of("*?") == absl::string_view::npos;
}

class Planner {
 public:
  Planner(const JobSpec& spec, const Model& model,
          std::vector<std::string>* problems)
      : spec_(spec.model()),
        tables_(spec.tables()),
        record_(model.export_record()),
        graph_(model.graph()),
        whole_(model.whole()),
        uses_(model.graph()),
        kept_(KeptStatistics(model.graph())),
        problems_(*problems) {}

  std::vector<WeightPlan> Plan() {
    plans_.resize(graph_.initializers.size());
    rule_uses_.resize(spec_.initialize_size());
    freeze_matches_.resize(spec_.freeze_size());
    train_matches_.resize(spec_.train_size());
    for (size_t i = 0; i < plans_.size(); ++i) {
      const Initializer& initializer = graph_.initializers[i];
      if (initializer.origin == Initializer::Origin::kConstant) continue;
      if (IsTable(initializer)) continue;
      PlanOne(initializer, &plans_[i]);
    }
    CheckPatterns();
    return std::move(plans_);
  }

 private:
  // The use of one rule for the names of this model.
  struct RuleUse {
    bool matches = false;
    bool wins = false;  // is the first one for some initializer
    // A float32 initializer that it would fill, were that trained.
    const std::string* untrained = nullptr;
    WeightReason why = WeightReason::kUnreached;
  };

  template <typename... Parts>
  void Problem(const Parts&... parts) {
    problems_.push_back(absl::StrCat(parts...));
  }

  const std::string& NameOf(const Initializer& initializer) const {
    return graph_.values[initializer.value].name;
  }
  // A table has rows by key instead of values, and a rule of its own for them.
  bool IsTable(const Initializer& initializer) const {
    return absl::c_any_of(tables_, [&](const TableSpec& table) {
      return table.name() == NameOf(initializer);
    });
  }

  void PlanOne(const Initializer& initializer, WeightPlan* plan) {
    plan->is_float = initializer.tensor.dtype == DType::kFloat32;
    const std::string& name = NameOf(initializer);
    int freeze = -1;
    for (int f = 0; f < spec_.freeze_size(); ++f) {
      if (!MatchesPattern(spec_.freeze(f), name)) continue;
      freeze_matches_[f] = true;
      freeze = f;
      if (initializer.origin == Initializer::Origin::kDeclared) {
        Problem("model.freeze[", f, "]: ", Quote(name),
                " has no values in the file, so it cannot be frozen");
      }
    }
    if (!plan->is_float) return;
    for (int t = 0; t < spec_.train_size(); ++t) {
      if (!MatchesPattern(spec_.train(t), name)) continue;
      train_matches_[t] = true;
      if (freeze >= 0) {
        Problem("model.train[", t, "]: ", Quote(spec_.train(t)), " matches ",
                Quote(name), ", which model.freeze[", freeze,
                "] matches too; it is one or the other");
      }
      if (plan->train < 0) plan->train = t;
    }
    plan->reason = ReasonFor(initializer, freeze >= 0, plan->train >= 0);
    plan->fillable = IsTrained(plan->reason);
    MatchRules(name, plan);
  }

  WeightReason ReasonFor(const Initializer& initializer, bool frozen,
                         bool trained) const {
    if (initializer.origin == Initializer::Origin::kDeclared) {
      return WeightReason::kDeclared;
    }
    if (frozen) return WeightReason::kFrozen;
    if (!whole_) return WeightReason::kAssumed;
    const WeightReason use = uses_.Judge(initializer);
    if (use == WeightReason::kStatistic) {
      return kept_[initializer.value] && !trained ? WeightReason::kKept : use;
    }
    if (trained) return WeightReason::kJobTrains;
    const std::string& name = NameOf(initializer);
    switch (record_.KindOf(name)) {
      case ExportRecord::Kind::kParameter:
        return WeightReason::kFileSays;
      case ExportRecord::Kind::kBuffer:
        return WeightReason::kBuffer;
      case ExportRecord::Kind::kConstant:
        return WeightReason::kConstant;
      case ExportRecord::Kind::kUnknown:
        break;
    }
    if (record_.says_kinds() && !spec_.accept_merged()) {
      return WeightReason::kUnnamed;
    }
    const bool named =
        absl::c_any_of(spec_.initialize(), [&](const InitializerRule& rule) {
          return !IsOnlyWildcards(rule.pattern()) &&
                 MatchesPattern(rule.pattern(), name);
        });
    return named ? WeightReason::kJobFills : use;
  }

  void MatchRules(const std::string& name, WeightPlan* plan) {
    for (int r = 0; r < spec_.initialize_size(); ++r) {
      if (!MatchesPattern(spec_.initialize(r).pattern(), name)) continue;
      RuleUse& use = rule_uses_[r];
      if (!plan->fillable) {
        use.untrained = &name;
        use.why = plan->reason;
        continue;
      }
      use.matches = true;
      if (plan->rule >= 0) continue;
      plan->rule = r;
      use.wins = true;
    }
  }

  void CheckPatterns() {
    for (size_t r = 0; r < rule_uses_.size(); ++r)
      CheckRule(static_cast<int>(r));
    for (size_t f = 0; f < freeze_matches_.size(); ++f) {
      if (freeze_matches_[f]) continue;
      Problem("model.freeze[", f,
              "]: ", Quote(spec_.freeze(static_cast<int>(f))),
              " matches no initializer ", Names(/*floats=*/false));
    }
    for (size_t t = 0; t < train_matches_.size(); ++t) {
      if (train_matches_[t]) continue;
      const std::string& pattern = spec_.train(static_cast<int>(t));
      Problem("model.train[", t, "]: ", Quote(pattern),
              " matches no float32 initializer", NearNames(pattern), " ",
              Names(/*floats=*/true));
    }
  }

  void CheckRule(int r) {
    const RuleUse& use = rule_uses_[r];
    const std::string pattern = Quote(spec_.initialize(r).pattern());
    const std::string path =
        absl::StrCat("model.initialize[", r, "].pattern: ", pattern);
    if (use.wins) return;
    if (use.matches) {
      Problem(path, " matches only initializers that an earlier rule fills");
    } else if (use.untrained != nullptr) {
      Problem(path, " matches ", Quote(*use.untrained),
              ", which is not trained (", Explain(use.why), ")",
              use.why == WeightReason::kFrozen
                  ? ""
                  : "; if it is a weight, name it in model.train");
    } else {
      Problem(path, " matches no initializer that can be trained ",
              Names(/*floats=*/false));
    }
  }

  // ('a', 'b', ...), for messages.
  std::string Names(bool floats) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < plans_.size(); ++i) {
      const Initializer& initializer = graph_.initializers[i];
      if (initializer.origin == Initializer::Origin::kConstant) continue;
      if (floats && !plans_[i].is_float) continue;
      if (names.size() == kNamesShown) {
        names.push_back("...");
        break;
      }
      names.push_back(Quote(NameOf(initializer)));
    }
    return names.empty() ? "(none)"
                         : absl::StrCat("(", absl::StrJoin(names, ", "), ")");
  }

  // "; near it are 'a' and 'b'", or nothing.
  std::string NearNames(const std::string& pattern) const {
    const std::string asked = absl::StrReplaceAll(pattern, {{"*", ""}});
    if (asked.empty() || asked.size() > kNameBytesMeasured) return "";
    std::vector<std::pair<size_t, std::string>> near;
    const size_t count = std::min(plans_.size(), kNamesMeasured);
    for (size_t i = 0; i < count; ++i) {
      if (!plans_[i].is_float) continue;
      const std::string& name = NameOf(graph_.initializers[i]);
      if (name.size() > kNameBytesMeasured) continue;
      const size_t distance = EditDistance(asked, name);
      if (distance > 1 + name.size() / 4) continue;
      near.emplace_back(distance, Quote(name));
    }
    if (near.empty()) return "";
    absl::c_sort(near);
    near.resize(std::min(near.size(), kNearNamesShown));
    return absl::StrCat(
        "; near it: ",
        absl::StrJoin(near, ", ", [](std::string* out, const auto& entry) {
          absl::StrAppend(out, entry.second);
        }));
  }

  const ModelSpec& spec_;
  const google::protobuf::RepeatedPtrField<TableSpec>& tables_;
  const ExportRecord& record_;
  const Graph& graph_;
  const bool whole_;
  const WeightUses uses_;
  const std::vector<bool> kept_;  // by ValueId
  std::vector<std::string>& problems_;
  std::vector<WeightPlan> plans_;     // by Graph::initializers index
  std::vector<RuleUse> rule_uses_;    // by ModelSpec.initialize index
  std::vector<bool> freeze_matches_;  // by ModelSpec.freeze index
  std::vector<bool> train_matches_;   // by ModelSpec.train index
};

}  // namespace

std::vector<WeightPlan> PlanWeights(const JobSpec& spec, const Model& model,
                                    std::vector<std::string>* problems) {
  return Planner(spec, model, problems).Plan();
}

}  // namespace syncline
