#include "common/model/training_graph.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/elastic_validator.h"
#include "common/job/evaluate_validator.h"
#include "common/job/lease_rules.h"
#include "common/model/batch_shapes.h"
#include "common/model/file_gaps.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/gradient_flow.h"
#include "common/model/import/export_record.h"
#include "common/model/loss_and_feeds.h"
#include "common/model/merged_model.h"
#include "common/model/mixed_samples.h"
#include "common/model/weight_patterns.h"

namespace syncline {
namespace {

constexpr size_t kNamesShown = 8;
// Inputs of BatchNormalization.
constexpr size_t kRunningMean = 3;
constexpr size_t kRunningVariance = 4;
// Of safetensors files, which results are.
constexpr absl::string_view kReservedName = "__metadata__";

class Resolver {
 public:
  Resolver(const JobSpec& spec, const Model& model,
           std::vector<std::string>* problems)
      : spec_(spec),
        model_(model),
        graph_(model.graph()),
        problems_(problems) {}

  TrainingGraph Resolve() {
    result_.loss_output = ResolveLossOutput(spec_, model_, problems_);
    result_.feeds = ResolveFeeds(spec_, model_, result_.loss_output, problems_);
    const bool whole = model_.whole();
    // A bad node may have lost its inputs, and its gradients are unknown.
    if (whole) {
      result_.tables = ResolveTables(spec_, graph_, result_.feeds, problems_);
    }
    plans_ = PlanWeights(spec_, model_, problems_);
    if (!whole) return std::move(result_);
    CheckMerged();
    CheckFoldedParameters();
    reached_ = ReachedByGradient(graph_, result_.loss_output);
    MarkStatistics();
    CheckNames();
    CheckLostGradients();
    ResolveParameters();
    CheckTrainedAreReached();
    WarnOfSharedWeights();
    std::string doubled =
        DescribeDoubledActivation(spec_, model_, result_.loss_output);
    if (!doubled.empty()) result_.warnings.push_back(std::move(doubled));
    for (std::string& line : DescribeFileGaps(model_, result_, reached_)) {
      result_.warnings.push_back(std::move(line));
    }
    for (std::string& line :
         DescribePaddingRows(spec_, graph_, result_.feeds, result_.tables)) {
      result_.warnings.push_back(std::move(line));
    }
    if (spec_.optimizer().kind() == OptimizerSpec::ADAMW &&
        spec_.optimizer().weight_decay() == 0) {
      result_.warnings.emplace_back(
          "optimizer.weight_decay: is 0, and ADAMW without it is ADAM; "
          "PyTorch's AdamW has 0.01 where nothing is given");
    }
    CheckFoldedStatistics();
    FindMixed();
    CheckBatchShapes(spec_, model_, result_.loss_output, problems_);
    return std::move(result_);
  }

 private:
  template <typename... Parts>
  void Problem(const Parts&... parts) {
    problems_->push_back(absl::StrCat(parts...));
  }

  const Value& value(ValueId id) const { return graph_.values[id]; }
  const std::string& NameOf(const Initializer& initializer) const {
    return value(initializer.value).name;
  }
  std::string NameOf(const Node& node) const {
    return DescribeNode(node.name, node.op_type, graph_.opset_version);
  }
  // Marks the running means and variances of batch normalisation.
  void MarkStatistics();
  void CheckShared(const Node& node, ValueId id);
  void MarkStatistic(const Node& node, size_t input);
  void CheckStatisticRule(const TrainingGraph::Parameter& parameter);
  bool IsFillable(ValueId id) const;
  // Of weights in the results.
  void CheckNames();
  void ResolveParameters();
  void AddFixed(const Initializer& initializer, WeightReason reason);
  // Initializers that would be trained if they were not taken for constants.
  std::string DescribeUntrained() const;
  // Parameters of the PyTorch model that the file does not have.
  void CheckMerged();
  // Likewise merged, with constants.
  void CheckMergedConstants();
  // Parameters that PyTorch's older exporter folded into others.
  void CheckFoldedParameters();
  void CheckLostGradients();
  // Patterns of model.train must make something a parameter.
  void CheckTrainedAreReached();
  // Warns where the file does not tell whether the model itself shares weights.
  void WarnOfSharedWeights();
  void CheckFoldedStatistics();
  // Operators to which a part of a batch is another batch.
  void FindMixed();

