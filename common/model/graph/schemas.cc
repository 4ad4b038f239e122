#include "common/model/graph/schemas.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/base/edit_distance.h"
#include "common/model/graph/operator_list.h"
#include "common/model/graph/schema_overrides.h"
#include "onnx/defs/schema.h"

namespace syncline {
namespace {

#define SYNCLINE_TABULATE_SCHEMA(name, inputs, outputs, ...) \
  {#name, inputs, outputs, {__VA_ARGS__}},
constexpr OperatorInfo kOperators[] = {
    SYNCLINE_OPERATORS(SYNCLINE_TABULATE_SCHEMA)};
#undef SYNCLINE_TABULATE_SCHEMA

// Operators that the import replaces.
constexpr OperatorInfo kResolvedAtImport[] = {
    {"CastLike", 0b1, 0b1, {15, 19, 21, 23, 24, 25}},
    {"Constant", 0, 0, {11, 12, 13, 19, 21, 23, 24, 25}},
};

// The newest opset that libonnx 1.12 knows. Of our operators, what came later
// only widened the accepted element types, to some that DType does not have, so
// the newest schema it knows serves all later ones; except those in
// schema_overrides.cc.
constexpr int kOpsetOfLibonnx = 17;

// Has dilations from 19 on, which MaxPool's rule for shapes obeys.
const onnx::OpSchema* DilatedAveragePoolSchema() {
  static const onnx::OpSchema* const schema = [] {
    using onnx::AttributeProto;
    auto* pool = new onnx::OpSchema("AveragePool", __FILE__, __LINE__);
    pool->SinceVersion(19)
        .Attr("kernel_shape", "", AttributeProto::INTS)
        .Attr("strides", "", AttributeProto::INTS, onnx::OPTIONAL_VALUE)
        .Attr("dilations", "", AttributeProto::INTS, onnx::OPTIONAL_VALUE)
        .Attr("pads", "", AttributeProto::INTS, onnx::OPTIONAL_VALUE)
        .Attr("auto_pad", "", AttributeProto::STRING, std::string("NOTSET"))
        .Attr("ceil_mode", "", AttributeProto::INT, int64_t{0})
        .Attr("count_include_pad", "", AttributeProto::INT, int64_t{0})
        .Input(0, "X", "", "T")
        .Output(0, "Y", "", "T")
        .TypeConstraint(
            "T", {"tensor(float16)", "tensor(float)", "tensor(double)"}, "")
        .TypeAndShapeInferenceFunction(
            onnx::OpSchemaRegistry::Schema("MaxPool", kOpsetOfLibonnx, "")
                ->GetTypeAndShapeInferenceFunction());
    pool->Finalize();
    return pool;
  }();
  return schema;
}

}  // namespace

const OperatorInfo* FindOperator(absl::string_view op_type) {
  for (const OperatorInfo& op : kOperators) {
    if (op.op_type == op_type) return &op;
  }
  for (const OperatorInfo& op : kResolvedAtImport) {
    if (op.op_type == op_type) return &op;
  }
  return nullptr;
}

std::vector<std::string> OperatorsLike(absl::string_view name) {
  // Enough for any operator there is; hostile names are not measured.
  constexpr size_t kNameMax = 64;
  constexpr size_t kShownMax = 3;
  std::vector<std::pair<size_t, std::string>> found;
  const std::string given = absl::AsciiStrToLower(name.substr(0, kNameMax + 1));
  for (const OperatorInfo& op : kOperators) {
    const std::string known = absl::AsciiStrToLower(op.op_type);
    if (given.size() > kNameMax) break;
    // Or the beginning of it.
    const bool begins = given.size() >= 4 && absl::StartsWith(known, given);
    const size_t distance =
        begins && known != given ? 1 : EditDistance(given, known);
    if (distance <= 1 + known.size() / 8) {
      found.emplace_back(distance, op.op_type);
    }
  }
  std::sort(found.begin(), found.end());
  const bool is_exact = !found.empty() && found[0].first == 0;
  found.resize(std::min(found.size(), is_exact ? 1 : kShownMax));
  std::vector<std::string> names;
  for (auto& [distance, known] : found) names.push_back(std::move(known));
  return names;
}

int SinceVersion(const OperatorInfo& op, int opset_version) {
  int since = 0;
  for (int version : op.versions) {
    if (version != 0 && version <= opset_version) since = version;
  }
  return since;
}

const onnx::OpSchema* FindSchema(const OperatorInfo& op, int opset_version) {
  const int since = SinceVersion(op, opset_version);
  if (since == 0) return nullptr;
  if (const auto* ours = FindSchemaOverride(op.op_type, since)) return ours;
  if (op.op_type == "AveragePool" && since >= 19) {
    return DilatedAveragePoolSchema();
  }
  // From 18 on their axes are an input, as ReduceSum's have been since 13; they
  // are one signature and one rule for shapes.
  if (absl::StartsWith(op.op_type, "Reduce") && since >= 18) {
    return onnx::OpSchemaRegistry::Schema("ReduceSum", kOpsetOfLibonnx, "");
  }
  return onnx::OpSchemaRegistry::Schema(
      std::string(op.op_type), std::min(opset_version, kOpsetOfLibonnx), "");
}

bool IsResolvedAtImport(absl::string_view op_type) {
  return absl::c_any_of(kResolvedAtImport, [&](const OperatorInfo& op) {
    return op.op_type == op_type;
  });
}

std::vector<std::string> SupportedOperators() {
  std::vector<std::string> names;
  for (const OperatorInfo& op : kOperators) names.emplace_back(op.op_type);
  return names;
}

bool IsSupportedOperator(absl::string_view op_type) {
  return !IsResolvedAtImport(op_type) && FindOperator(op_type) != nullptr;
}

}  // namespace syncline
