#include "common/model/loss_and_feeds.h"

#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/value_index.h"
#include "common/model/job_over_model.h"

namespace syncline {
namespace {

class LossResolver {
 public:
  LossResolver(const JobSpec& spec, const Model& model,
               std::vector<std::string>* problems)
      : spec_(spec), graph_(model.graph()), problems_(problems) {}

  ValueId Resolve();

 private:
  template <typename... Parts>
  void Problem(const Parts&... parts) {
    problems_->push_back(absl::StrCat(parts...));
  }
  const Value& value(ValueId id) const { return graph_.values[id]; }

  void CheckShape(const Value& output);
  // The scores to name in place of a loss that the graph computes itself.
  std::string NodeHint(const Value& output) const;
  // The node that makes `output` a batch of planes [N, channels, ...], where it
  // is one; else null.
  const Node* NodeOfPlanes(const Value& output) const;
  void CheckClasses(const std::string& output, int64_t count);

  const JobSpec& spec_;
  const Graph& graph_;
  std::vector<std::string>* const problems_;
};

ValueId LossResolver::Resolve() {
  ValueId output = kNoValue;
  const std::string& name = spec_.loss().output();
  if (name.empty()) {
    if (graph_.outputs.empty()) return kNoValue;  // the model's own problem
    if (graph_.outputs.size() != 1) {
      Problem("loss.output: the model has several outputs ",
              DescribeNames(graph_, graph_.outputs), "; name one");
      return kNoValue;
    }
    output = graph_.outputs[0];
  } else {
    const auto it = absl::c_find_if(
        graph_.outputs, [&](ValueId id) { return value(id).name == name; });
    if (it == graph_.outputs.end()) {
      Problem("loss.output: ", Quote(name),
              " is not an output of the model, which has ",
              DescribeNames(graph_, graph_.outputs));
      return kNoValue;
    }
    output = *it;
  }
  CheckShape(value(output));
  return output;
}

void LossResolver::CheckShape(const Value& output) {
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
            LossSpec::Kind_Name(kind), " needs ", wanted, NodeHint(output));
    return;
  }
  if (kind != LossSpec::SOFTMAX_CROSS_ENTROPY) return;
  if (const Node* node = NodeOfPlanes(output); rank >= 3 && node != nullptr) {
    Problem("loss.output: ", Quote(output.name), " is ",
            DescribeTensor(output.dtype, output.dims),
            " and has its classes in the second dimension, as ",
            DescribeNode(node->name, node->op_type, graph_.opset_version),
            " gives them, but ", LossSpec::Kind_Name(kind),
            " takes them from the last one; end the model with a Transpose "
            "that moves them there, as PyTorch's .permute(0, ",
            rank == 3   ? "2"
            : rank == 4 ? "2, 3"
                        : "2, ...",
            ", 1) is");
    return;
  }
  CheckClasses(output.name, width);
}

const Node* LossResolver::NodeOfPlanes(const Value& output) const {
  static constexpr absl::string_view kPlanes[] = {
      "AveragePool",  "BatchNormalization",    "Conv",    "ConvTranspose",
      "DepthToSpace", "InstanceNormalization", "MaxPool", "Resize",
      "Upsample"};
  static constexpr absl::string_view kSameLayout[] = {
      "Add",       "Cast", "Clip", "Dropout", "Identity",
      "LeakyRelu", "Mul",  "Relu", "Slice"};
  for (int producer = output.producer; producer >= 0;) {
    const Node& node = graph_.nodes[producer];
    if (absl::c_linear_search(kPlanes, node.op_type)) return &node;
    if (!absl::c_linear_search(kSameLayout, node.op_type)) return nullptr;
    producer = value(node.inputs[0]).producer;
  }
  return nullptr;
}

