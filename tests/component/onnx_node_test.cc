// Goal: operators mean what ONNX says they mean. Method: ONNX's own node tests,
// each a model with inputs and outputs: every one whose operators are supported
// is parsed, run forward and compared. Tests with random outputs are compared
// as far as they are determined.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/aligned_buffer.h"
#include "common/model/model.h"
#include "tests/testing/onnx_tensor.h"
#include "worker/ops/op_table.h"

namespace syncline {
namespace {

std::filesystem::path Folder() {
  const char* root = std::getenv("SYNCLINE_TEST_DATA");
  return std::filesystem::path(root != nullptr ? root : "../shared/data") /
         "onnx/node";
}

std::shared_ptr<const Model> ParseModel(const std::string& name) {
  std::ifstream file(Folder() / name / "model.onnx", std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  auto model = Model::Parse(bytes.str(), name);
  return model.ok() ? *std::move(model) : nullptr;
}

// Tests whose models have only operators that this build supports. (One has an
// input without elements, which would be read as an open batch dimension.)
std::vector<std::string> SupportedTests() {
  std::vector<std::string> names;
  if (!std::filesystem::exists(Folder())) return names;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    const std::string name = entry.path().filename().string();
    const std::shared_ptr<const Model> model = ParseModel(name);
    if (model != nullptr && model->InferShapes(Model::kAsWritten).ok()) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A model with a value for everything, computed node by node.
class NodeTest {
 public:
  explicit NodeTest(const std::string& name)
      : name_(name), model_(ParseModel(name)), graph_(model_->graph()) {
    const auto shapes = model_->InferShapes(Model::kAsWritten);
    EXPECT_TRUE(shapes.ok()) << shapes.status();
    shapes_ = *shapes;
    values_.resize(graph_.values.size());
    for (const Initializer& i : graph_.initializers)
      values_[i.value] = i.tensor;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      values_[graph_.inputs[i]] = Read(absl::StrCat("input_", i));
    }
  }

  void Run() {
    for (const Node& node : graph_.nodes) RunNode(node);
  }

  const ConstantTensor& input(size_t i) const {
    return values_[graph_.inputs[i]];
  }
  size_t output_count() const { return graph_.outputs.size(); }
  const ConstantTensor& output(size_t i) const {
    return values_[graph_.outputs[i]];
  }
  ConstantTensor expected(size_t i) const {
    return Read(absl::StrCat("output_", i));
  }

 private:
  ConstantTensor Read(const std::string& file) const {
    auto tensor = testing::ReadOnnxTensor(Folder() / name_ / "test_data_set_0" /
                                          absl::StrCat(file, ".pb"));
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return tensor.ok() ? *tensor : ConstantTensor();
  }

  TensorType TypeOf(ValueId v) const {
    if (v == kNoValue) return {};
    return {.present = true,
            .dtype = graph_.values[v].dtype,
            .dims = shapes_[v],
            .constant = values_[v].bytes.data()};
  }

  void RunNode(const Node& node) {
    OpSpec spec;
    spec.node = &node;
    spec.training = absl::StrContains(name_, "training");
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (ValueId v : node.inputs) {
      spec.inputs.push_back(TypeOf(v));
      inputs.push_back(v == kNoValue ? nullptr : values_[v].bytes.data());
    }
    if (node.op_type == "BatchNormalization") {
      // In these models nothing is an initializer: the values are not frozen.
      for (TensorType& input : spec.inputs) input.constant = nullptr;
    }
    for (ValueId v : node.outputs) {
      spec.outputs.push_back(TypeOf(v));
      outputs.push_back(v == kNoValue ? nullptr : Allocate(v));
    }
    auto op = CreateOp(spec);
    ASSERT_TRUE(op.ok()) << op.status();
    const Op::Traits& traits = (*op)->traits();
    AlignedFloats workspace(traits.workspace_bytes / sizeof(float) + 1);
    AlignedFloats scratch(traits.forward_scratch_bytes / sizeof(float) + 1);
    const absl::Status status = (*op)->Forward({.inputs = inputs,
                                                .outputs = outputs,
                                                .workspace = workspace.data(),
                                                .scratch = scratch.data()});
    ASSERT_TRUE(status.ok()) << status;
  }

  void* Allocate(ValueId v) {
    ConstantTensor& value = values_[v];
    value.dtype = graph_.values[v].dtype;
    value.dims = shapes_[v];
    value.bytes.assign(ElementCount(value.dims) * DTypeBytes(value.dtype), '?');
    return value.bytes.data();
  }

  const std::string name_;
  const std::shared_ptr<const Model> model_;
  const Graph& graph_;
  std::vector<Dims> shapes_;
  std::vector<ConstantTensor> values_;  // by ValueId
};

void ExpectSameDoubles(const ConstantTensor& got, const ConstantTensor& want) {
  if (got.bytes == want.bytes) return;  // infinities and NaN as well
  const auto* const g = reinterpret_cast<const double*>(got.bytes.data());
  const auto* const w = reinterpret_cast<const double*>(want.bytes.data());
  for (size_t i = 0; i < want.bytes.size() / sizeof(double); ++i) {
    ASSERT_NEAR(g[i], w[i], 1e-9 * std::max(1.0, std::fabs(w[i])))
        << "element " << i;
  }
}

void ExpectSame(const ConstantTensor& got, const ConstantTensor& want) {
  ASSERT_EQ(got.dtype, want.dtype);
  ASSERT_EQ(got.dims, want.dims);
  if (got.dtype == DType::kFloat64) {
    ExpectSameDoubles(got, want);
    return;
  }
  if (got.dtype != DType::kFloat32) {
    EXPECT_EQ(got.bytes, want.bytes);
    return;
  }
  for (size_t i = 0; i < want.floats().size(); ++i) {
    const float w = want.floats()[i];
    ASSERT_NEAR(got.floats()[i], w, 1e-5f * std::max(1.0f, std::fabs(w)))
        << "element " << i;
  }
}

// What is known of a random Dropout: each element is 0 or scaled up, and a
// mask says which.
void ExpectDropped(const NodeTest& test) {
  const float ratio = test.input(1).floats()[0];
  const auto x = test.input(0).floats();
  const auto y = test.output(0).floats();
  ASSERT_EQ(y.size(), x.size());
  for (size_t i = 0; i < y.size(); ++i) {
    const float scaled = x[i] / (1 - ratio);
    EXPECT_TRUE(y[i] == 0 || std::fabs(y[i] - scaled) < 1e-5f) << y[i];
    if (test.output_count() < 2) continue;
    EXPECT_EQ(test.output(1).bytes[i], y[i] != 0 ? 1 : 0);
  }
}

class OnnxNodeTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OnnxNodeTest, OutputsAreTheOnesOnnxGives) {
  NodeTest test(GetParam());
  test.Run();
  const bool random = GetParam() == "test_training_dropout_default" ||
                      GetParam() == "test_training_dropout_mask";
  if (random) return ExpectDropped(test);
  ASSERT_GT(test.output_count(), 0u);
  for (size_t i = 0; i < test.output_count(); ++i) {
    SCOPED_TRACE(absl::StrCat("output ", i));
    ExpectSame(test.output(i), test.expected(i));
  }
}

INSTANTIATE_TEST_SUITE_P(Onnx, OnnxNodeTest,
                         ::testing::ValuesIn(SupportedTests()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnnxNodeTest);

// So that the suite above cannot shrink unnoticed.
TEST(OnnxNodeTestList, EveryOperatorWithNodeTestsIsCovered) {
  if (!std::filesystem::exists(Folder())) {
    GTEST_SKIP() << "no ONNX node tests at " << Folder();
  }
  const std::vector<std::string> names = SupportedTests();
  const std::map<std::string, int> least = {{"test_add", 2},
                                            {"test_sub", 1},
                                            {"test_mul", 2},
                                            {"test_div", 2},
                                            {"test_gemm_", 8},
                                            {"test_matmul_", 3},
                                            {"test_relu", 1},
                                            {"test_sigmoid", 1},
                                            {"test_tanh", 1},
                                            {"test_gelu_", 3},
                                            {"test_flatten_", 2},
                                            {"test_reshape_", 3},
                                            {"test_softmax_", 3},
                                            {"test_logsoftmax_", 2},
                                            {"test_dropout_", 3},
                                            {"test_training_dropout_", 3},
                                            {"test_identity", 1},
                                            {"test_constant", 1},
                                            {"test_gather_", 1},
                                            {"test_reduce_sum_", 2},
                                            {"test_concat_", 3},
                                            {"test_reduce_mean_", 1},
                                            {"test_squeeze", 1},
                                            {"test_unsqueeze_", 1},
                                            {"test_cast_", 1},
                                            {"test_scatternd_add", 1},
                                            {"test_transpose_", 1},
                                            {"test_exp", 1},
                                            {"test_neg", 1},
                                            {"test_pow_", 1},
                                            {"test_sqrt", 1},
                                            {"test_averagepool_", 3},
                                            {"test_basic_conv_", 2},
                                            {"test_batchnorm_", 4},
                                            {"test_conv_with_", 1},
                                            {"test_convtranspose", 1},
                                            {"test_maxpool_", 5},
                                            {"test_globalaveragepool", 1},
                                            {"test_globalmaxpool", 1},
                                            {"test_layer_normalization_", 3},
                                            {"test_rms_normalization_", 2},
                                            {"test_slice", 1},
                                            {"test_expand_", 1},
                                            {"test_shape", 1},
                                            {"test_constantofshape_", 1},
                                            {"test_attention_", 2},
                                            {"test_einsum_", 1},
                                            {"test_rotary_embedding", 1},
                                            {"test_argmax_", 1},
                                            {"test_cumsum_", 1},
                                            {"test_gathernd_", 1},
                                            {"test_instancenorm_", 1},
                                            {"test_group_normalization_", 1},
                                            {"test_leakyrelu", 1},
                                            {"test_elu", 1},
                                            {"test_selu", 1},
                                            {"test_hardswish", 1},
                                            {"test_softplus", 1},
                                            {"test_abs", 1},
                                            {"test_reciprocal", 1},
                                            {"test_prelu_", 1},
                                            {"test_sum_", 1},
                                            {"test_swish", 1},
                                            {"test_reduce_max_", 1},
                                            {"test_scatter_elements_", 2},
                                            {"test_sce_", 9},
                                            {"test_nllloss_", 2},
                                            {"test_gru_", 1}};
  int total = 0;
  for (const auto& [prefix, count] : least) {
    const int found = std::count_if(
        names.begin(), names.end(),
        [p = prefix](const auto& name) { return absl::StartsWith(name, p); });
    EXPECT_GE(found, count) << prefix << "*";
    total += count;
  }
  EXPECT_GE(names.size(), static_cast<size_t>(total));
}

// The first cells of a table's rows in tests/README.md: what is not run, why.
std::vector<std::string> ListedAsNotRun() {
  std::ifstream readme("tests/README.md");
  std::vector<std::string> names;
  for (std::string line; std::getline(readme, line);) {
    absl::string_view name = line;
    if (!absl::ConsumePrefix(&name, "| `test_")) continue;
    names.push_back(absl::StrCat("test_", name.substr(0, name.find('`'))));
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(OnnxNodeTestList, WhatIsNotRunIsListedInTheReadme) {
  if (!std::filesystem::exists(Folder())) {
    GTEST_SKIP() << "no ONNX node tests at " << Folder();
  }
  const std::vector<std::string> run = SupportedTests();
  std::vector<std::string> not_run;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    const std::string name = entry.path().filename().string();
    if (!std::binary_search(run.begin(), run.end(), name)) {
      not_run.push_back(name);
    }
  }
  std::sort(not_run.begin(), not_run.end());
  EXPECT_EQ(not_run, ListedAsNotRun());
}

}  // namespace
}  // namespace syncline
