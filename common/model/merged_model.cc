#include "common/model/merged_model.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/graph/describe.h"
#include "common/model/import/export_record.h"
#include "common/model/import/weight_choice.h"

namespace syncline {
namespace {

constexpr size_t kNamesShown = 8;

// The exporter's optimiser leaves no Constant node, and what it folds it stores
// as initializers of which nothing is said.
bool IsOptimised(const Model& model) {
  bool has_constants = false;
  for (const Initializer& initializer : model.graph().initializers) {
    if (initializer.origin == Initializer::Origin::kConstant) {
      has_constants = true;
      continue;
    }
    const std::string& name = model.graph().values[initializer.value].name;
    if (initializer.origin == Initializer::Origin::kFile &&
        initializer.tensor.dtype == DType::kFloat32 &&
        model.export_record().KindOf(name) == ExportRecord::Kind::kUnknown) {
      return true;
    }
  }
  return !has_constants;
}

// Of so many quoted names, of which the first are in `names`.
std::string JoinNames(std::vector<std::string> names, size_t count) {
  if (count > kNamesShown) names.push_back("...");
  return absl::StrJoin(names, ", ");
}

bool IsOneNumber(const ConstantTensor& tensor) {
  if (tensor.dtype != DType::kFloat32 || tensor.bytes.empty()) return false;
  const absl::Span<const float> values = tensor.floats();
  return absl::c_all_of(values, [&](float x) { return x == values[0]; });
}

}  // namespace

std::optional<MissingParameters> FindMissingParameters(const Model& model) {
  const Graph& graph = model.graph();
  absl::flat_hash_set<absl::string_view> names;
  for (const Initializer& initializer : graph.initializers) {
    names.insert(graph.values[initializer.value].name);
  }
  const std::vector<std::string>& parameters = model.export_record().parameters;
  std::vector<std::string> missing;
  size_t count = 0;
  for (const std::string& name : parameters) {
    if (names.contains(name)) continue;
    if (++count <= kNamesShown) missing.push_back(Quote(name));
  }
  if (count == 0) return std::nullopt;
  return MissingParameters{
      absl::StrCat("of the ", parameters.size(),
                   " parameters of the PyTorch model ", count,
                   " have no initializer of their own in the file (",
                   JoinNames(std::move(missing), count), ")"),
      IsOptimised(model)};
}

std::optional<std::string> FindMergedConstants(const Model& model) {
  if (!IsOptimised(model)) return std::nullopt;
  const Graph& graph = model.graph();
  const WeightUses uses(graph);
  std::vector<std::string> names;
  size_t count = 0;
  for (const Initializer& initializer : graph.initializers) {
    const std::string& name = graph.values[initializer.value].name;
    if (model.export_record().KindOf(name) != ExportRecord::Kind::kParameter ||
        !IsOneNumber(initializer.tensor) ||
        uses.ReaderCount(initializer.value) < 2) {
      continue;
    }
    if (++count <= kNamesShown) names.push_back(Quote(name));
  }
  if (count == 0) return std::nullopt;
  return absl::StrCat(count, " parameters of one number throughout (",
                      JoinNames(std::move(names), count),
                      ") are read by several nodes");
}

}  // namespace syncline
