#include "common/model/training_graph.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/model/describe.h"
#include "common/model/export_record.h"
#include "common/model/gradient_flow.h"
#include "common/model/merged_model.h"
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
    ResolveLossOutput();
    ResolveFeeds();
    const bool whole = model_.whole();
    // A bad node may read nothing, and nobody knows what it lets through.
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
    CheckFoldedStatistics();
    CheckBuckets();
    CheckBatchSizes();
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
  // ('a', 'b', ...), for messages.
  std::string Names(absl::Span<const ValueId> ids) const;

  void ResolveLossOutput();
  void CheckLossShape(const Value& output);
  // What to name in place of a loss that the graph computes itself.
  std::string LossNodeHint(const Value& output) const;
  void CheckClasses(const std::string& output, int64_t count);
  void ResolveFeeds();
  // By ValueId: only nodes that the loss output does not depend on read it, as
  // the labels of a loss that the graph computes beside its scores.
  std::vector<bool> ReadInVain() const;
  void ReportNoInput(const std::string& path, const std::string& name);
  void CheckFedInput(int feed, const Value& input);
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
  // What would be trained if it were not taken for a constant.
  std::string DescribeUntrained() const;
  // Parameters of the PyTorch model that the file does not have.
  void CheckMerged();
  // Likewise merged, with constants.
  void CheckMergedConstants();
  // What PyTorch's older exporter has in their place.
  void CheckFoldedParameters();
  void CheckLostGradients();
  // Patterns of model.train must make something a parameter.
  void CheckTrainedAreReached();
  // Where the file does not say whether the model itself shares them.
  void WarnOfSharedWeights();
  void CheckFoldedStatistics();
  // Of each length, where batches have several.
  void CheckBatchSizes();
  void CheckShapes(const std::string& path, int64_t batch_size, int64_t length);
  void CheckBuckets();
  // What the loss takes may depend on the length in its positions only, which
  // must not become fewer as it grows; true if it does. `score_count` is
  // the length's before, and becomes this one's.
  bool CheckPositions(const std::string& path, int64_t length,
                      int64_t* score_count);

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

std::string Resolver::Names(absl::Span<const ValueId> ids) const {
  std::vector<std::string> names;
  for (ValueId id : ids) {
    if (names.size() == kNamesShown) {
      names.push_back("...");
      break;
    }
    names.push_back(Quote(value(id).name));
  }
  return names.empty() ? "(none)"
                       : absl::StrCat("(", absl::StrJoin(names, ", "), ")");
}

void Resolver::ResolveLossOutput() {
  const std::string& name = spec_.loss().output();
  if (name.empty()) {
    if (graph_.outputs.empty()) return;  // the model's own problem
    if (graph_.outputs.size() != 1) {
      Problem("loss.output: the model has several outputs ",
              Names(graph_.outputs), "; name one");
      return;
    }
    result_.loss_output = graph_.outputs[0];
  } else {
    const auto it = absl::c_find_if(
        graph_.outputs, [&](ValueId id) { return value(id).name == name; });
    if (it == graph_.outputs.end()) {
      Problem("loss.output: ", Quote(name),
              " is not an output of the model, which has ",
              Names(graph_.outputs));
      return;
    }
    result_.loss_output = *it;
  }
  CheckLossShape(value(result_.loss_output));
}

