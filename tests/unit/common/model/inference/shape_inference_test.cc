// Goal: shapes are followed through a whole graph, and what does not fit is
// reported once, with node and shapes. Method: small models in ONNX text. The
// part beside: shape_inference_operator_test.cc (each operator's own rule).

#include "common/model/inference/shape_inference.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/graph_builder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"
#include "tests/unit/common/model/inference/shape_inference_fixture.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ShapeInferenceTest, ShapesAreFollowedThroughWhatIsComputedFromThem) {
  const Inferred inferred = Infer(13, R"(
      (float[N,6] a) => (y, m)
      <int64 zero = {0}, int64[1] axis = {0}, int64[1] two = {2}, int64 one = {1}>
      {
        s = Shape(a)
        n = Gather(s, zero)
        n1 = Unsqueeze(n, axis)
        six = Gather(s, one)
        half = Div(six, two)
        shape = Concat <axis=0> (n1, two, half)
        y = Reshape(a, shape)
        r = Range(zero, n, one)
        m = Equal(r, n1)
      })");
  EXPECT_THAT(inferred.problems, IsEmpty());
  EXPECT_EQ(inferred["y"], "float32[5,2,3]");
  EXPECT_EQ(inferred["m"], "bool[5]");
  const auto& shape = inferred.values[inferred.graph.FindValue("shape")];
  ASSERT_NE(shape.constant, nullptr);
  EXPECT_THAT(shape.constant->ints(), ElementsAre(5, 2, 3));
}

// As PyTorch's exporter writes nn.LSTM(3, 5, proj_size=2): with the first rows
// of its weights, and without the projection's.
TEST(ShapeInferenceTest, AProjectionThatTheFileLacksIsNamed) {
  const Inferred projected = Infer(20, R"(
      (float[7,2,3] x, float[1,8,3] w, float[1,8,2] r, float[1,2,2] h,
       float[1,2,5] c) => (y)
      { y = LSTM <hidden_size=2> (x, w, r, , , h, c) })");
  EXPECT_THAT(projected.problems,
              ElementsAre(AllOf(
                  HasSubstr("node 'LSTM#0' (LSTM, opset 20)"),
                  HasSubstr("hidden_size is 2, but input 6 ('c') is for a "
                            "state of 5; so torch.nn.LSTM(hidden_size=5, "
                            "proj_size=2) is exported"),
                  HasSubstr("Export a model with proj_size=0"))));
  const Inferred other = Infer(20, R"(
      (float[7,2,3] x, float[1,15,3] w, float[1,15,4] r) => (y)
      { y = GRU <hidden_size=5> (x, w, r) })");
  EXPECT_THAT(
      other.problems,
      ElementsAre(AllOf(HasSubstr("but input 2 ('r') is for a state of 4"),
                        Not(HasSubstr("proj_size")))));
}

TEST(ShapeInferenceTest, WeightsAreNotKnownBeforeTraining) {
  const Inferred inferred = Infer(13, R"(
      (float[2] x) => (y, z) <float[2] w = {1, 2}, int64[2] i = {1, 2}>
      { y = Neg(w) c = Constant <value_float=2.0> () z = Neg(c) j = Neg(i) })");
  EXPECT_THAT(inferred.problems, IsEmpty());
  const auto known = [&](const char* name) {
    return inferred.values[inferred.graph.FindValue(name)].constant != nullptr;
  };
  EXPECT_FALSE(known("y"));
  EXPECT_TRUE(known("z"));
  EXPECT_TRUE(known("j"));
}

TEST(ShapeInferenceTest, TilesThatAreTooLargeAreRefused) {
  const Inferred inferred = Infer(13, R"(
      (float[70000] x) => (y) <int64[1] n = {60000000000000}>
      { y = Tile(x, n) })");
  ASSERT_EQ(inferred.problems.size(), 1u);
  EXPECT_THAT(inferred.problems[0], HasSubstr("too large for a shape"));
}

TEST(ShapeInferenceTest, AnOutputTypeMayBeDeclaredWhereItCannotBeTold) {
  const Inferred inferred = Infer(
      13, "(float[2,3] a, int64[1] s) => (float[6] y) { y = Reshape(a, s) }");
  EXPECT_THAT(inferred.problems, IsEmpty());
  EXPECT_EQ(inferred["y"], "float32[6]");
  EXPECT_THAT(
      Infer(13, "(float[2,3] a, int64[1] s) => (y) { y = Reshape(a, s) }")
          .problems,
      ElementsAre("node 'Reshape#0' (Reshape, opset 13) with inputs "
                  "float32[2,3], int64[1]: the shape of its output 'y' cannot "
                  "be told from the file"));
}