  const JobSpec& spec_;
  const Model& model_;
  const Graph& graph_;
  std::vector<std::string>* const problems_;
  TrainingGraph result_;
  std::vector<WeightPlan> plans_;              // by Graph::initializers index
  std::vector<bool> reached_;                  // by ValueId
  std::vector<std::optional<float>> momenta_;  // by ValueId: of statistics
  std::vector<bool> reported_;    // by ValueId: statistics that cannot be kept
  bool is_merged_ = false;        // and that is a problem already
  bool loses_gradients_ = false;  // likewise
};

bool Resolver::IsFillable(ValueId id) const {
  return value(id).initializer >= 0 && plans_[value(id).initializer].fillable;
}

void Resolver::MarkStatistics() {
  momenta_.resize(graph_.values.size());
  reported_.resize(graph_.values.size(), false);
  for (const Node& node : graph_.nodes) {
    const ValueId out = node.outputs[0];
    if (node.op_type != "BatchNormalization" || out == kNoValue ||
        !reached_[out]) {
      continue;
    }
    for (const size_t input : {kRunningMean, kRunningVariance}) {
      MarkStatistic(node, input);
    }
    const ValueId mean = node.inputs[kRunningMean];
    const ValueId variance = node.inputs[kRunningVariance];
    if (IsFillable(mean) != IsFillable(variance)) {
      Problem("model.freeze: of ", Quote(value(mean).name), " and ",
              Quote(value(variance).name), ", which ", NameOf(node),
              " normalises by, one is frozen; freeze both or none");
    }
    const float momentum = node.Float("momentum", 0.9f);
    if (!(momentum >= 0 && momentum <= 1)) {
      Problem("model: the momentum of ", NameOf(node), " is ", momentum,
              "; it must be in [0, 1]");
    }
    if (momentum == 1 && (IsFillable(mean) || IsFillable(variance))) {
      Problem("model: the momentum of ", NameOf(node), " is 1, so ",
              Quote(value(mean).name), " and ", Quote(value(variance).name),
              " would never move, as PyTorch writes momentum=None or 0; give "
              "the layer a momentum before the export, or freeze both");
    }
  }
}

// Only what one node alone normalises by can follow that node's batches.
void Resolver::MarkStatistic(const Node& node, size_t input) {
  const ValueId id = node.inputs[input];
  const std::string name = Quote(value(id).name);
  if (value(id).producer >= 0 && !value(id).folded) {
    Problem(
        "model: ", NameOf(node), " normalises by ", name,
        ", which is computed; it must be an initializer, so that training "
        "can keep it there. PyTorch writes this for track_running_stats=False, "
        "which has no statistics to keep: leave that out, or use another "
        "normalisation, as GroupNorm. Else export the model in training "
        "mode");
  }
  if (!IsFillable(id)) return;
  CheckShared(node, id);
  momenta_[id] = node.Float("momentum", 0.9f);
}

// Not where the cause is known: the file's parameters were merged.
void Resolver::CheckShared(const Node& node, ValueId id) {
  for (const Node& other : graph_.nodes) {
    if (absl::c_count(other.inputs, id) == (&other == &node ? 1 : 0)) continue;
    if (!is_merged_ && !reported_[id]) {
      const std::string name = Quote(value(id).name);
      Problem("model: ", name, ", which ", NameOf(node),
              " normalises by, is read by ", NameOf(other),
              " as well; each needs its own, which exporters merge where they "
              "are equal, and model.accept_merged cannot part them. Export "
              "the model in training mode and without optimisation (",
              kExportCall, "), or freeze ", name);
    }
    reported_[id] = true;
    return;
  }
}

void Resolver::CheckStatisticRule(const TrainingGraph::Parameter& parameter) {
  if (!parameter.momentum.has_value() || parameter.rule < 0) return;
  const InitializerRule& rule = spec_.model().initialize(parameter.rule);
  if (rule.scheme() == InitializerRule::ZEROS ||
      rule.scheme() == InitializerRule::CONSTANT) {
    return;
  }
  Problem("model.initialize[", parameter.rule,
          "].pattern: ", Quote(rule.pattern()), " fills ",
          Quote(parameter.name),
          ", a running mean or variance, with random numbers; put a rule "
          "before it: ZEROS for means, CONSTANT with value 1 for variances");
}

void Resolver::CheckNames() {
  for (const Initializer& initializer : graph_.initializers) {
    if (initializer.origin == Initializer::Origin::kConstant ||
        initializer.tensor.dtype != DType::kFloat32 ||
        NameOf(initializer) != kReservedName) {
      continue;
    }
    Problem("model: the weight ", Quote(kReservedName),
            " cannot be in trained.safetensors, a format that keeps this name "
            "for itself; rename it");
  }
}

void Resolver::ResolveParameters() {
  for (size_t i = 0; i < graph_.initializers.size(); ++i) {
    const Initializer& initializer = graph_.initializers[i];
    if (!plans_[i].fillable) {
      if (plans_[i].is_float) AddFixed(initializer, plans_[i].reason);
      continue;
    }
    const std::optional<float> momentum = momenta_[initializer.value];
    const bool is_reached = reached_[initializer.value] &&
                            plans_[i].reason != WeightReason::kStatistic;
    if (!is_reached && !momentum.has_value()) {
      AddFixed(initializer, WeightReason::kUnreached);
      if (initializer.origin == Initializer::Origin::kDeclared &&
          result_.loss_output != kNoValue && !loses_gradients_) {
        Problem("model.initialize[", plans_[i].rule, "].pattern: graph input ",
                Quote(NameOf(initializer)),
                " has no values in the file and does not influence the loss "
                "output");
      }
      continue;
    }
    if (ElementCount(initializer.tensor.dims) == 0) continue;
    TrainingGraph::Parameter parameter;
    parameter.value = initializer.value;
    parameter.name = NameOf(initializer);
    parameter.dims = initializer.tensor.dims;
    parameter.initializer = static_cast<int>(i);
    parameter.rule = plans_[i].rule;
    parameter.momentum = momentum;
    parameter.reason = plans_[i].reason;
    CheckStatisticRule(parameter);
    result_.parameters.push_back(std::move(parameter));
  }
  if (result_.parameters.empty() && spec_.tables().empty() &&
      result_.loss_output != kNoValue && !loses_gradients_) {
    Problem(
        "model: nothing to train: no float32 initializer that is not "
        "frozen influences ",
        Quote(value(result_.loss_output).name), DescribeUntrained());
  }
  if (result_.parameters.empty() && spec_.strategy() == HYBRID &&
      result_.loss_output != kNoValue && !loses_gradients_) {
    Problem("strategy: ", Strategy_Name(spec_.strategy()),
            ", but the model has no dense parameter to train; use "
            "PARAMETER_SERVER");
  }
}

void Resolver::AddFixed(const Initializer& initializer, WeightReason reason) {
  if (initializer.origin != Initializer::Origin::kFile) return;
  result_.fixed.push_back(
      {NameOf(initializer), initializer.tensor.dims, reason});
}

std::string Resolver::DescribeUntrained() const {
  std::vector<ValueId> ids;
  for (size_t i = 0; i < plans_.size(); ++i) {
    const ValueId id = graph_.initializers[i].value;
    const bool is_constant = plans_[i].is_float && !plans_[i].fillable &&
                             plans_[i].reason != WeightReason::kFrozen;
    if (is_constant && reached_[id]) ids.push_back(id);
  }
  if (ids.empty()) return "";
  return absl::StrCat(", but for ", DescribeNames(graph_, ids),
                      ", taken for constants; model.train names weights");
}

void Resolver::CheckMerged() {
  const auto missing = FindMissingParameters(model_);
  if (!missing.has_value()) {
    CheckMergedConstants();
    return;
  }
  if (spec_.model().accept_merged()) {
    result_.warnings.push_back(absl::StrCat(
        "model.accept_merged: ", missing->what,
        "; what the file has in their place is trained: merged ones as one, "
        "and what was folded away not at all"));
  } else if (missing->is_optimised) {
    is_merged_ = true;
    Problem("model: ", missing->what,
            ": the exporter has merged equal ones or folded them away, so it "
            "would not train as the original does. Export it with ",
            kExportCall,
            "; or train what the file has, with model.accept_merged: true "
            "(right if the model itself ties them or does not use them)");
  } else {
    result_.warnings.push_back(
        absl::StrCat("model: ", missing->what,
                     "; the model ties them to others or does not use them"));
  }
}

void Resolver::CheckLostGradients() {
  // A value that is only ever a setting, such as a limit of Clip, is no
  // parameter.
  std::vector<bool> has_gradient(graph_.values.size(), false);
  for (const Node& node : graph_.nodes) {
    const std::vector<bool> inputs = InputsWithGradient(graph_, node);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]) has_gradient[node.inputs[i]] = true;
    }
  }
  std::vector<bool> is_parameter(graph_.values.size(), false);
  for (size_t i = 0; i < plans_.size(); ++i) {
    const ValueId id = graph_.initializers[i].value;
    is_parameter[id] =
        plans_[i].fillable && has_gradient[id] && !momenta_[id].has_value();
  }
  for (const TrainingTable& table : result_.tables) {
    if (table.value != kNoValue) is_parameter[table.value] = true;
  }
  const auto lost =
      FindLostGradients(graph_, result_.loss_output, is_parameter);
  loses_gradients_ = !lost.empty();
  for (size_t i = 0; i < std::min(lost.size(), kNamesShown); ++i) {
    const Node& node = graph_.nodes[lost[i].node];
    const Value& at = value(lost[i].value);
    Problem("model: the gradient of ", Quote(value(lost[i].parameter).name),
            " would be lost at ", NameOf(node), ": its ",
            lost[i].is_output ? "output " : "input ", Quote(at.name),
            at.dtype == DType::kFloat32
                ? " has no gradient"
                : absl::StrCat(" is ", DTypeName(at.dtype),
                               ", and gradients are float32"),
            "; write the model without it, or freeze what comes before it "
            "(model.freeze)");
  }
}

