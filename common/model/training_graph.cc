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
#include "common/model/schemas.h"

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
    MatchPatterns();
    CheckPatterns();
    if (!whole) return std::move(result_);
    MarkReached();
    MarkStatistics();
    CheckNames();
    ResolveParameters();
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
  // What the job's patterns say about one initializer.
  struct Match {
    bool fillable = false;  // a rule may fill it, gradients aside
    int rule = -1;          // the first that matches
  };
  // What the model's names say about one pattern.
  struct PatternUse {
    bool matches = false;
    bool wins = false;  // is the first one for some initializer
  };

  // ('a', 'b', ...), for messages.
  std::string Names(absl::Span<const ValueId> ids) const;
  std::string InitializerNames() const;

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
  // Lays the patterns of model.initialize and model.freeze over the
  // initializers.
  void MatchPatterns();
  void MatchFreezes(const Initializer& initializer, Match* match);
  void MatchRules(const Initializer& initializer, Match* match);
  void CheckPatterns();
  // Marks the values that a gradient of the loss reaches.
  void MarkReached();
  // Marks the running means and variances of batch normalisation.
  void MarkStatistics();
  void MarkStatistic(const Node& node, size_t input);
  void CheckStatisticRule(const TrainingGraph::Parameter& parameter);
  bool IsFillable(ValueId id) const;
  // Of weights in the results.
  void CheckNames();
  void ResolveParameters();
  void CheckFoldedStatistics();
  bool IsTable(const Initializer& initializer) const;
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
  std::vector<Match> matches_;                 // by Graph::initializers index
  std::vector<PatternUse> rule_uses_;          // by ModelSpec.initialize index
  std::vector<PatternUse> freeze_uses_;        // by ModelSpec.freeze index
  std::vector<bool> reached_;                  // by ValueId
  std::vector<std::optional<float>> momenta_;  // by ValueId: of statistics
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

std::string Resolver::InitializerNames() const {
  std::vector<ValueId> ids;
  for (const Initializer& initializer : graph_.initializers) {
    if (initializer.origin == Initializer::Origin::kConstant) continue;
    ids.push_back(initializer.value);
  }
  return Names(ids);
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
  if (input.dims.empty() || input.dims[0] != kBatchDim) {
    Problem(path, ": ", Quote(input.name), " is ", DimsToString(input.dims),
            ", but its first dimension must be open, because batches differ in "
            "size; export the model with a symbolic first dimension");
  }
}

void Resolver::MarkReached() {
  reached_.assign(graph_.values.size(), false);
  if (result_.loss_output == kNoValue) return;
  reached_[result_.loss_output] = true;
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    const bool on_path = absl::c_any_of(node->outputs, [&](ValueId id) {
      return id != kNoValue && reached_[id];
    });
    if (!on_path) continue;
    const size_t trained = std::min<size_t>(
        FindOperator(node->op_type)->trained_inputs, node->inputs.size());
    for (size_t i = 0; i < trained; ++i) {
      const ValueId id = node->inputs[i];
      // Through integers no gradient flows.
      if (id != kNoValue && value(id).dtype == DType::kFloat32) {
        reached_[id] = true;
      }
    }
  }
}

bool Resolver::IsFillable(ValueId id) const {
  return value(id).initializer >= 0 && matches_[value(id).initializer].fillable;
}

void Resolver::MarkStatistics() {
  momenta_.resize(graph_.values.size());
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
  for (const Node& other : graph_.nodes) {
    if (absl::c_count(other.inputs, id) == (&other == &node ? 1 : 0)) continue;
    Problem("model: ", name, ", which ", NameOf(node),
            " normalises by, is read by ", NameOf(other),
            " as well; each needs its own. Export the model in training mode, ",
            "or freeze ", name);
    return;
  }
  momenta_[id] = node.Float("momentum", 0.9f);
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
    if (!matches_[i].fillable) continue;
    const std::optional<float> momentum = momenta_[initializer.value];
    if (!reached_[initializer.value] && !momentum.has_value()) {
      if (initializer.origin == Initializer::Origin::kDeclared &&
          result_.loss_output != kNoValue) {
        Problem("model.initialize[", matches_[i].rule,
                "].pattern: graph input ", Quote(NameOf(initializer)),
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
    parameter.rule = matches_[i].rule;
    parameter.momentum = momentum;
    CheckStatisticRule(parameter);
    result_.parameters.push_back(std::move(parameter));
  }
  if (result_.parameters.empty() && spec_.tables().empty() &&
      result_.loss_output != kNoValue) {
    Problem(
        "model: nothing to train: no float32 initializer that is not "
        "frozen influences ",
        Quote(value(result_.loss_output).name));
  }
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

// A table has rows by key instead of values, and a rule of its own for them.
bool Resolver::IsTable(const Initializer& initializer) const {
  return absl::c_any_of(spec_.tables(), [&](const TableSpec& table) {
    return table.name() == NameOf(initializer);
  });
}

void Resolver::MatchPatterns() {
  matches_.resize(graph_.initializers.size());
  rule_uses_.resize(spec_.model().initialize_size());
  freeze_uses_.resize(spec_.model().freeze_size());
  for (size_t i = 0; i < graph_.initializers.size(); ++i) {
    const Initializer& initializer = graph_.initializers[i];
    if (initializer.origin == Initializer::Origin::kConstant) continue;
    if (IsTable(initializer)) continue;
    matches_[i].fillable = initializer.tensor.dtype == DType::kFloat32;
    MatchFreezes(initializer, &matches_[i]);
    if (matches_[i].fillable) MatchRules(initializer, &matches_[i]);
  }
}

void Resolver::MatchFreezes(const Initializer& initializer, Match* match) {
  for (int f = 0; f < spec_.model().freeze_size(); ++f) {
    if (!MatchesPattern(spec_.model().freeze(f), NameOf(initializer))) continue;
    freeze_uses_[f].matches = true;
    if (initializer.origin == Initializer::Origin::kDeclared) {
      Problem("model.freeze[", f, "]: ", Quote(NameOf(initializer)),
              " has no values in the file, so it cannot be frozen");
    } else {
      match->fillable = false;
    }
  }
}

void Resolver::MatchRules(const Initializer& initializer, Match* match) {
  for (int r = 0; r < spec_.model().initialize_size(); ++r) {
    const std::string& pattern = spec_.model().initialize(r).pattern();
    if (!MatchesPattern(pattern, NameOf(initializer))) continue;
    rule_uses_[r].matches = true;
    if (match->rule >= 0) continue;
    match->rule = r;
    rule_uses_[r].wins = true;
  }
}

void Resolver::CheckPatterns() {
  for (size_t r = 0; r < rule_uses_.size(); ++r) {
    const std::string pattern =
        Quote(spec_.model().initialize(static_cast<int>(r)).pattern());
    if (!rule_uses_[r].matches) {
      Problem("model.initialize[", r, "].pattern: ", pattern,
              " matches no initializer that can be trained ",
              InitializerNames());
    } else if (!rule_uses_[r].wins) {
      Problem("model.initialize[", r, "].pattern: ", pattern,
              " matches only initializers that an earlier rule fills");
    }
  }
  for (size_t f = 0; f < freeze_uses_.size(); ++f) {
    if (freeze_uses_[f].matches) continue;
    Problem("model.freeze[", f,
            "]: ", Quote(spec_.model().freeze(static_cast<int>(f))),
            " matches no initializer ", InitializerNames());
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