void Resolver::CheckLossShape(const Value& output) {
  if (!output.known) return;
  const size_t rank = output.dims.size();
  const bool per_sample = rank >= 1 && output.dims[0] == kBatchDim;
  const int64_t width = rank >= 2 ? output.dims.back() : 1;
  const LossSpec::Kind kind = spec_.loss().kind();
  if (kind == LossSpec::KIND_UNSPECIFIED || !LossSpec::Kind_IsValid(kind)) {
    return;
  }
  bool fits = output.dtype == DType::kFloat32 && per_sample;
  absl::string_view wanted = "float32[N,n] or [N]";
  if (kind == LossSpec::SOFTMAX_CROSS_ENTROPY) {
    wanted = "float32[N,classes] or [N,...,classes] with at least 2 classes";
    const bool fixed =
        rank >= 2 && absl::c_all_of(absl::MakeConstSpan(output.dims).subspan(1),
                                    [](int64_t dim) { return dim > 0; });
    fits = fits && fixed && width >= 2;
  } else if (kind == LossSpec::SIGMOID_CROSS_ENTROPY) {
    wanted = "float32[N,1] or [N]";
    fits = fits && rank <= 2 && width == 1;
  } else {
    fits = fits && rank <= 2 && width >= 1;
  }
  if (!fits) {
    Problem("loss.output: ", Quote(output.name), " is ",
            DescribeTensor(output.dtype, output.dims), ", but ",
            LossSpec::Kind_Name(kind), " needs ", wanted, LossNodeHint(output));
    return;
  }
  if (kind == LossSpec::SOFTMAX_CROSS_ENTROPY) CheckClasses(output.name, width);
}

std::string Resolver::LossNodeHint(const Value& output) const {
  if (output.producer < 0) return "";
  const Node& node = graph_.nodes[output.producer];
  if (node.op_type != "SoftmaxCrossEntropyLoss" &&
      node.op_type != "NegativeLogLikelihoodLoss") {
    return "";
  }
  return absl::StrCat("; it is the result of a ", node.op_type,
                      " node, but the job computes the loss itself: make the "
                      "scores ",
                      Quote(value(node.inputs[0]).name),
                      " an output of the model and name them here");
}

void Resolver::CheckClasses(const std::string& output, int64_t count) {
  const int named = spec_.data().label().classes_size();
  if (named != 0 && named != count) {
    Problem("data.label.classes: ", named, " values, but ", Quote(output),
            " has ", count, " classes");
  }
  for (int i = 0; i < spec_.metrics_size(); ++i) {
    const Metric metric = spec_.metrics(i);
    const bool binary =
        metric == AUC || metric == CALIBRATION || metric == MEAN_SQUARED_ERROR;
    if (binary && count != 2) {
      Problem("metrics[", i, "]: ", Metric_Name(metric),
              " is for 2 classes, but ", Quote(output), " has ", count);
    }
    if (metric == TOP5_ACCURACY && count <= 5) {
      Problem("metrics[", i,
              "]: TOP5_ACCURACY is for more than 5 classes, but ",
              Quote(output), " has ", count);
    }
  }
}

std::vector<bool> Resolver::ReadInVain() const {
  std::vector<bool> in_vain(graph_.values.size(), false);
  if (!model_.whole() || result_.loss_output == kNoValue) return in_vain;
  std::vector<bool> needed(graph_.values.size(), false);
  needed[result_.loss_output] = true;
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    const bool runs = absl::c_any_of(node->outputs, [&](ValueId id) {
      return id != kNoValue && needed[id];
    });
    for (const ValueId id : node->inputs) {
      if (id != kNoValue) (runs ? needed : in_vain)[id] = true;
    }
  }
  for (size_t id = 0; id < needed.size(); ++id) {
    if (needed[id]) in_vain[id] = false;
  }
  return in_vain;
}

void Resolver::ResolveFeeds() {
  const std::vector<bool> in_vain = ReadInVain();
  absl::flat_hash_map<absl::string_view, ValueId> inputs;  // still unfed
  for (ValueId id : graph_.inputs) inputs[value(id).name] = id;
  for (int i = 0; i < spec_.data().feeds_size(); ++i) {
    const std::string path = absl::StrCat("data.feeds[", i, "].input");
    const auto fed = inputs.extract(spec_.data().feeds(i).input());
    if (fed.empty()) {
      ReportNoInput(path, spec_.data().feeds(i).input());
      result_.feeds.push_back(kNoValue);
    } else {
      CheckFedInput(i, value(fed.mapped()));
      result_.feeds.push_back(fed.mapped());
    }
  }
  for (ValueId id : graph_.inputs) {
    if (!inputs.contains(value(id).name) || !value(id).known) continue;
    if (in_vain[id]) continue;
    Problem(
        "data.feeds: graph input ", Quote(value(id).name),
        " is not fed, and no rule of model.initialize makes it a parameter");
  }
}