void Resolver::CheckTrainedAreReached() {
  if (result_.loss_output == kNoValue) return;
  std::vector<bool> is_trained(spec_.model().train_size(), false);
  std::vector<const std::string*> unreached(is_trained.size(), nullptr);
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i].train < 0 || !plans_[i].fillable) continue;
    const ValueId id = graph_.initializers[i].value;
    if (reached_[id] || momenta_[id].has_value()) {
      is_trained[plans_[i].train] = true;
    } else {
      unreached[plans_[i].train] = &value(id).name;
    }
  }
  for (size_t t = 0; t < is_trained.size(); ++t) {
    if (is_trained[t] || unreached[t] == nullptr) continue;
    Problem("model.train[", t,
            "]: ", Quote(spec_.model().train(static_cast<int>(t))), " matches ",
            Quote(*unreached[t]), ", but no gradient of the loss reaches it");
  }
}

void Resolver::WarnOfSharedWeights() {
  if (!model_.export_record().parameters.empty()) return;
  const WeightUses uses(graph_);
  std::vector<ValueId> shared;
  for (const TrainingGraph::Parameter& parameter : result_.parameters) {
    const bool is_file = graph_.initializers[parameter.initializer].origin ==
                         Initializer::Origin::kFile;
    if (!is_file || parameter.momentum.has_value() ||
        uses.ReaderCount(parameter.value) < 2) {
      continue;
    }
    shared.push_back(parameter.value);
  }
  if (shared.empty()) return;
  result_.warnings.push_back(absl::StrCat(
      "model: weights that several nodes read are trained as one: ",
      shared.size(), " ", DescribeNames(graph_, shared),
      "; right if the model ties them, wrong if an exporter merged equal "
      "ones"));
}