TEST(ShapeInferenceTest, WhatDoesNotFitNamesNodeAndShapes) {
  struct Case {
    const char* text;
    const char* problem;
  };
  const Case cases[] = {
      {"(float[2,3] a, float[4,5] b) => (y) { y = Gemm(a, b) }",
       "node 'Gemm#0' (Gemm, opset 13) with inputs float32[2,3], float32[4,5]: "
       "the inner dimensions of the product differ"},
      {"(float[2,3] a, float[2,5] b) => (y) { y = Gemm <transB=1> (a, b) }",
       "the inner dimensions of the product differ"},
      {"(float a, float[2,5] b) => (y) { y = MatMul(a, b) }", "float32[]"},
      {"(float[2] a) => (y) <float[2] r = {0.5, 0.5}> { y = Dropout(a, r) }",
       "node 'Dropout#0'"},
      {"(float[2,3] a) => (y) <int64[1,2] s = {3, 2}> { y = Reshape(a, s) }",
       "node 'Reshape#0'"},
      {"(float[2,3] a) => (y) <int64[3] s = {2, 3, 0}> { y = Reshape(a, s) }",
       "node 'Reshape#0'"},
      {"(float[2,3] a) => (y) <int64[1] s = {-7}> { y = Reshape(a, s) }",
       "node 'Reshape#0'"},
      {"(float[2,3] a) => (y) { y = LogSoftmax <axis=-3> (a) }",
       "node 'LogSoftmax#0'"},
      {"(float[2,3] a, float[3,5] b, float[4] c) => (y) { y = Gemm(a, b, c) }",
       "float32[2,3], float32[3,5], float32[4]: the third does not broadcast "
       "to the product, float32[2,5]"},
      {"(float[3] a, float[3,5] b) => (y) { y = Gemm(a, b) }", "float32[3]"},
      {"(float[2,3] a, float[4,5] b) => (y) { y = MatMul(a, b) }",
       "node 'MatMul#0' (MatMul, opset 13) with inputs float32[2,3], "
       "float32[4,5]: Incompatible dimensions for matrix multiplication"},
      {"(float[2,3] a, float[4] b) => (y) { y = Add(a, b) }",
       "node 'Add#0' (Add, opset 13) with inputs float32[2,3], float32[4]: "
       "Incompatible dimensions"},
      {"(float[2,3] a, int64[3] b) => (y) { y = Mul(a, b) }",
       "node 'Mul#0' (Mul, opset 13) with inputs float32[2,3], int64[3]: "},
      {"(int64[2,3] a) => (y) { y = Tanh(a) }",
       "node 'Tanh#0' (Tanh, opset 13) with inputs int64[2,3]: "},
      {"(float[2,3] a) => (y) { y = Flatten <axis=4> (a) }",
       "node 'Flatten#0' (Flatten, opset 13) with inputs float32[2,3]: "},
      {"(float[2,3] a) => (y) { y = Softmax <axis=2> (a) }",
       "node 'Softmax#0' (Softmax, opset 13) with inputs float32[2,3]: "},
      {"(float[2,3] a) => (y) <int64[2] s = {4, 2}> { y = Reshape(a, s) }",
       "node 'Reshape#0' (Reshape, opset 13) with inputs float32[2,3], "
       "int64[2]: the result float32[4,2] has another number of elements"},
      {"(float[2,3] a) => (y) <int64[2] s = {-1, 4}> { y = Reshape(a, s) }",
       "node 'Reshape#0'"},
      {"(float[2,3] a) => (y) <int64[2] s = {-1, -1}> { y = Reshape(a, s) }",
       "node 'Reshape#0'"},
      {"(float[2,3] a) => (y) <int64[3] s = {4294967296, 4294967296, -1}> "
       "{ y = Reshape(a, s) }",
       "the values of 's' are too large for a shape"},
      {"(float[2,3] a) => (y) <float[2] s = {6, 1}> { y = Reshape(a, s) }",
       "node 'Reshape#0'"},
      {"(float[2,3] a) => (float[2,4] y) { y = Relu(a) }",
       "'y' is float32[2,3], but the file declares another type or shape"},
      {"(float[2,3] a) => (int64[2,3] y) { y = Relu(a) }",
       "'y' is float32[2,3], but the file declares another type or shape"},
      {"(float[2,3] a) => (y) <float[2,3,1] h> { h = Relu(a) y = Tanh(h) }",
       "'h' is float32[2,3], but the file declares another type or shape"},
      {"(float[2,3,4,5] a, float[3,4,3,2] w) => (y) "
       "{ y = ConvTranspose <output_shape=[9]> (a, w) }",
       "the shape of its output 'y' cannot be told from the file"},
      {"(float[2,3,4,5] a, float[3,4,3,2] w) => (y) "
       "{ y = ConvTranspose <output_shape=[-1, 9]> (a, w) }",
       "the shape of its output 'y' cannot be told from the file"},
      {"(float[2,3,4,5] a, float[3,4,3,2] w) => (y) "
       "{ y = ConvTranspose <output_shape=[9, -1]> (a, w) }",
       "the shape of its output 'y' cannot be told from the file"},
      {"(float[8388608,1] a, float[1,16777216] b) => (y) { y = Add(a, b) }",
       "its output 'y' would be float32[8388608,16777216], too large"},
  };
  for (const Case& c : cases) {
    const Inferred inferred = Infer(13, c.text);
    EXPECT_THAT(inferred.problems, ElementsAre(HasSubstr(c.problem))) << c.text;
  }
}