void Resolver::ReportNoInput(const std::string& path, const std::string& name) {
  const ValueId id = graph_.FindValue(name);
  const bool is_parameter = id != kNoValue && value(id).initializer >= 0;
  Problem(path, ": ", Quote(name),
          is_parameter ? " is an initializer" : " is not an input",
          " of the model, which takes ", Names(graph_.inputs));
}

void Resolver::CheckFedInput(int feed, const Value& input) {
  if (!input.known) return;
  const Feed& spec = spec_.data().feeds(feed);
  const std::string path = absl::StrCat("data.feeds[", feed, "].input");
  if (input.dtype != DType::kFloat32 && input.dtype != DType::kInt64) {
    Problem(path, ": ", Quote(input.name), " is ", DTypeName(input.dtype),
            ", but feeds are float32 or int64");
  }
  if (input.dtype == DType::kInt64 &&
      (spec.scale() != 1 || spec.offset() != 0)) {
    Problem("data.feeds[", feed, "]: scale and offset are for float32, but ",
            Quote(input.name), " is int64");
  }
  if (input.dtype == DType::kFloat32 && spec.padding() != 0) {
    Problem("data.feeds[", feed, "].padding: is for int64, but ",
            Quote(input.name), " is float32, which is padded with 0");
  }
  if (spec_.data().train().has_csv() && spec.padding() != 0 &&
      !input.dims.empty() &&
      ElementCount(absl::MakeConstSpan(input.dims).subspan(1)) == 1) {
    Problem("data.feeds[", feed, "].padding: is for lists, but ",
            Quote(input.name), " takes one value a sample");
  }
  const auto per_sample =
      absl::MakeConstSpan(input.dims).subspan(input.dims.empty() ? 0 : 1);
  const bool is_fixed =
      absl::c_all_of(per_sample, [](int64_t dim) { return dim >= 0; });
  const Dims reshape(spec.reshape().begin(), spec.reshape().end());
  if (!reshape.empty() && is_fixed &&
      ElementCount(reshape) != ElementCount(per_sample)) {
    Problem("data.feeds[", feed, "].reshape: ", DimsToString(reshape), " has ",
            ElementCount(reshape), " values, but ", Quote(input.name),
            " takes ", ElementCount(per_sample), " a sample");
  }
  if (input.dims.empty() || input.dims[0] != kBatchDim) {
    Problem(path, ": ", Quote(input.name), " is ", DimsToString(input.dims),
            ", but its first dimension must be open, because batches differ in "
            "size; export the model with a symbolic first dimension");
  }
}

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
  }
}

// Only what one node alone normalises by can follow that node's batches.
void Resolver::MarkStatistic(const Node& node, size_t input) {
  const ValueId id = node.inputs[input];
  const std::string name = Quote(value(id).name);
  if (value(id).producer >= 0 && !value(id).folded) {
    Problem("model: ", NameOf(node), " normalises by ", name,
            ", which is computed; it must be an initializer, so that training "
            "can keep it there. Export the model in training mode");
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
  return absl::StrCat(", but for ", Names(ids),
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
  // What is only ever a setting, as a limit of Clip, is no parameter.
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
      shared.size(), " ", Names(shared),
      "; right if the model ties them, wrong if an exporter merged equal "
      "ones"));
}

