#include "common/model/graph/node_reader.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/graph/schemas.h"
#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

absl::StatusOr<Attribute> ReadAttribute(const onnx::AttributeProto& attribute) {
  using A = onnx::AttributeProto;
  if (attribute.has_ref_attr_name()) {
    return absl::InvalidArgumentError("refers to a function's attribute");
  }
  switch (attribute.type()) {
    case A::INT:
      return Attribute(int64_t{attribute.i()});
    case A::FLOAT:
      return Attribute(attribute.f());
    case A::STRING:
      return Attribute(attribute.s());
    case A::INTS:
      return Attribute(std::vector<int64_t>(attribute.ints().begin(),
                                            attribute.ints().end()));
    case A::FLOATS:
      return Attribute(std::vector<float>(attribute.floats().begin(),
                                          attribute.floats().end()));
    case A::STRINGS:
      return Attribute(std::vector<std::string>(attribute.strings().begin(),
                                                attribute.strings().end()));
    case A::TENSOR: {
      // A copy: the file's node keeps its tensor, for export.
      onnx::TensorProto copy = attribute.t();
      absl::StatusOr<ConstantTensor> tensor = TakeTensor(&copy);
      if (!tensor.ok()) return tensor.status();
      return Attribute(*std::move(tensor));
    }
    default:
      return absl::InvalidArgumentError("is of a type that is not supported");
  }
}

template <typename T>
ConstantTensor MakeTensor(DType dtype, Dims dims, absl::Span<const T> values) {
  return {dtype, std::move(dims),
          std::string(reinterpret_cast<const char*>(values.data()),
                      values.size() * sizeof(T))};
}

bool IsEmptyList(const onnx::AttributeProto& attribute) {
  using A = onnx::AttributeProto;
  return (attribute.type() == A::INTS && attribute.ints_size() == 0) ||
         (attribute.type() == A::FLOATS && attribute.floats_size() == 0);
}

bool HasEmptyList(const onnx::NodeProto& node) {
  return absl::c_any_of(node.attribute(), IsEmptyList);
}

// libonnx takes an empty list for a missing one.
onnx::NodeProto WithoutEmptyLists(const onnx::NodeProto& node) {
  onnx::NodeProto copy = node;
  auto* const attributes = copy.mutable_attribute();
  attributes->erase(
      std::remove_if(attributes->begin(), attributes->end(), IsEmptyList),
      attributes->end());
  return copy;
}

}  // namespace

bool IsOnnxDomain(absl::string_view domain) {
  return domain.empty() || domain == "ai.onnx";
}

NodeReader::NodeReader(int opset_version, std::set<DomainAndName> functions,
                       std::vector<std::string>* problems)
    : opset_version_(opset_version),
      functions_(std::move(functions)),
      problems_(problems) {}

template <typename... Parts>
void NodeReader::Problem(const Parts&... parts) {
  absl::StrAppend(&problems_->emplace_back(), parts...);
}

bool NodeReader::Read(const std::string& label,
                      const onnx::NodeProto& file_node, Node* node) {
  const bool is_onnx = IsOnnxDomain(file_node.domain());
  const OperatorInfo* op = is_onnx ? FindOperator(node->op_type) : nullptr;
  const onnx::OpSchema* schema =
      op == nullptr ? nullptr : FindSchema(*op, opset_version_);
  if (schema == nullptr) {
    const bool is_function = functions_.contains(
        std::make_pair(file_node.domain(), file_node.op_type()));
    // Functions have been reported.
    if (!is_function) ReportUnsupported(label, file_node);
    return false;
  }
  node->since_version = SinceVersion(*op, opset_version_);
  return AddAttributes(file_node, label, node) &&
         Verify(*schema, file_node, label);
}

void NodeReader::ReportUnsupported(const std::string& label,
                                   const onnx::NodeProto& node) {
  Unsupported& unsupported = unsupported_[{node.domain(), node.op_type()}];
  if (unsupported.nodes++ > 0) return;
  unsupported.problem = problems_->size();
  const std::string message =
      absl::StrCat(label, ": the operator is not supported");
  if (!IsOnnxDomain(node.domain())) {
    Problem(message, " (domain ", Quote(node.domain()), ")");
    return;
  }
  if (const OperatorInfo* const op = FindOperator(node.op_type())) {
    Problem(message, " at this opset; ONNX has it from opset ", op->versions[0],
            " on");
    return;
  }
  const bool has_graph =
      absl::c_any_of(node.attribute(),
                     [](const onnx::AttributeProto& a) { return a.has_g(); });
  if (has_graph) {
    Problem(message,
            ": a node with a graph inside is not trained; PyTorch's exporter "
            "writes fewer of them with dynamo=True, and none where an index or "
            "flatten() stands in place of squeeze(dim)");
    return;
  }
  const std::vector<std::string> like = OperatorsLike(node.op_type());
  Problem(message, like.empty() ? "" : "; did you mean ",
          absl::StrJoin(like, " or "), like.empty() ? "" : "?");
}

void NodeReader::CountUnsupported() {
  for (const auto& [op, unsupported] : unsupported_) {
    if (unsupported.nodes == 1) continue;
    absl::StrAppend(&(*problems_)[unsupported.problem], " (and ",
                    unsupported.nodes - 1, " more nodes of it)");
  }
}

bool NodeReader::AddAttributes(const onnx::NodeProto& file_node,
                               const std::string& label, Node* node) {
  bool good = true;
  for (const onnx::AttributeProto& attribute : file_node.attribute()) {
    absl::StatusOr<Attribute> value = ReadAttribute(attribute);
    if (!value.ok()) {
      Problem(label, ": attribute ", Quote(attribute.name()), " ",
              value.status().message());
      good = false;
    } else if (!node->attributes.emplace(attribute.name(), *std::move(value))
                    .second) {
      Problem(label, ": attribute ", Quote(attribute.name()),
              " is given twice");
      good = false;
    }
  }
  return good;
}

bool NodeReader::Verify(const onnx::OpSchema& schema,
                        const onnx::NodeProto& file_node,
                        const std::string& label) {
  try {
    schema.Verify(HasEmptyList(file_node) ? WithoutEmptyLists(file_node)
                                          : file_node);
    return true;
  } catch (const std::exception& e) {
    Problem(label, ": ", e.what());
    return false;
  }
}

absl::StatusOr<ConstantTensor> ConstantValue(const Node& node) {
  if (node.attributes.size() != 1) {
    return absl::InvalidArgumentError("needs exactly one value attribute");
  }
  const auto& [name, value] = *node.attributes.begin();
  if (const auto* tensor = std::get_if<ConstantTensor>(&value)) return *tensor;
  if (const auto* i = std::get_if<int64_t>(&value)) {
    return MakeTensor<int64_t>(DType::kInt64, {}, absl::MakeSpan(i, 1));
  }
  if (const auto* f = std::get_if<float>(&value)) {
    return MakeTensor<float>(DType::kFloat32, {}, absl::MakeSpan(f, 1));
  }
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    return MakeTensor<int64_t>(DType::kInt64,
                               {static_cast<int64_t>(ints->size())}, *ints);
  }
  if (const auto* floats = std::get_if<std::vector<float>>(&value)) {
    return MakeTensor<float>(DType::kFloat32,
                             {static_cast<int64_t>(floats->size())}, *floats);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("attribute ", Quote(name), " is not supported"));
}

}  // namespace syncline