// An option without effect is a mistake; so is a batch of each worker's own
// that is another one with another number of workers.
void Resolver::CheckFoldedStatistics() {
  if (result_.loss_output == kNoValue) return;
  const bool normalizes = absl::c_any_of(
      result_.parameters,
      [](const auto& parameter) { return parameter.momentum.has_value(); });
  if (normalizes && !spec_.training().sync_batch_statistics() &&
      (spec_.training().global_batch() > 0 ||
       (IsElastic(spec_) && !LeasesData(spec_)))) {
    problems_->push_back(absl::StrCat(
        spec_.training().global_batch() > 0   ? "training.global_batch"
        : spec_.resources().max_workers() > 0 ? "resources.max_workers"
                                              : "resources.min_workers",
        ": BatchNormalization takes each worker's own batch, whose size "
        "follows from the number of workers; set "
        "training.sync_batch_statistics, or freeze these layers "
        "(model.freeze)"));
  }
  if (!spec_.training().sync_batch_statistics() || normalizes) return;
  problems_->emplace_back(
      "training.sync_batch_statistics: no BatchNormalization before the loss "
      "output takes its batch's mean and variance in training; leave it out");
}

void Resolver::FindMixed() {
  result_.mixed_samples = FindMixedSamples(graph_, result_.loss_output);
  std::vector<std::string> mixed = result_.mixed_samples;
  const bool normalizes = absl::c_any_of(
      result_.parameters,
      [](const auto& parameter) { return parameter.momentum.has_value(); });
  if (normalizes && !spec_.training().sync_batch_statistics()) {
    mixed.emplace_back("BatchNormalization");
  }
  if (spec_.training().micro_batches() < 2 || OnlyEvaluates(spec_) ||
      mixed.empty()) {
    return;
  }
  result_.warnings.push_back(absl::StrCat(
      "training.micro_batches: ", DescribeMixed(mixed),
      " combines the samples of a batch, here of each part by itself: what is "
      "trained is not what whole batches would train. PyTorch's accumulation "
      "of gradients does the same"));
}