// An option without effect is a mistake.
void Resolver::CheckFoldedStatistics() {
  if (!spec_.training().sync_batch_statistics() ||
      result_.loss_output == kNoValue ||
      absl::c_any_of(result_.parameters, [](const auto& parameter) {
        return parameter.momentum.has_value();
      })) {
    return;
  }
  problems_->emplace_back(
      "training.sync_batch_statistics: no BatchNormalization before the loss "
      "output takes its batch's mean and variance in training; leave it out");
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

// Shapes fit for every batch size once they fit for one (Model::Parse); what
// can still be wrong with a particular one is its size.
void Resolver::CheckBatchSizes() {
  const bool open = absl::c_all_of(graph_.inputs, [&](ValueId id) {
    return !value(id).dims.empty() && value(id).dims[0] == kBatchDim;
  });
  if (!open) return;  // reported by ResolveFeeds
  CheckShapes("training.batch_size", spec_.training().batch_size(), 0);
  CheckShapes("training.eval_batch_size", spec_.training().eval_batch_size(),
              0);
}

void Resolver::CheckShapes(const std::string& path, int64_t batch_size,
                           int64_t length) {
  const auto shapes = model_.InferShapes(batch_size, length);
  if (shapes.ok()) return;
  for (absl::string_view line :
       absl::StrSplit(shapes.status().message(), '\n')) {
    Problem(path, ": ", line);
  }
}

// Shapes that fit for the longest need not fit for others.
void Resolver::CheckBuckets() {
  if (!spec_.data().has_buckets()) return;
  const LengthBuckets& buckets = spec_.data().buckets();
  const bool is_there = absl::c_any_of(
      graph_.inputs, [&](ValueId id) { return value(id).length_mask != 0; });
  if (!is_there) {
    Problem("data.buckets.dimension: ", Quote(buckets.dimension()),
            " is no symbolic dimension of the model's inputs ",
            Names(graph_.inputs));
    return;
  }
  bool positions_vary = false;
  int64_t score_count = 0;
  for (int i = 0; i < buckets.lengths_size(); ++i) {
    const std::string path = absl::StrCat("data.buckets.lengths[", i, "]");
    const size_t before = problems_->size();
    const uint32_t length = buckets.lengths(i);
    CheckShapes(path, spec_.training().batch_size(), length);
    if (problems_->size() > before || result_.loss_output == kNoValue) continue;
    positions_vary |= CheckPositions(path, length, &score_count);
  }
  if (!positions_vary || spec_.data().label().has_ignore()) return;
  Problem("data.label.ignore: is required: the number of labels of ",
          Quote(value(result_.loss_output).name),
          " depends on data.buckets, and what follows a sample's own must not "
          "count");
}

bool Resolver::CheckPositions(const std::string& path, int64_t length,
                              int64_t* score_count) {
  const int64_t batch_size = spec_.training().batch_size();
  const auto shapes = model_.InferShapes(batch_size, length);
  const auto at_longest = model_.InferShapes(batch_size);
  if (!shapes.ok() || !at_longest.ok()) return false;
  const std::string& name = value(result_.loss_output).name;
  const Dims& scores = (*shapes)[result_.loss_output];
  const Dims& longest = (*at_longest)[result_.loss_output];
  const bool is_same = scores == longest;
  const bool fits =
      is_same || (spec_.loss().kind() == LossSpec::SOFTMAX_CROSS_ENTROPY &&
                  scores.size() > 1 && scores.front() == longest.front() &&
                  scores.back() == longest.back());
  if (!fits) {
    Problem(path, ": the scores ", Quote(name), " of a batch are ",
            DimsToString(scores), ", but ", DimsToString(longest),
            " at the longest; only the positions of SOFTMAX_CROSS_ENTROPY may "
            "depend on the length");
    return false;
  }
  const int64_t shorter = std::exchange(*score_count, ElementCount(scores));
  if (*score_count >= shorter) return !is_same;
  Problem(path, ": the scores ", Quote(name), " of a batch are ",
          DimsToString(scores),
          ", fewer than those of shorter samples; a longer sample must not "
          "have fewer positions");
  return false;
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
  return Model::ParseWithProblems(bytes, label, patterns, tables, problems,
                                  LengthOf(spec.data().buckets()));
}

TrainingGraph ResolveTrainingGraph(const JobSpec& spec, const Model& model,
                                   std::vector<std::string>* problems) {
  return Resolver(spec, model, problems).Resolve();
}

}  // namespace syncline