std::string LossResolver::NodeHint(const Value& output) const {
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

void LossResolver::CheckClasses(const std::string& output, int64_t count) {
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

class FeedResolver : private JobOverModel {
 public:
  using JobOverModel::JobOverModel;

  std::vector<ValueId> Resolve();

 private:
  // By ValueId: only nodes that the loss output does not depend on read it, as
  // the labels of a loss that the graph computes beside its scores.
  std::vector<bool> ReadInVain() const;
  void ReportNoInput(const std::string& path, const std::string& name,
                     const ValueIndex& index);
  void CheckFedInput(int feed, const Value& input);
};

std::vector<bool> FeedResolver::ReadInVain() const {
  std::vector<bool> in_vain(graph_.values.size(), false);
  if (!model_.whole() || loss_output_ == kNoValue) return in_vain;
  std::vector<bool> needed(graph_.values.size(), false);
  needed[loss_output_] = true;
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

std::vector<ValueId> FeedResolver::Resolve() {
  std::vector<ValueId> feeds;
  const std::vector<bool> in_vain = ReadInVain();
  absl::flat_hash_map<absl::string_view, ValueId> inputs;  // still unfed
  for (ValueId id : graph_.inputs) inputs[value(id).name] = id;
  std::optional<ValueIndex> index;  // when it is needed
  for (int i = 0; i < spec_.data().feeds_size(); ++i) {
    const std::string path = absl::StrCat("data.feeds[", i, "].input");
    const auto fed = inputs.extract(spec_.data().feeds(i).input());
    if (fed.empty()) {
      if (!index.has_value()) index.emplace(graph_);
      ReportNoInput(path, spec_.data().feeds(i).input(), *index);
      feeds.push_back(kNoValue);
    } else {
      CheckFedInput(i, value(fed.mapped()));
      feeds.push_back(fed.mapped());
    }
  }
  for (ValueId id : graph_.inputs) {
    if (!inputs.contains(value(id).name) || !value(id).known) continue;
    if (in_vain[id]) continue;
    Problem(
        "data.feeds: graph input ", Quote(value(id).name),
        " is not fed, and no rule of model.initialize makes it a parameter");
  }
  return feeds;
}

void FeedResolver::ReportNoInput(const std::string& path,
                                 const std::string& name,
                                 const ValueIndex& index) {
  const ValueId id = index.Find(name);
  const bool is_parameter = id != kNoValue && value(id).initializer >= 0;
  Problem(path, ": ", Quote(name),
          is_parameter ? " is an initializer" : " is not an input",
          " of the model, which takes ", DescribeNames(graph_, graph_.inputs));
}

void FeedResolver::CheckFedInput(int feed, const Value& input) {
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

}  // namespace

ValueId ResolveLossOutput(const JobSpec& spec, const Model& model,
                          std::vector<std::string>* problems) {
  return LossResolver(spec, model, problems).Resolve();
}

std::string DescribeDoubledActivation(const JobSpec& spec, const Model& model,
                                      ValueId loss_output) {
  static constexpr absl::string_view kViews[] = {
      "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"};
  const LossSpec::Kind loss = spec.loss().kind();
  const absl::string_view doubled =
      loss == LossSpec::SOFTMAX_CROSS_ENTROPY   ? "Softmax"
      : loss == LossSpec::SIGMOID_CROSS_ENTROPY ? "Sigmoid"
                                                : "";
  const Graph& graph = model.graph();
  for (ValueId v = loss_output; v != kNoValue;) {
    if (graph.values[v].producer < 0) break;
    const Node& node = graph.nodes[graph.values[v].producer];
    if (node.op_type == doubled) {
      return absl::StrCat(
          "loss: ", LossSpec::Kind_Name(loss), " computes the ", doubled,
          " itself, but '", graph.values[loss_output].name,
          "' is one already, ",
          DescribeNode(node.name, node.op_type, graph.opset_version),
          "; name its input in loss.output, or export the model without it");
    }
    v = absl::c_linear_search(kViews, node.op_type) ? node.inputs[0] : kNoValue;
  }
  return "";
}

std::vector<ValueId> ResolveFeeds(const JobSpec& spec, const Model& model,
                                  ValueId loss_output,
                                  std::vector<std::string>* problems) {
  return FeedResolver(spec, model, loss_output, problems).Resolve();
}

}  // namespace syncline
