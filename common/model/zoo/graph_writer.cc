#include "common/model/zoo/graph_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/model/graph/onnx_file.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

// The oldest file format that has everything we write.
constexpr int kIrVersion = 8;

void SetType(DType dtype, const Dims& dims, onnx::ValueInfoProto* info) {
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(DTypeToOnnx(dtype));
  tensor->mutable_shape()->add_dim()->set_dim_param("N");
  for (const int64_t d : dims) {
    auto* const dim = tensor->mutable_shape()->add_dim();
    if (d == GraphWriter::kSequence) {
      dim->set_dim_param("sequence");
    } else {
      dim->set_dim_value(d);
    }
  }
}

struct AttributeWriter {
  void operator()(int64_t value) const {
    out->set_type(onnx::AttributeProto::INT);
    out->set_i(value);
  }
  void operator()(float value) const {
    out->set_type(onnx::AttributeProto::FLOAT);
    out->set_f(value);
  }
  void operator()(const std::string& value) const {
    out->set_type(onnx::AttributeProto::STRING);
    out->set_s(value);
  }
  void operator()(const std::vector<int64_t>& values) const {
    out->set_type(onnx::AttributeProto::INTS);
    for (const int64_t value : values) out->add_ints(value);
  }
  void operator()(const std::vector<float>& values) const {
    out->set_type(onnx::AttributeProto::FLOATS);
    for (const float value : values) out->add_floats(value);
  }
  void operator()(const std::vector<std::string>& values) const {
    out->set_type(onnx::AttributeProto::STRINGS);
    for (const std::string& value : values) out->add_strings(value);
  }
  void operator()(const ConstantTensor& value) const {
    out->set_type(onnx::AttributeProto::TENSOR);
    WriteTensor(value.dtype, value.dims, value.bytes, out->mutable_t());
  }
  onnx::AttributeProto* out;
};

}  // namespace

GraphWriter::GraphWriter(absl::string_view graph, int opset, uint64_t seed)
    : seed_(seed), model_(std::make_unique<onnx::ModelProto>()) {
  model_->set_ir_version(kIrVersion);
  model_->set_producer_name("syncline");
  model_->add_opset_import()->set_version(opset);
  model_->mutable_graph()->set_name(std::string(graph));
}

GraphWriter::~GraphWriter() = default;

std::string GraphWriter::Input(absl::string_view name, const Dims& dims,
                               DType dtype) {
  onnx::ValueInfoProto* const info = model_->mutable_graph()->add_input();
  info->set_name(std::string(name));
  SetType(dtype, dims, info);
  return info->name();
}

void GraphWriter::Output(absl::string_view name, const Dims& dims) {
  onnx::ValueInfoProto* const info = model_->mutable_graph()->add_output();
  info->set_name(std::string(name));
  SetType(DType::kFloat32, dims, info);
}

std::string GraphWriter::OpenTable(absl::string_view name, int64_t dim) {
  onnx::ValueInfoProto* const info = model_->mutable_graph()->add_input();
  info->set_name(std::string(name));
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(DTypeToOnnx(DType::kFloat32));
  tensor->mutable_shape()->add_dim()->set_dim_param("rows");
  tensor->mutable_shape()->add_dim()->set_dim_value(dim);
  return info->name();
}

std::string GraphWriter::Add(absl::string_view name, Weight weight) {
  weight.initializer = model_->graph().initializer_size();
  weights_.push_back(std::move(weight));
  onnx::TensorProto* const tensor = model_->mutable_graph()->add_initializer();
  tensor->set_name(std::string(name));
  return tensor->name();
}

