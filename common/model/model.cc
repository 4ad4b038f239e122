#include "common/model/model.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <list>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/fusion.h"
#include "common/model/graph/gradient_flow.h"
#include "common/model/graph/graph_builder.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/graph/operator_list.h"
#include "common/model/graph/resize.h"
#include "common/model/graph/schemas.h"
#include "common/model/import/export_record.h"
#include "common/model/import/import_rewrites.h"
#include "common/model/import/inference_form.h"
#include "common/model/import/invariant_constants.h"
#include "common/model/import/older_export.h"
#include "common/model/inference/shape_inference.h"
#include "common/system/file.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

// A dimension that differs between two batch sizes depends on the batch; which
// two does not matter, except that large primes do not look like anything else
// in a message. Shapes that fit for both fit for every size: all rules are
// about equal dimensions, 1, and divisors that a prime does not have.
constexpr int64_t kTrialBatches[] = {7919, 7927};

constexpr size_t kProblemsShown = 50;

std::vector<std::string> Labelled(absl::string_view label,
                                  absl::Span<const std::string> problems) {
  const size_t shown = std::min(problems.size(), kProblemsShown);
  std::vector<std::string> lines;
  for (const std::string& problem : problems.subspan(0, shown)) {
    lines.push_back(absl::StrCat(label, ": ", problem));
  }
  if (shown < problems.size()) {
    lines.push_back(absl::StrCat(label, ": and ", problems.size() - shown,
                                 " more problems"));
  }
  return lines;
}

absl::Status ToStatus(absl::string_view label,
                      absl::Span<const std::string> problems) {
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrJoin(Labelled(label, problems), "\n"));
}

// Why it cannot be written without weights; empty: it can.
absl::string_view WhyWithoutValues(const Initializer& initializer) {
  const ConstantTensor& tensor = initializer.tensor;
  if (initializer.origin == Initializer::Origin::kDeclared) {
    return "which has none in the file";
  }
  const bool complete = tensor.bytes.size() ==
                        ElementCount(tensor.dims) * DTypeBytes(tensor.dtype);
  return complete ? "" : "whose values were released";
}

bool HasBatchDim(const Value& value) {
  return absl::c_linear_search(value.dims, kBatchDim);
}

// Makes each CastLike what it is here: a Cast, or an Identity where nothing
// changes. REQUIRES: the types are known.
void ResolveCastLike(Graph* graph) {
  for (Node& node : graph->nodes) {
    if (node.op_type != "CastLike") continue;
    const ValueId y = node.outputs[0];
    if (y == kNoValue) continue;
    const DType to = graph->values[y].dtype;
    const bool changes = graph->values[node.inputs[0]].dtype != to;
    node.op_type = changes ? "Cast" : "Identity";
    node.since_version =
        SinceVersion(*FindOperator(node.op_type), graph->opset_version);
    node.inputs.resize(1);
    node.attributes.clear();
    if (changes) node.attributes["to"] = int64_t{DTypeToOnnx(to)};
  }
}

// Declared parameters have become initializers, but for `inputs`.
void RemoveDeclaredInputs(const Graph& graph,
                          absl::Span<const std::string> inputs_kept,
                          onnx::GraphProto* file) {
  absl::flat_hash_set<absl::string_view> declared;
  for (const Initializer& initializer : graph.initializers) {
    const std::string& name = graph.values[initializer.value].name;
    if (initializer.origin == Initializer::Origin::kDeclared &&
        !absl::c_linear_search(inputs_kept, name)) {
      declared.insert(name);
    }
  }
  auto* inputs = file->mutable_input();
  inputs->erase(std::remove_if(inputs->begin(), inputs->end(),
                               [&](const onnx::ValueInfoProto& input) {
                                 return declared.contains(input.name());
                               }),
                inputs->end());
}

