#include "common/model/start_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/job/name_rule.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/graph.h"

namespace syncline {
namespace {

constexpr char kField[] = "start.weights";
// Of a list in a message.
constexpr size_t kNamesMax = 20;
// Bytes of all patterns times bytes of all names: the matching takes no more
// steps, which is some seconds.
constexpr double kMatchingMax = 1e10;
// PyTorch's exporter gives the transposed weight of a Linear layer that becomes
// a MatMul such a name.
constexpr char kTransposedName[] = "onnx::MatMul_";
// A count that BatchNormalization keeps in PyTorch and that no ONNX file has.
constexpr char kBatchesTracked[] = "num_batches_tracked";

std::string Names(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesMax);
  std::string text = absl::StrJoin(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", ",
      [](std::string* out, const std::string& name) {
        absl::StrAppend(out, Quote(name));
      });
  if (shown < names.size()) {
    absl::StrAppend(&text, " and ", names.size() - shown, " more");
  }
  return text;
}

std::string SquareProblem(const std::string& in_model,
                          const std::string& in_file) {
  return absl::StrCat(
      Quote(in_model), ", a square, is transposed in the model by PyTorch's ",
      "exporter, and ", Quote(in_file), " of the file is not; write it ",
      "transposed and under the model's name");
}

class Matching {
 public:
  Matching(const JobSpec& spec, const TrainingGraph& graph,
           absl::Span<const FileTensor> tensors,
           std::vector<std::string>* problems)
      : start_(spec.start()),
        graph_(graph),
        tensors_(tensors),
        problems_(*problems),
        used_(tensors.size()) {}

  WeightSources Run() {
    if (!CanBeMatched()) return {};
    NameTensors();
    for (const TrainingGraph::Parameter& parameter : graph_.parameters) {
      const int tensor = Find(parameter.name, parameter.dims);
      sources_.parameters.push_back(tensor);
      if (!by_name_.contains(parameter.name)) {
        missing_.push_back(parameter.name);
      }
    }
    for (const TrainingGraph::Fixed& fixed : graph_.fixed) {
      sources_.fixed.push_back(Find(fixed.name, fixed.dims));
    }
    for (const TrainingTable& table : graph_.tables) RefuseTable(table.name);
    if (!found_) {
      Add("none of its ", tensors_.size(),
          " tensors is one of the model: ", ListTensors(),
          "; start.names says what the model calls them");
    } else {
      JudgeMissing();
    }
    NameUnused();
    return std::move(sources_);
  }

 private:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    problems_.push_back(absl::StrCat(kField, ": ", parts...));
  }

  bool CanBeMatched() {
    double patterns = 0;
    for (const NameRule& rule : start_.names()) {
      patterns += static_cast<double>(rule.pattern().size());
    }
    double names = 0;
    for (const FileTensor& tensor : tensors_) {
      names += static_cast<double>(tensor.name.size());
    }
    if (patterns * names <= kMatchingMax) return true;
    problems_.push_back(absl::StrCat(
        "start.names: too many patterns for the ", tensors_.size(),
        " tensors of the file: ", patterns, " bytes of patterns times ", names,
        " bytes of names are more than ", kMatchingMax));
    return false;
  }

  std::string ListTensors() const {
    std::vector<std::string> names;
    for (const FileTensor& tensor : tensors_) names.push_back(tensor.name);
    return names.empty() ? "it has none" : Names(names);
  }

