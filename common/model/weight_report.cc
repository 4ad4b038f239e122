#include "common/model/weight_report.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/model/graph/describe.h"

namespace syncline {
namespace {

constexpr size_t kNamesShown = 8;

// Trained ones come first.
using Groups = std::map<WeightReason, WeightGroup>;

void Add(WeightReason reason, bool trained, const std::string& name,
         const Dims& dims, Groups* groups) {
  WeightGroup& group = (*groups)[reason];
  group.trained = trained;
  group.why = std::string(Explain(reason));
  ++group.count;
  group.numbers += ElementCount(dims);
  group.names.push_back(name);
}

Groups GroupsOf(const TrainingGraph& training) {
  Groups groups;
  for (const TrainingGraph::Parameter& parameter : training.parameters) {
    const WeightReason reason = parameter.momentum.has_value()
                                    ? WeightReason::kStatistic
                                    : parameter.reason;
    Add(reason, /*trained=*/true, parameter.name, parameter.dims, &groups);
  }
  for (const TrainingGraph::Fixed& fixed : training.fixed) {
    Add(fixed.reason, /*trained=*/false, fixed.name, fixed.dims, &groups);
  }
  return groups;
}

bool IsBeyondDoubt(WeightReason reason) {
  return reason == WeightReason::kFileSays ||
         reason == WeightReason::kStatistic ||
         reason == WeightReason::kDeclared ||
         reason == WeightReason::kStarted || reason == WeightReason::kLayer ||
         reason == WeightReason::kFrozen;
}

}  // namespace

std::vector<WeightGroup> GroupWeights(const TrainingGraph& training) {
  std::vector<WeightGroup> list;
  for (auto& [reason, group] : GroupsOf(training)) {
    list.push_back(std::move(group));
  }
  return list;
}

std::string NamesText(const WeightGroup& group) {
  std::vector<std::string> shown;
  for (const std::string& name : group.names) {
    if (shown.size() == kNamesShown) {
      shown.push_back("...");
      break;
    }
    shown.push_back(Quote(name));
  }
  return absl::StrJoin(shown, ", ");
}

std::vector<std::string> DescribeWeights(const TrainingGraph& training) {
  std::vector<std::string> lines;
  for (const auto& [reason, group] : GroupsOf(training)) {
    std::string line = absl::StrFormat(
        "%-11s %5d (%d numbers): %s", group.trained ? "trained" : "not trained",
        group.count, group.numbers, group.why);
    if (!IsBeyondDoubt(reason)) {
      absl::StrAppend(&line, " (", NamesText(group), ")");
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace syncline
