#include "common/model/schemas.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/model/model.h"
#include "common/model/newer_schemas.h"
#include "onnx/defs/schema.h"

namespace syncline {
namespace {

// One line per operator. worker/ops has the code for each.
constexpr OperatorInfo kOperators[] = {
    {"Abs", 1, {6, 13}},
    {"Add", 2, {7, 13, 14}},
    {"And", 0, {7}},
    {"ArgMax", 0, {11, 12, 13}},
    {"Attention", 6, {23, 24}},
    {"AveragePool", 1, {10, 11, 19, 22}},
    {"BatchNormalization", 3, {9, 14, 15}},
    {"Cast", 1, {9, 13, 19, 21, 23, 24, 25}},
    {"CastLike", 1, {15, 19, 21, 23, 24, 25}},
    {"Ceil", 0, {6, 13}},
    {"Celu", 1, {12}},
    {"Clip", 1, {11, 12, 13}},
    {"Concat", 32, {11, 13}},
    {"Constant", 0, {11, 12, 13, 19, 21, 23, 24, 25}},
    {"ConstantOfShape", 0, {9, 20, 21, 23, 24, 25}},
    {"Conv", 3, {11, 22}},
    {"ConvTranspose", 3, {11, 22}},
    {"Cos", 1, {7, 22}},
    {"CumSum", 1, {11, 14}},
    {"Div", 2, {7, 13, 14}},
    {"Dropout", 1, {10, 12, 13, 22}},
    {"Einsum", 32, {12}},
    {"Elu", 1, {6, 22}},
    {"Equal", 0, {11, 13, 19}},
    {"Erf", 1, {9, 13}},
    {"Exp", 1, {6, 13}},
    {"Expand", 1, {8, 13}},
    {"Flatten", 1, {11, 13, 21, 23, 24, 25}},
    {"Floor", 0, {6, 13}},
    {"GRU", 6, {7, 14, 22}},
    {"Gather", 1, {11, 13}},
    {"GatherElements", 1, {11, 13}},
    {"GatherND", 1, {11, 12, 13}},
    {"Gelu", 1, {20}},
    {"Gemm", 3, {11, 13}},
    {"GlobalAveragePool", 1, {1, 22}},
    {"GlobalMaxPool", 1, {1, 22}},
    {"Greater", 0, {9, 13}},
    {"GreaterOrEqual", 0, {12, 16}},
    {"GroupNormalization", 3, {18, 21}},
    {"HardSigmoid", 1, {6, 22}},
    {"HardSwish", 1, {14, 22}},
    {"Identity", 1, {1, 13, 14, 16, 19, 21, 23, 24, 25}},
    {"InstanceNormalization", 3, {6, 22}},
    {"IsInf", 0, {10, 20}},
    {"IsNaN", 0, {9, 13, 20}},
    {"LSTM", 8, {7, 14, 22}},
    {"LayerNormalization", 3, {17}},
    {"LeakyRelu", 1, {6, 16}},
    {"Less", 0, {9, 13}},
    {"LessOrEqual", 0, {12, 16}},
    {"Log", 1, {6, 13}},
    {"LogSoftmax", 1, {11, 13}},
    {"MatMul", 2, {9, 13}},
    {"Max", 32, {8, 12, 13}},
    {"MaxPool", 1, {11, 12, 22}},
    {"Mean", 32, {8, 13}},
    {"Min", 32, {8, 12, 13}},
    {"Mish", 1, {18, 22}},
    {"Mod", 2, {10, 13}},
    {"Mul", 2, {7, 13, 14}},
    {"Neg", 1, {6, 13}},
    {"NegativeLogLikelihoodLoss", 1, {12, 13, 22}},
    {"Not", 0, {1}},
    {"OneHot", 0, {11}},
    {"Or", 0, {7}},
    {"PRelu", 2, {9, 16}},
    {"Pad", 1, {11, 13, 18, 19, 21, 23, 24, 25}},
    {"Pow", 2, {7, 12, 13, 15}},
    {"RMSNormalization", 2, {23}},
    {"RNN", 6, {7, 14, 22}},
    {"Range", 0, {11}},
    {"Reciprocal", 1, {6, 13}},
    {"ReduceL1", 1, {11, 13, 18}},
    {"ReduceL2", 1, {11, 13, 18}},
    {"ReduceLogSum", 1, {11, 13, 18}},
    {"ReduceLogSumExp", 1, {11, 13, 18}},
    {"ReduceMax", 1, {11, 12, 13, 18, 20}},
    {"ReduceMean", 1, {11, 13, 18}},
    {"ReduceMin", 1, {11, 12, 13, 18, 20}},
    {"ReduceProd", 1, {11, 13, 18}},
    {"ReduceSum", 1, {11, 13}},
    {"ReduceSumSquare", 1, {11, 13, 18}},
    {"Relu", 1, {6, 13, 14}},
    {"Reshape", 1, {5, 13, 14, 19, 21, 23, 24, 25}},
    {"RotaryEmbedding", 1, {23}},
    {"Round", 0, {11, 22}},
    {"ScatterElements", 3, {11, 13, 16, 18}},
    {"ScatterND", 3, {11, 13, 16, 18}},
    {"Selu", 1, {6, 22}},
    {"Shape", 0, {1, 13, 15, 19, 21, 23, 24, 25}},
    {"Sigmoid", 1, {6, 13}},
    {"Sign", 0, {9, 13}},
    {"Sin", 1, {7, 22}},
    {"Size", 0, {1, 13, 19, 21, 23, 24, 25}},
    {"Slice", 1, {11, 13}},
    {"Softmax", 1, {11, 13}},
    {"SoftmaxCrossEntropyLoss", 1, {12, 13}},
    {"Softplus", 1, {1, 22}},
    {"Softsign", 1, {1, 22}},
    {"Split", 1, {11, 13, 18}},
    {"Sqrt", 1, {6, 13}},
    {"Squeeze", 1, {11, 13, 21, 23, 24, 25}},
    {"Sub", 2, {7, 13, 14}},
    {"Sum", 32, {8, 13}},
    {"Swish", 1, {24}},
    {"Tanh", 1, {6, 13}},
    {"ThresholdedRelu", 1, {10, 22}},
    {"Tile", 1, {6, 13}},
    {"Transpose", 1, {1, 13, 21, 23, 24, 25}},
    {"Trilu", 1, {14}},
    {"Unsqueeze", 1, {11, 13, 21, 23, 24, 25}},
    {"Where", 3, {9, 16}},
    {"Xor", 0, {7}},
};

// The newest opset that libonnx 1.12 knows. Of our operators, what came later
// only widened the accepted element types, to some that DType does not have, so
// the newest schema it knows serves all later ones; except those in
// newer_schemas.cc.
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
  return nullptr;
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
  if (const auto* newer = FindNewerSchema(op.op_type, since)) return newer;
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
  return op_type == "CastLike" || op_type == "Constant";
}

std::vector<std::string> SupportedOperators() {
  std::vector<std::string> names;
  for (const OperatorInfo& op : kOperators) {
    if (!IsResolvedAtImport(op.op_type)) names.emplace_back(op.op_type);
  }
  return names;
}

bool IsSupportedOperator(absl::string_view op_type) {
  return !IsResolvedAtImport(op_type) && FindOperator(op_type) != nullptr;
}

}  // namespace syncline