// Makes the file's initializer a graph input, without values.
void MakeInput(const ConstantTensor& tensor, const std::string& name,
               onnx::GraphProto* file) {
  auto* initializers = file->mutable_initializer();
  initializers->erase(std::remove_if(initializers->begin(), initializers->end(),
                                     [&](const onnx::TensorProto& proto) {
                                       return proto.name() == name;
                                     }),
                      initializers->end());
  if (absl::c_any_of(file->input(), [&](const onnx::ValueInfoProto& input) {
        return input.name() == name;
      })) {
    return;
  }
  onnx::ValueInfoProto* const input = file->add_input();
  input->set_name(name);
  auto* const type = input->mutable_type()->mutable_tensor_type();
  type->set_elem_type(DTypeToOnnx(tensor.dtype));
  for (const int64_t dim : tensor.dims) {
    type->mutable_shape()->add_dim()->set_dim_value(dim);
  }
}

// Where PyTorch computes something else than ONNX's definition of what it
// writes.
void MarkAsPyTorchs(Graph* graph) {
  for (Node& node : graph->nodes) {
    if (node.op_type == "BatchNormalization") {
      node.attributes[kSampleVariance] = int64_t{1};
    } else if (node.op_type == "Resize") {
      node.attributes[kWholeSizes] = int64_t{1};
    }
  }
}

// Where the program had detach(), for gradient_flow.h.
void MarkDetached(const ExportRecord& record, Graph* graph) {
  absl::flat_hash_set<absl::string_view> names;
  for (const auto& place : record.detached) names.insert(place.value);
  if (names.empty()) return;
  for (Node& node : graph->nodes) {
    const ValueId y = node.outputs[0];
    if (node.op_type != "Identity" || y == kNoValue) continue;
    if (!names.contains(graph->values[y].name)) continue;
    node.attributes[kDetached] = int64_t{1};
  }
}

// The file's type of what is float32 here and may be float64 there
// (float64_rewrite.h). `proto` is its initializer, as yet without a type if it
// was declared.
DType FileType(const onnx::GraphProto& file, const onnx::TensorProto& proto,
               const Initializer& initializer) {
  int type = proto.data_type();
  for (const onnx::ValueInfoProto& input : file.input()) {
    if (type == 0 && input.name() == proto.name()) {
      type = input.type().tensor_type().elem_type();
    }
  }
  return type == onnx::TensorProto::DOUBLE ? DType::kFloat64
                                           : initializer.tensor.dtype;
}

std::string Widened(absl::string_view floats) {
  std::string bytes;
  for (size_t at = 0; at + sizeof(float) <= floats.size();
       at += sizeof(float)) {
    float narrow;
    std::memcpy(&narrow, floats.data() + at, sizeof(narrow));
    const double wide = narrow;
    bytes.append(reinterpret_cast<const char*>(&wide), sizeof(wide));
  }
  return bytes;
}

}  // namespace

struct Model::Proto {
  std::string label;
  // As it was submitted, without the content of its initializers.
  onnx::ModelProto file;
  // The model trained in its place; null: the file itself (import_rewrites.h).
  std::unique_ptr<onnx::ModelProto> rewritten;
  std::vector<std::string> notes;
  // Of initializers whose values may still be asked for.
  ExactContents exact_contents;
  InvariantConstants numbers;
  // Graph::nodes as the file has them, and where in it.
  std::vector<Node> nodes;
  std::vector<int> file_nodes;
  ExportRecord record;
  std::vector<std::string> folded_parameters;

  onnx::ModelProto& trained() {
    return rewritten == nullptr ? file : *rewritten;
  }
  const onnx::GraphProto& graph() { return trained().graph(); }
};

Model::Model() : proto_(std::make_unique<Proto>()) {}
Model::~Model() = default;

const ExportRecord& Model::export_record() const { return proto_->record; }

const std::vector<std::string>& Model::folded_parameters() const {
  return proto_->folded_parameters;
}