void GraphWriter::Fill(const Weight& weight) {
  onnx::TensorProto* const tensor =
      model_->mutable_graph()->mutable_initializer(weight.initializer);
  const int64_t part =
      ElementCount(weight.dims) / static_cast<int64_t>(weight.means.size());
  std::vector<float> values;
  values.reserve(ElementCount(weight.dims));
  for (const float mean : weight.means) {
    values.insert(values.end(), part, mean);
  }
  if (weight.deviation != 0) {
    Random random(SeedFor(seed_, HashName(tensor->name())));
    for (float& v : values) {
      v = static_cast<float>(random.Normal()) * weight.deviation;
    }
  }
  WriteTensor(DType::kFloat32, weight.dims,
              {reinterpret_cast<const char*>(values.data()),
               values.size() * sizeof(float)},
              tensor);
}

// In double: settings that are each within bounds can make sums that no integer
// holds.
absl::Status GraphWriter::CheckSize() const {
  double total = 0;
  double most = 0;
  const Weight* largest = nullptr;
  for (const Weight& weight : weights_) {
    double bytes = sizeof(float);
    for (const int64_t d : weight.dims) bytes *= static_cast<double>(d);
    total += bytes;
    if (bytes > most) largest = &weight;
    most = std::max(most, bytes);
  }
  if (total <= kWeightBytesMax) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrFormat(
      "the weights are %.1f GiB, and an ONNX file holds 2 GiB; the largest is "
      "\"%s\" %s",
      total / (1 << 30),
      model_->graph().initializer(largest->initializer).name(),
      DimsToString(largest->dims)));
}

std::string GraphWriter::Filled(absl::string_view name, const Dims& dims,
                                float value) {
  return FilledInParts(name, dims, {value});
}

std::string GraphWriter::FilledInParts(absl::string_view name, const Dims& dims,
                                       std::vector<float> values) {
  SYNCLINE_CHECK(ElementCount(dims) % static_cast<int64_t>(values.size()) == 0);
  return Add(name, {.initializer = 0,
                    .dims = dims,
                    .means = std::move(values),
                    .deviation = 0});
}

std::string GraphWriter::Normal(absl::string_view name, const Dims& dims,
                                float deviation) {
  return Add(
      name,
      {.initializer = 0, .dims = dims, .means = {0}, .deviation = deviation});
}

std::string GraphWriter::He(absl::string_view name, const Dims& dims,
                            int64_t fan_in) {
  SYNCLINE_CHECK(fan_in > 0);
  return Normal(name, dims, std::sqrt(2.0f / static_cast<float>(fan_in)));
}

std::string GraphWriter::Integers(absl::string_view name,
                                  const std::vector<int64_t>& values) {
  onnx::TensorProto* const tensor = model_->mutable_graph()->add_initializer();
  tensor->set_name(std::string(name));
  WriteTensor(DType::kInt64, {static_cast<int64_t>(values.size())},
              {reinterpret_cast<const char*>(values.data()),
               values.size() * sizeof(int64_t)},
              tensor);
  return tensor->name();
}

std::string GraphWriter::Scalar(absl::string_view name, float value) {
  return Node(name, "Constant", {}, {{"value_float", value}});
}

std::string GraphWriter::Node(
    absl::string_view name, absl::string_view op_type,
    const std::vector<std::string>& inputs,
    const std::map<std::string, Attribute>& attributes) {
  std::string output(name);
  Node(name, op_type, inputs, {output}, attributes);
  return output;
}

void GraphWriter::Node(absl::string_view name, absl::string_view op_type,
                       const std::vector<std::string>& inputs,
                       const std::vector<std::string>& outputs,
                       const std::map<std::string, Attribute>& attributes) {
  onnx::NodeProto* const node = model_->mutable_graph()->add_node();
  node->set_name(std::string(name));
  node->set_op_type(std::string(op_type));
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  for (const auto& [key, value] : attributes) {
    onnx::AttributeProto* const attribute = node->add_attribute();
    attribute->set_name(key);
    std::visit(AttributeWriter{attribute}, value);
  }
}

absl::StatusOr<std::string> GraphWriter::Serialize() {
  SYNCLINE_RETURN_IF_ERROR(CheckSize());
  for (const Weight& weight : weights_) Fill(weight);
  return model_->SerializeAsString();
}

}  // namespace syncline
