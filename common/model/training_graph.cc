#include "common/model/training_graph.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/model/describe.h"
#include "common/model/schemas.h"

namespace syncline {
namespace {

constexpr size_t kNamesShown = 8;

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
    MarkTrained();
    ResolveParameters();
    CheckRules();
    CheckFreezes();
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
  // ('a', 'b', ...), for messages.
  std::string Names(absl::Span<const ValueId> ids) const;
  std::string InitializerNames() const;

  void ResolveLossOutput();
  void CheckLossShape(const Value& output);
  void ResolveFeeds();
  ValueId ResolveFeed(const std::string& path, const Feed& feed);
  // Marks the initializers that a gradient of the loss reaches.
  void MarkTrained();
  void ResolveParameters();
  void CheckRules();
  void CheckFreezes();
  void CheckBatchSizes();

  bool IsFrozen(const std::string& name) const {
    return absl::c_any_of(spec_.model().freeze(), [&](const auto& pattern) {
      return MatchesPattern(pattern, name);
    });
  }
  // Whether a rule may fill it, gradients aside.
  bool IsFillable(const Initializer& initializer) const {
    return initializer.origin != Initializer::Origin::kConstant &&
           initializer.tensor.dtype == DType::kFloat32 &&
           !IsFrozen(NameOf(initializer));
  }
  // Index of the first rule whose pattern matches; -1 if none does.
  int RuleFor(const std::string& name) const {
    for (int i = 0; i < spec_.model().initialize_size(); ++i) {
      if (MatchesPattern(spec_.model().initialize(i).pattern(), name)) return i;
    }
    return -1;
  }

  const JobSpec& spec_;
  const Model& model_;
  const Graph& graph_;
  std::vector<std::string>* const problems_;
  TrainingGraph result_;
  std::vector<bool> reached_;  // by ValueId
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
  const size_t rank = output.dims.size();
  const bool per_sample = rank >= 1 && output.dims[0] == kBatchDim;
  const int64_t width = rank == 2 ? output.dims[1] : 1;
  const LossSpec::Kind kind = spec_.loss().kind();
  bool fits = output.dtype == DType::kFloat32 && per_sample && rank <= 2;
  absl::string_view wanted = "float32[N,n] or [N]";
  if (kind == LossSpec::SOFTMAX_CROSS_ENTROPY) {
    wanted = "float32[N,classes] with at least 2 classes";
    fits = fits && rank == 2 && width >= 2;
  } else if (kind == LossSpec::SIGMOID_CROSS_ENTROPY) {
    wanted = "float32[N,1] or [N]";
    fits = fits && width == 1;
  } else {
    fits = fits && width >= 1;
  }
  if (!fits) {
    Problem("loss.output: ", Quote(output.name), " is ",
            DescribeTensor(output.dtype, output.dims), ", but ",
            LossSpec::Kind_Name(kind), " needs ", wanted);
    return;
  }
  const int classes = spec_.data().label().classes_size();
  if (kind == LossSpec::SOFTMAX_CROSS_ENTROPY && classes != 0 &&
      classes != width) {
    Problem("data.label.classes: ", classes, " values, but ",
            Quote(output.name), " has ", width, " classes");
  }
}

void Resolver::ResolveFeeds() {
  for (int i = 0; i < spec_.data().feeds_size(); ++i) {
    result_.feeds.push_back(ResolveFeed(
        absl::StrCat("data.feeds[", i, "].input"), spec_.data().feeds(i)));
  }
  for (ValueId id : graph_.inputs) {
    if (absl::c_linear_search(result_.feeds, id)) continue;
    Problem(
        "data.feeds: graph input ", Quote(value(id).name),
        " is not fed, and no rule of model.initialize makes it a parameter");
  }
}

ValueId Resolver::ResolveFeed(const std::string& path, const Feed& feed) {
  const auto it = absl::c_find_if(graph_.inputs, [&](ValueId id) {
    return value(id).name == feed.input();
  });
  if (it == graph_.inputs.end()) {
    const ValueId id = graph_.FindValue(feed.input());
    const bool is_parameter = id != kNoValue && value(id).initializer >= 0;
    Problem(path, ": ", Quote(feed.input()),
            is_parameter ? " is an initializer" : " is not an input",
            " of the model, which takes ", Names(graph_.inputs));
    return kNoValue;
  }
  const Value& input = value(*it);
  if (input.dtype != DType::kFloat32) {
    Problem(path, ": ", Quote(input.name), " is ", DTypeName(input.dtype),
            ", but feeds are float32");
  }
  if (input.dims.empty() || input.dims[0] != kBatchDim) {
    Problem(path, ": ", Quote(input.name), " is ", DimsToString(input.dims),
            ", but its first dimension must be open, because batches differ in "
            "size; export the model with a symbolic first dimension");
  }
  return *it;
}

void Resolver::MarkTrained() {
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
      if (node->inputs[i] != kNoValue) reached_[node->inputs[i]] = true;
    }
  }
}