TEST(ShapeInferenceTest, WhatDependsOnAFailureIsNotReportedToo) {
  const Inferred inferred = Infer(13, R"(
      (float[2,3] a, float[4] b, float[5] c) => (y, z)
      { s = Add(a, b)  y = Relu(s)  z = Add(a, c) })");
  EXPECT_THAT(inferred.problems,
              ElementsAre(HasSubstr("'Add#0'"), HasSubstr("'Add#2'")));
  EXPECT_EQ(inferred["y"], "?");
}

TEST(ShapeInferenceTest, TheBatchIsANumberOrASymbol) {
  constexpr char kText[] =
      "(float[N,3] x, float[4,2] w) => (y) { y = MatMul(x, w) }";
  EXPECT_THAT(Infer(13, kText, 7).problems,
              ElementsAre(HasSubstr("inputs float32[7,3], float32[4,2]")));
  EXPECT_THAT(Infer(13, kText, 7, BatchStyle::kSymbol).problems,
              ElementsAre(HasSubstr("inputs float32[N,3], float32[4,2]")));
}

// libonnx tells of the number that a trial takes for the batch size.
TEST(ShapeInferenceTest, MessagesSayTheBatchAsASymbol) {
  const Inferred inferred = Infer(
      13, "(float[N,3] a, float[10,3] b) => (y) { y = Concat<axis=1>(a, b) }",
      7919, BatchStyle::kSymbol);
  ASSERT_EQ(inferred.problems.size(), 1u);
  EXPECT_THAT(inferred.problems[0], HasSubstr("=N "));
  EXPECT_THAT(inferred.problems[0], testing::Not(HasSubstr("7919")));
}

// A hundred nodes of 8 MiB each, in a file of a few kilobytes.
TEST(ShapeInferenceTest, WhatIsKnownBeforehandIsBoundedInAll) {
  std::string nodes = "shape = Constant <value = int64[1] {1048576}> ()\n";
  for (int i = 0; i < 100; ++i) {
    absl::StrAppend(&nodes, "v", i,
                    " = ConstantOfShape <value = int64[1] {1}> (shape)\n");
  }
  const Inferred inferred =
      Infer(13, absl::StrCat("(float[2] x) => (y) {", nodes, " y = Relu(x) }"));
  ASSERT_EQ(inferred.problems.size(), 1u);
  EXPECT_THAT(inferred.problems[0], HasSubstr("takes more than 512 MiB"));
  int64_t bytes = 0;
  for (const InferredValue& value : inferred.values) {
    if (value.constant != nullptr) {
      bytes += static_cast<int64_t>(value.constant->bytes.size());
    }
  }
  EXPECT_LE(bytes, kFoldedBytesMax);
}

// The scheduler infers the shapes of every model that is submitted.
TEST(ShapeInferenceTest, AModelMayHaveManyInputs) {
  constexpr int kInputs = 100'000;
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(13);
  const auto declare = [](const std::string& name,
                          onnx::ValueInfoProto* value) {
    value->set_name(name);
    auto* tensor = value->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(onnx::TensorProto::FLOAT);
    tensor->mutable_shape()->add_dim()->set_dim_value(3);
  };
  for (int i = 0; i < kInputs; ++i) {
    declare(absl::StrCat("input.", i), model.mutable_graph()->add_input());
  }
  onnx::NodeProto* const node = model.mutable_graph()->add_node();
  node->set_op_type("Relu");
  node->add_input(absl::StrCat("input.", kInputs - 1));
  node->add_output("y");
  declare("y", model.mutable_graph()->add_output());
  std::vector<std::string> problems;
  const BuiltGraph built = BuildGraph({}, &model, &problems);
  EXPECT_THAT(problems, IsEmpty());
  const std::vector<InferredValue> values =
      InferValues(built.graph, built.graph.nodes, model.graph(),
                  built.file_nodes, 5, BatchStyle::kNumber, &problems);
  EXPECT_THAT(problems, IsEmpty());
  const InferredValue& y = values.at(built.graph.FindValue("y"));
  EXPECT_EQ(DescribeTensor(y.dtype, y.dims), "float32[3]");
}

}  // namespace
}  // namespace syncline