void Resolver::CheckMergedConstants() {
  const auto merged = FindMergedConstants(model_);
  if (!merged.has_value() || spec_.model().accept_merged()) return;
  is_merged_ = true;
  Problem("model: ", *merged,
          ": the exporter's optimiser merges them with constants that are "
          "equal before training. Export the model with ",
          kExportCall,
          "; or, if the model itself reads them several times, set "
          "model.accept_merged: true");
}

void Resolver::CheckFoldedParameters() {
  for (const std::string& line : model_.folded_parameters()) {
    if (spec_.model().accept_merged()) {
      result_.warnings.push_back(absl::StrCat("model.accept_merged: ", line));
      continue;
    }
    is_merged_ = true;
    Problem("model: ", line,
            "; or train what the file has, with model.accept_merged: true");
  }
}

}  // namespace

LengthDimension LengthOf(const LengthBuckets& buckets) {
  // Of an invalid job, which is still to be read for other problems, too.
  int64_t longest = 1;
  for (const uint32_t length : buckets.lengths()) {
    longest = std::max<int64_t>(longest, length);
  }
  return {buckets.dimension(), longest};
}

absl::StatusOr<std::shared_ptr<Model>> ParseJobModel(const JobSpec& spec,
                                                     absl::string_view bytes,
                                                     absl::string_view label) {
  std::vector<std::string> problems;
  auto model = ParseJobModelWithProblems(spec, bytes, label, &problems);
  if (problems.empty()) return model;
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

std::shared_ptr<Model> ParseJobModelWithProblems(
    const JobSpec& spec, absl::string_view bytes, absl::string_view label,
    std::vector<std::string>* problems) {
  std::vector<std::string> patterns;
  for (const InitializerRule& rule : spec.model().initialize()) {
    patterns.push_back(rule.pattern());
  }
  std::vector<std::string> tables;
  for (const TableSpec& table : spec.tables()) tables.push_back(table.name());
  auto model =
      Model::ParseWithProblems(bytes, label, patterns, tables, problems,
                               LengthOf(spec.data().buckets()));
  if (model == nullptr || !model->whole()) return model;
  std::vector<std::string> said_later;  // by ResolveTrainingGraph
  const std::vector<WeightPlan> plans = PlanWeights(spec, *model, &said_later);
  std::vector<int> numbers;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].is_float && !IsTrained(plans[i].reason)) {
      numbers.push_back(static_cast<int>(i));
    }
  }
  model->FuseAround(numbers);
  return model;
}

TrainingGraph ResolveTrainingGraph(const JobSpec& spec, const Model& model,
                                   std::vector<std::string>* problems) {
  return Resolver(spec, model, problems).Resolve();
}

}  // namespace syncline