absl::StatusOr<std::shared_ptr<Model>> Model::Parse(
    absl::string_view bytes, absl::string_view label,
    absl::Span<const std::string> initialize,
    absl::Span<const std::string> tables, const LengthDimension& length) {
  std::vector<std::string> problems;
  auto model =
      ParseWithProblems(bytes, label, initialize, tables, &problems, length);
  if (problems.empty()) return model;
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

std::shared_ptr<Model> Model::ParseWithProblems(
    absl::string_view bytes, absl::string_view label,
    absl::Span<const std::string> initialize,
    absl::Span<const std::string> tables, std::vector<std::string>* problems,
    const LengthDimension& length) {
  std::shared_ptr<Model> model(new Model());
  Proto& proto = *model->proto_;
  proto.label = std::string(label);
  std::vector<std::string> found;
  if (const auto read = ReadOnnxFile(bytes, &proto.file); !read.ok()) {
    problems->push_back(absl::StrCat(label, ": ", read.message()));
    return nullptr;
  }
  proto.record = ReadExportRecord(proto.file);
  PartMergedParameters(&proto.file, &found);
  proto.folded_parameters = FindFoldedParameters(proto.file);
  proto.rewritten = RewriteForTraining(&proto.file, &found, &proto.notes,
                                       &proto.exact_contents);
  BuiltGraph built =
      BuildGraph(initialize, &proto.trained(), &found, tables, length);
  model->graph_ = std::move(built.graph);
  proto.file_nodes = std::move(built.file_nodes);
  proto.nodes = model->graph_.nodes;
  const bool readable = model->graph_.opset_version > 0;
  InvariantConstants numbers;
  if (readable) numbers = model->SetComputedShapes(length, &found);
  model->whole_ = found.empty();
  if (model->whole_) {
    ResolveCastLike(&model->graph_);
    MarkDetached(proto.record, &model->graph_);
    FuseNodes(numbers, &model->graph_);
    proto.numbers = std::move(numbers);
  }
  if (proto.record.is_pytorch) MarkAsPyTorchs(&model->graph_);
  for (std::string& line : Labelled(label, found)) {
    problems->push_back(std::move(line));
  }
  return readable ? model : nullptr;
}

InvariantConstants Model::SetComputedShapes(
    const LengthDimension& length, std::vector<std::string>* problems) {
  std::vector<InferredValue> trials[2];
  for (int t = 0; t < 2; ++t) {
    std::vector<std::string> found;
    trials[t] =
        InferValues(graph_, proto_->nodes, proto_->graph(), proto_->file_nodes,
                    kTrialBatches[t], BatchStyle::kSymbol, &found);
    if (t == 1 && !problems->empty()) break;  // the same again
    problems->insert(problems->end(), found.begin(), found.end());
  }
  for (size_t id = 0; id < graph_.values.size(); ++id) {
    Value& value = graph_.values[id];
    if (value.kind != Value::Kind::kComputed) continue;
    value.known = trials[0][id].known && trials[1][id].known;
    if (!value.known) continue;
    value.folded =
        trials[0][id].constant != nullptr && trials[1][id].constant != nullptr;
    value.dtype = trials[0][id].dtype;
    value.dims = trials[0][id].dims;
    if (trials[1][id].dims.size() != value.dims.size()) {
      problems->push_back(
          absl::StrCat(Quote(value.name),
                       " has more dimensions for some batch sizes than for "
                       "others"));
      continue;
    }
    for (size_t d = 0; d < value.dims.size(); ++d) {
      const int64_t other = trials[1][id].dims[d];
      if (value.dims[d] == other) continue;
      value.dims[d] =
          value.dims[d] == kTrialBatches[0] && other == kTrialBatches[1]
              ? kBatchDim
              : kDerivedDim;
    }
  }
  if (!problems->empty()) return {};
  std::vector<InferredValue> shorter;
  if (length.longest > 1) {
    std::vector<std::string> ignored;
    shorter = InferValues(graph_, proto_->nodes, proto_->graph(),
                          proto_->file_nodes, kTrialBatches[0],
                          BatchStyle::kSymbol, &ignored, length.longest / 2);
  }
  return FindInvariantConstants(graph_, proto_->nodes, trials[0], shorter);
}

const std::vector<std::string>& Model::notes() const { return proto_->notes; }

absl::StatusOr<std::vector<Dims>> Model::InferShapes(int64_t batch_size,
                                                     int64_t length) const {
  SYNCLINE_ASSIGN_OR_RETURN(Inference inference, Infer(batch_size, length));
  return std::move(inference.dims);
}

absl::StatusOr<Model::Inference> Model::Infer(int64_t batch_size,
                                              int64_t length) const {
  std::vector<std::string> problems;
  for (ValueId id : graph_.inputs) {
    const Value& input = graph_.values[id];
    const std::string described = absl::StrCat(
        "graph input ", Quote(input.name), " is ", DimsToString(input.dims));
    if (batch_size == kAsWritten) {
      if (HasBatchDim(input)) {
        problems.push_back(absl::StrCat(described, ", not fixed"));
      }
    } else if (!HasBatchDim(input) &&
               (input.dims.empty() || input.dims[0] != batch_size)) {
      problems.push_back(
          absl::StrCat(described, ": it does not take batches of ", batch_size,
                       "; export the model with a symbolic first dimension"));
    }
  }
  if (batch_size < 0) {
    problems.push_back(absl::StrCat("batch size ", batch_size, " is negative"));
  }
  SYNCLINE_RETURN_IF_ERROR(ToStatus(proto_->label, problems));

  std::vector<InferredValue> values =
      InferValues(graph_, proto_->nodes, proto_->graph(), proto_->file_nodes,
                  batch_size, BatchStyle::kNumber, &problems, length);
  SYNCLINE_RETURN_IF_ERROR(ToStatus(proto_->label, problems));
  Inference inference;
  for (size_t id = 0; id < values.size(); ++id) {
    inference.dims.push_back(std::move(values[id].dims));
    inference.constants.push_back(
        graph_.values[id].folded ? std::move(values[id].constant) : nullptr);
    if (!graph_.values[id].folded || inference.constants.back() != nullptr) {
      continue;
    }
    problems.push_back(absl::StrCat(Quote(graph_.values[id].name),
                                    " is too large to be known before "
                                    "training for batches of ",
                                    batch_size));
  }
  SYNCLINE_RETURN_IF_ERROR(ToStatus(proto_->label, problems));
  return inference;
}

absl::StatusOr<std::string> Model::WithWeights(
    const absl::flat_hash_map<std::string, absl::Span<const float>>& weights,
    absl::Span<const std::string> inputs) const {
  SYNCLINE_RETURN_IF_ERROR(CheckWeights(weights, inputs));
  std::string bytes;
  google::protobuf::io::StringOutputStream out(&bytes);
  SYNCLINE_RETURN_IF_ERROR(Serialize(weights, inputs, &out));
  return bytes;
}

absl::Status Model::WriteWithWeights(
    const std::string& path,
    const absl::flat_hash_map<std::string, absl::Span<const float>>& weights,
    absl::Span<const std::string> inputs) const {
  SYNCLINE_RETURN_IF_ERROR(CheckWeights(weights, inputs));
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return FileError(errno, "create", path);
  {
    google::protobuf::io::OstreamOutputStream out(&file);
    const absl::Status written = Serialize(weights, inputs, &out);
    if (!written.ok() && !absl::IsUnavailable(written)) return written;
  }
  file.close();
  return file ? absl::OkStatus() : FileError(errno, "write", path);
}

absl::Status Model::CheckWeights(
    const absl::flat_hash_map<std::string, absl::Span<const float>>& weights,
    absl::Span<const std::string> inputs) const {
  std::vector<std::string> problems;
  absl::flat_hash_map<std::string, const Initializer*> by_name;
  for (const Initializer& initializer : graph_.initializers) {
    if (initializer.origin == Initializer::Origin::kConstant) continue;
    const std::string& name = graph_.values[initializer.value].name;
    by_name[name] = &initializer;
    const absl::string_view why = WhyWithoutValues(initializer);
    if (!why.empty() && !weights.contains(name) &&
        !absl::c_linear_search(inputs, name)) {
      problems.push_back(
          absl::StrCat("no weights for ", Quote(name), ", ", why));
    }
  }
  for (const auto& [name, values] : weights) {
    const auto it = by_name.find(name);
    if (it == by_name.end() || it->second->tensor.dtype != DType::kFloat32) {
      problems.push_back(
          absl::StrCat("the model has no float32 initializer ", Quote(name)));
    } else if (ElementCount(it->second->tensor.dims) !=
               static_cast<int64_t>(values.size())) {
      problems.push_back(absl::StrCat("initializer ", Quote(name), " is ",
                                      DimsToString(it->second->tensor.dims),
                                      ", but got ", values.size(), " values"));
    }
  }
  return ToStatus(proto_->label, problems);
}

void Model::FuseAround(absl::Span<const int> initializers) {
  const size_t before = proto_->numbers.size();
  for (const int index : initializers) {
    const Initializer& initializer = graph_.initializers[index];
    if (initializer.tensor.bytes.empty()) continue;  // a job fills it
    const std::optional<float> number = NumberIn(initializer.tensor);
    if (number.has_value()) {
      proto_->numbers.emplace(initializer.value, *number);
    }
  }
  if (proto_->numbers.size() > before) FuseNodes(proto_->numbers, &graph_);
}

void Model::ReleaseValues(absl::Span<const int> initializers) {
  for (const int index : initializers) {
    Initializer& initializer = graph_.initializers[index];
    if (initializer.origin == Initializer::Origin::kConstant ||
        ElementCount(initializer.tensor.dims) <= kReadableElementsMax) {
      continue;
    }
    std::string().swap(initializer.tensor.bytes);  // = keeps the memory
    proto_->exact_contents.erase(graph_.values[initializer.value].name);
  }
}

absl::Status Model::Serialize(
    const absl::flat_hash_map<std::string, absl::Span<const float>>& weights,
    absl::Span<const std::string> inputs,
    google::protobuf::io::ZeroCopyOutputStream* out_stream) const {
  absl::flat_hash_map<std::string, absl::string_view> contents;
  std::list<std::string> widened;
  onnx::ModelProto file = proto_->file;
  onnx::GraphProto* graph = file.mutable_graph();
  int file_initializers = 0;
  for (const Initializer& initializer : graph_.initializers) {
    if (initializer.origin == Initializer::Origin::kConstant) continue;
    const std::string& name = graph_.values[initializer.value].name;
    onnx::TensorProto* out = nullptr;
    if (initializer.origin == Initializer::Origin::kFile) {
      out = graph->mutable_initializer(file_initializers++);
    } else if (absl::c_linear_search(inputs, name)) {
      continue;
    } else {
      out = graph->add_initializer();
      out->set_name(name);
    }
    absl::string_view bytes = initializer.tensor.bytes;
    const auto trained = weights.find(name);
    if (trained != weights.end()) {
      bytes = {reinterpret_cast<const char*>(trained->second.data()),
               trained->second.size() * sizeof(float)};
    }
    const DType dtype = FileType(proto_->file.graph(), *out, initializer);
    const auto exact = proto_->exact_contents.find(name);
    if (exact != proto_->exact_contents.end() && trained == weights.end()) {
      bytes = exact->second;
    } else if (dtype != initializer.tensor.dtype) {
      bytes = widened.emplace_back(Widened(bytes));
    }
    WriteTensor(dtype, initializer.tensor.dims, "", out);
    out->clear_raw_data();
    contents[name] = bytes;
  }
  for (const Initializer& initializer : graph_.initializers) {
    const std::string& name = graph_.values[initializer.value].name;
    if (initializer.origin == Initializer::Origin::kFile &&
        absl::c_linear_search(inputs, name)) {
      MakeInput(initializer.tensor, name, graph);
    }
  }
  // IR version 3 wants initializers among the inputs; later ones do not.
  if (file.ir_version() > 3) RemoveDeclaredInputs(graph_, inputs, graph);
  MakeInferenceForm(graph);
  const absl::Status written = WriteOnnxFile(contents, &file, out_stream);
  if (!absl::IsOutOfRange(written)) return written;
  return absl::InvalidArgumentError(absl::StrCat(
      proto_->label, ": with its weights the model is ", written.message()));
}

}  // namespace syncline