void Resolver::ResolveParameters() {
  for (size_t i = 0; i < graph_.initializers.size(); ++i) {
    const Initializer& initializer = graph_.initializers[i];
    if (!IsFillable(initializer) || !reached_[initializer.value] ||
        ElementCount(initializer.tensor.dims) == 0) {
      continue;
    }
    TrainingGraph::Parameter parameter;
    parameter.value = initializer.value;
    parameter.name = NameOf(initializer);
    parameter.dims = initializer.tensor.dims;
    parameter.initializer = static_cast<int>(i);
    parameter.rule = RuleFor(parameter.name);
    result_.parameters.push_back(std::move(parameter));
  }
  // Without the loss output nothing can be said.
  if (result_.loss_output == kNoValue) return;
  if (result_.parameters.empty()) {
    Problem(
        "model: nothing to train: no float32 initializer that is not "
        "frozen influences ",
        Quote(value(result_.loss_output).name));
  }
  for (const Initializer& initializer : graph_.initializers) {
    if (initializer.origin != Initializer::Origin::kDeclared ||
        reached_[initializer.value]) {
      continue;
    }
    Problem("model.initialize[", RuleFor(NameOf(initializer)),
            "].pattern: graph input ", Quote(NameOf(initializer)),
            " has no values in the file and does not influence the loss "
            "output");
  }
}

void Resolver::CheckRules() {
  for (int i = 0; i < spec_.model().initialize_size(); ++i) {
    const std::string& pattern = spec_.model().initialize(i).pattern();
    bool matches = false;
    bool wins = false;
    for (const Initializer& initializer : graph_.initializers) {
      const std::string& name = NameOf(initializer);
      if (!IsFillable(initializer) || !MatchesPattern(pattern, name)) continue;
      matches = true;
      wins |= RuleFor(name) == i;
    }
    if (!matches) {
      Problem("model.initialize[", i, "].pattern: ", Quote(pattern),
              " matches no initializer that can be trained ",
              InitializerNames());
    } else if (!wins) {
      Problem("model.initialize[", i, "].pattern: ", Quote(pattern),
              " matches only initializers that an earlier rule fills");
    }
  }
}

void Resolver::CheckFreezes() {
  for (int i = 0; i < spec_.model().freeze_size(); ++i) {
    const std::string& pattern = spec_.model().freeze(i);
    bool matches = false;
    for (const Initializer& initializer : graph_.initializers) {
      const std::string& name = NameOf(initializer);
      if (initializer.origin == Initializer::Origin::kConstant ||
          !MatchesPattern(pattern, name)) {
        continue;
      }
      matches = true;
      if (initializer.origin == Initializer::Origin::kDeclared) {
        Problem("model.freeze[", i, "]: ", Quote(name),
                " has no values in the file, so it cannot be frozen");
      }
    }
    if (!matches) {
      Problem("model.freeze[", i, "]: ", Quote(pattern),
              " matches no initializer ", InitializerNames());
    }
  }
}

// Shapes fit for every batch size once they fit for one (Model::Parse); what
// can still be wrong with a particular one is its size.
void Resolver::CheckBatchSizes() {
  const bool open = absl::c_all_of(graph_.inputs, [&](ValueId id) {
    return !value(id).dims.empty() && value(id).dims[0] == kBatchDim;
  });
  if (!open) return;  // reported by ResolveFeeds
  const std::pair<const char*, int64_t> sizes[] = {
      {"training.batch_size", spec_.training().batch_size()},
      {"training.eval_batch_size", spec_.training().eval_batch_size()}};
  for (const auto& [path, size] : sizes) {
    const auto shapes = model_.InferShapes(size);
    if (shapes.ok()) continue;
    for (absl::string_view line :
         absl::StrSplit(shapes.status().message(), '\n')) {
      Problem(path, ": ", line);
    }
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Model>> ParseJobModel(
    const JobSpec& spec, absl::string_view bytes, absl::string_view label) {
  std::vector<std::string> patterns;
  for (const InitializerRule& rule : spec.model().initialize()) {
    patterns.push_back(rule.pattern());
  }
  return Model::Parse(bytes, label, patterns);
}

TrainingGraph ResolveTrainingGraph(const JobSpec& spec, const Model& model,
                                   std::vector<std::string>* problems) {
  return Resolver(spec, model, problems).Resolve();
}

}  // namespace syncline
