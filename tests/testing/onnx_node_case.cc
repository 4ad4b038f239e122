#include "tests/testing/onnx_node_case.h"

#include <cstring>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/graph/schemas.h"
#include "onnx/onnx_pb.h"

namespace syncline::testing {
namespace {

template <typename Message>
absl::StatusOr<Message> ReadMessage(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Message message;
  if (message.ParseFromIstream(&file)) return message;
  return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
}

absl::Status CheckType(int onnx_type) {
  // A value without a type is one that the graph does not have.
  if (onnx_type == 0) return absl::OkStatus();
  const auto type = DTypeFromOnnx(onnx_type);
  if (type.ok()) return absl::OkStatus();
  return absl::UnimplementedError(type.status().message());
}

absl::Status CheckOperators(const onnx::ModelProto& model) {
  int64_t opset = 0;
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty()) opset = import.version();
  }
  if (opset < kOpsetMin || opset > kOpsetMax) {
    return absl::UnimplementedError(absl::StrCat("opset ", opset));
  }
  for (const auto& node : model.graph().node()) {
    if (node.domain().empty() && FindOperator(node.op_type()) != nullptr) {
      continue;
    }
    return absl::UnimplementedError(absl::StrCat("operator ", node.op_type()));
  }
  return absl::OkStatus();
}

absl::Status CheckTypes(const onnx::GraphProto& graph) {
  for (const auto* list : {&graph.input(), &graph.output()}) {
    for (const onnx::ValueInfoProto& value : *list) {
      if (!value.type().has_tensor_type()) {
        return absl::UnimplementedError("a value that is no tensor");
      }
      SYNCLINE_RETURN_IF_ERROR(
          CheckType(value.type().tensor_type().elem_type()));
    }
  }
  for (const onnx::NodeProto& node : graph.node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      const bool is_type = node.op_type() == "Cast" && attribute.name() == "to";
      if (is_type) {
        SYNCLINE_RETURN_IF_ERROR(CheckType(static_cast<int>(attribute.i())));
      }
      SYNCLINE_RETURN_IF_ERROR(CheckType(attribute.t().data_type()));
    }
  }
  return absl::OkStatus();
}

bool IsFloat(const onnx::TensorProto& tensor) {
  return tensor.data_type() == onnx::TensorProto::FLOAT;
}

void AddConstant(const std::string& name, const onnx::TensorProto& tensor,
                 onnx::GraphProto* graph) {
  onnx::NodeProto& node = *graph->add_node();
  node.set_op_type("Constant");
  node.add_output(name);
  onnx::AttributeProto& value = *node.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  *value.mutable_t() = tensor;
}

// The model with inputs that are known.
onnx::ModelProto WithKnown(const onnx::ModelProto& model,
                           absl::Span<const onnx::TensorProto> inputs,
                           KnownInputs known) {
  onnx::ModelProto result = model;
  onnx::GraphProto& graph = *result.mutable_graph();
  graph.clear_input();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& input = model.graph().input(static_cast<int>(i));
    if (known == KnownInputs::kNone ||
        (known == KnownInputs::kIntegers && IsFloat(inputs[i]))) {
      *graph.add_input() = input;
    } else if (known == KnownInputs::kWeights && IsFloat(inputs[i])) {
      *graph.add_initializer() = inputs[i];
      graph.mutable_initializer()->rbegin()->set_name(input.name());
    } else {
      AddConstant(input.name(), inputs[i], &graph);
    }
  }
  return result;
}

void ToFloat32(ConstantTensor* tensor) {
  std::string bytes;
  for (size_t at = 0; at < tensor->bytes.size(); at += sizeof(double)) {
    double wide;
    std::memcpy(&wide, tensor->bytes.data() + at, sizeof(wide));
    const float narrow = static_cast<float>(wide);
    bytes.append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
  }
  tensor->dtype = DType::kFloat32;
  tensor->bytes = std::move(bytes);
}

// Feeds as float32 the values that are float64 in the file and float32 in the
// graph, and expects them as float32.
void Narrow(const Graph& graph, OnnxNodeCase* test) {
  const auto narrow = [&](ValueId v, ConstantTensor* tensor) {
    if (tensor->dtype == DType::kFloat64 &&
        graph.values[v].dtype == DType::kFloat32) {
      ToFloat32(tensor);
    }
  };
  for (const ValueId v : graph.inputs) {
    narrow(v, &test->inputs.at(graph.values[v].name));
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    narrow(graph.outputs[i], &test->outputs[i]);
  }
}

}  // namespace

absl::StatusOr<OnnxNodeCase> ReadOnnxNodeCase(const std::string& folder,
                                              KnownInputs known) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const onnx::ModelProto model,
      ReadMessage<onnx::ModelProto>(absl::StrCat(folder, "/model.onnx")));
  SYNCLINE_RETURN_IF_ERROR(CheckOperators(model));
  SYNCLINE_RETURN_IF_ERROR(CheckTypes(model.graph()));
  OnnxNodeCase result;
  const std::string data = absl::StrCat(folder, "/test_data_set_0/");
  std::vector<onnx::TensorProto> inputs;
  for (int i = 0; i < model.graph().input_size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(
        auto input,
        ReadMessage<onnx::TensorProto>(absl::StrCat(data, "input_", i, ".pb")));
    inputs.push_back(input);
    SYNCLINE_ASSIGN_OR_RETURN(result.inputs[model.graph().input(i).name()],
                              TakeTensor(&input));
  }
  for (int i = 0; i < model.graph().output_size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(auto output,
                              ReadMessage<onnx::TensorProto>(
                                  absl::StrCat(data, "output_", i, ".pb")));
    SYNCLINE_ASSIGN_OR_RETURN(result.outputs.emplace_back(),
                              TakeTensor(&output));
  }
  result.model =
      Model::Parse(WithKnown(model, inputs, known).SerializeAsString(), folder);
  if (result.model.ok()) Narrow((*result.model)->graph(), &result);
  return result;
}

}  // namespace syncline::testing