  void NameTensors() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const std::string name = RenamedTensor(start_.names(), tensors_[i].name);
      if (name.empty()) {
        used_[i] = true;  // as the job says
        continue;
      }
      const auto [it, is_new] = by_name_.try_emplace(name, i);
      if (is_new) continue;
      Add("tensors ", Quote(tensors_[it->second].name), " and ",
          Quote(tensors_[i].name), " of the file are both ", Quote(name),
          " by start.names");
    }
  }

  // The tensor for an initializer, if there is one that fits.
  int Find(const std::string& name, const Dims& dims) {
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) return -1;
    const FileTensor& tensor = tensors_[it->second];
    used_[it->second] = found_ = true;
    if (!tensor.is_float) {
      Add(Quote(name), " is ", tensor.dtype, " in the file; F32, F16 and BF16 ",
          "are read, so convert it, as with tensor.float()");
      return -1;
    }
    if (tensor.dims != dims) {
      Add(Quote(name), " is ", DimsToString(tensor.dims), " in the file and ",
          DimsToString(dims), " in the model", Transposed(tensor.dims, dims));
      return -1;
    }
    if (absl::StartsWith(name, kTransposedName) && name != tensor.name &&
        dims.size() == 2 && dims[0] == dims[1]) {
      Add(SquareProblem(name, tensor.name));
      return -1;
    }
    return static_cast<int>(it->second);
  }

  static std::string Transposed(const Dims& file, const Dims& model) {
    Dims turned = file;
    std::reverse(turned.begin(), turned.end());
    if (file.size() != 2 || turned != model) return "";
    return ": it seems to be transposed, as PyTorch's exporter does with a "
           "Linear layer that becomes a MatMul; write it transposed, as with "
           "tensor.t().contiguous()";
  }

  void RefuseTable(const std::string& name) {
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) {
      missing_.push_back(name);
      return;
    }
    used_[it->second] = found_ = true;
    Add(Quote(name), " is a table: its rows do not come from such a file; ",
        "leave it out with names { pattern: \"", tensors_[it->second].name,
        "\" }");
  }

  void JudgeMissing() {
    if (missing_.empty()) return;
    const bool exporters = absl::c_any_of(missing_, [](const std::string& n) {
      return absl::StartsWith(n, "onnx::");
    });
    if (start_.allow_missing()) {
      sources_.warnings.push_back(
          absl::StrCat("warning: ", kField, ": the file lacks ",
                       Names(missing_), ", which keep their initial values"));
      return;
    }
    Add("the file lacks ", missing_.size(),
        " of the model's parameters: ", Names(missing_),
        "; start.names says what the file calls them, and with "
        "start.allow_missing they keep their initial values",
        exporters ? "; names that begin with onnx:: are PyTorch's exporter's, "
                    "of weights that it has changed"
                  : "");
  }

  void NameUnused() {
    std::vector<std::string> unused;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (used_[i] || absl::EndsWith(tensors_[i].name, kBatchesTracked)) {
        continue;
      }
      unused.push_back(tensors_[i].name);
    }
    if (unused.empty()) return;
    sources_.warnings.push_back(
        absl::StrCat("warning: ", kField, ": the model has no ", Names(unused),
                     ", of the file; they are not used"));
  }

  const StartSpec& start_;
  const TrainingGraph& graph_;
  const absl::Span<const FileTensor> tensors_;
  std::vector<std::string>& problems_;
  std::vector<bool> used_;                            // by tensor
  bool found_ = false;                                // one of the model's
  absl::flat_hash_map<std::string, size_t> by_name_;  // of the model
  std::vector<std::string> missing_;
  WeightSources sources_;
};

// The values that the model file has for a fixed initializer; null: none.
const ConstantTensor* ValuesOf(const Model& model, const std::string& name) {
  for (const Initializer& initializer : model.graph().initializers) {
    if (model.graph().values[initializer.value].name == name) {
      return &initializer.tensor;
    }
  }
  return nullptr;
}

// --- Squares -----------------------------------------------------------------

// True if a node multiplies by the value from the right, as [in, out].
bool IsRightFactor(const Graph& graph, ValueId value) {
  return absl::c_any_of(graph.nodes, [&](const Node& node) {
    const bool is_product =
        node.op_type == "MatMul" ||
        (node.op_type == "Gemm" && node.Int("transB", 0) == 0);
    return is_product && node.inputs.size() > 1 && node.inputs[1] == value;
  });
}

// The name of a Linear layer's weight in PyTorch, as far as names tell.
bool IsNamedWeight(absl::string_view name) {
  return absl::EndsWith(name, "weight");
}

// A square that the model has as [in, out] and the file perhaps as [out, in].
// Exporters that transpose a weight give it a name of their own, so a rule that
// leads from the one to the other is a mistake; else nobody can tell.
void JudgeSquares(const Graph& model, const TrainingGraph& graph,
                  absl::Span<const FileTensor> tensors, WeightSources* sources,
                  std::vector<std::string>* problems) {
  std::vector<std::string> doubtful;
  for (size_t i = 0; i < sources->parameters.size(); ++i) {
    if (sources->parameters[i] < 0) continue;
    const TrainingGraph::Parameter& parameter = graph.parameters[i];
    const FileTensor& tensor =
        tensors[static_cast<size_t>(sources->parameters[i])];
    const std::string& in_file = tensor.name;
    if (parameter.dims.size() != 2 || parameter.dims[0] != parameter.dims[1] ||
        parameter.dims[0] < 2 || !IsNamedWeight(in_file) ||
        !IsRightFactor(model, parameter.value)) {
      continue;
    }
    if (IsNamedWeight(parameter.name)) {
      if (!tensor.is_of_syncline) doubtful.push_back(parameter.name);
      continue;
    }
    problems->push_back(
        absl::StrCat(kField, ": ", SquareProblem(parameter.name, in_file)));
    sources->parameters[i] = -1;
  }
  if (doubtful.empty()) return;
  sources->warnings.push_back(absl::StrCat(
      "warning: ", kField, ": the model multiplies by the square ",
      Names(doubtful), " from the right, as [in,out]; PyTorch has the weight ",
      "of a Linear layer as [out,in], and both have one shape: if the file "
      "has ",
      "it so, write it transposed, as with tensor.t().contiguous()"));
}

}  // namespace

WeightSources MatchWeights(const JobSpec& spec, const TrainingGraph& graph,
                           absl::Span<const FileTensor> tensors,
                           std::vector<std::string>* problems) {
  return Matching(spec, graph, tensors, problems).Run();
}

WeightSources CheckStartWeights(const JobSpec& spec, const Model& model,
                                const TrainingGraph& graph,
                                const std::string& path,
                                const std::string& label,
                                std::vector<std::string>* problems) {
  const auto add = [&](const absl::Status& status) {
    // Errors of the disk name the path.
    problems->push_back(absl::StrCat(
        kField, ": ", absl::StrReplaceAll(status.message(), {{path, label}})));
  };
  const auto tensors = ReadSafetensors(path);
  if (!tensors.ok()) {
    add(tensors.status());
    return {};
  }
  WeightSources sources = MatchWeights(spec, graph, *tensors, problems);
  for (size_t i = 0; i < sources.fixed.size(); ++i) {
    if (sources.fixed[i] < 0) continue;
    const FileTensor& tensor =
        (*tensors)[static_cast<size_t>(sources.fixed[i])];
    std::vector<float> values(
        static_cast<size_t>(ElementCount(graph.fixed[i].dims)));
    const absl::Status read =
        ReadFileTensor(path, tensor, absl::MakeSpan(values));
    if (!read.ok()) {
      add(read);
      continue;
    }
    const ConstantTensor* const in_model = ValuesOf(model, graph.fixed[i].name);
    const size_t bytes = values.size() * sizeof(float);
    if (in_model != nullptr && in_model->bytes.size() == bytes &&
        (bytes == 0 ||
         std::memcmp(in_model->bytes.data(), values.data(), bytes) == 0)) {
      continue;
    }
    problems->push_back(absl::StrCat(
        kField, ": ", Quote(graph.fixed[i].name), " is not trained (",
        Explain(graph.fixed[i].reason), "), so its values are those of the ",
        "model file, and the weights file has others; put them into the model ",
        "file, or leave the tensor out with names { pattern: \"", tensor.name,
        "\" }"));
  }
  JudgeSquares(model.graph(), graph, *tensors, &sources, problems);
  return sources;
}

void MarkStarted(const WeightSources& sources, TrainingGraph* graph) {
  for (size_t i = 0; i < sources.parameters.size(); ++i) {
    WeightReason& reason = graph->parameters[i].reason;
    if (sources.parameters[i] < 0 || reason != WeightReason::kDeclared) {
      continue;
    }
    reason = WeightReason::kStarted;
  }
}

}  // namespace syncline
