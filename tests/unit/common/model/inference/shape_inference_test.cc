// Goal: types and shapes of every supported operator, with the semantics of the
// opset, and a report naming node and shapes where they do not fit.
// Method: one-node models in ONNX text with concrete shapes, per opset.

#include "common/model/inference/shape_inference.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/graph_builder.h"
#include "common/model/graph/onnx_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Inferred {
  Graph graph;
  std::vector<InferredValue> values;
  std::vector<std::string> problems;

  // "float32[2,3]", or "?" if it is not known.
  std::string operator[](absl::string_view name) const {
    const InferredValue& value = values.at(graph.FindValue(name));
    return value.known ? DescribeTensor(value.dtype, value.dims) : "?";
  }
};

Inferred Infer(int opset, const std::string& text, int64_t batch = 5,
               BatchStyle style = BatchStyle::kNumber) {
  onnx::ModelProto model;
  const absl::Status status =
      ReadOnnxFile(absl::StrCat("<ir_version: 8, opset_import: [\"\" : ", opset,
                                "]> g ", text),
                   &model);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::string> build_problems;
  BuiltGraph built = BuildGraph({}, &model, &build_problems);
  EXPECT_THAT(build_problems, IsEmpty());
  Inferred result;
  result.values = InferValues(built.graph, built.graph.nodes, model.graph(),
                              built.file_nodes, batch, style, &result.problems);
  result.graph = std::move(built.graph);
  return result;
}

// The output `y` of one node over inputs declared as `inputs`.
std::string Output(int opset, const std::string& inputs,
                   const std::string& node) {
  const Inferred inferred =
      Infer(opset, absl::StrCat("(", inputs, ") => (y) { y = ", node, " }"));
  EXPECT_THAT(inferred.problems, IsEmpty());
  return inferred["y"];
}

TEST(ShapeInferenceTest, EveryOperator) {
  struct Case {
    const char* inputs;
    const char* node;
    const char* output;
  };
  const Case cases[] = {
      {"float[2,3] a, float[3,4] b", "Gemm(a, b)", "float32[2,4]"},
      {"float[3,2] a, float[4,3] b, float[4] c",
       "Gemm <transA=1, transB=1> (a, b, c)", "float32[2,4]"},
      {"float[2,3] a, float[3,4] b, float[2,1] c", "Gemm(a, b, c)",
       "float32[2,4]"},
      {"double[2,3] a, double[3,4] b", "MatMul(a, b)", "float64[2,4]"},
      {"float[5,1,2,3] a, float[6,3,4] b", "MatMul(a, b)", "float32[5,6,2,4]"},
      {"float[3] a, float[3] b", "MatMul(a, b)", "float32[]"},
      {"float[2,1,3] a, float[4,1] b", "Add(a, b)", "float32[2,4,3]"},
      {"float[2,3] a, float b", "Sub(a, b)", "float32[2,3]"},
      {"int64[2,3] a, int64[3] b", "Mul(a, b)", "int64[2,3]"},
      {"float[2,3] a, float[1] b", "Div(a, b)", "float32[2,3]"},
      {"float[2,3] a", "Relu(a)", "float32[2,3]"},
      {"float[2,3] a", "Sigmoid(a)", "float32[2,3]"},
      {"float[2,3] a", "Tanh(a)", "float32[2,3]"},
      {"float[2,3] a", "Identity(a)", "float32[2,3]"},
      {"float[2,3] a", "Erf(a)", "float32[2,3]"},
      {"float[2,3] a", "Exp(a)", "float32[2,3]"},
      {"int64[2,3] a", "Neg(a)", "int64[2,3]"},
      {"float[2,3] a, float[3] b", "Pow(a, b)", "float32[2,3]"},
      {"float[2,3] a", "Sqrt(a)", "float32[2,3]"},
      {"float[2,3,4] a", "Flatten(a)", "float32[2,12]"},
      {"float[2,3,4] a", "Flatten <axis=-1> (a)", "float32[6,4]"},
      {"float[2,3,4] a", "Flatten <axis=0> (a)", "float32[1,24]"},
      {"float[2,3,4] a", "Softmax <axis=-1> (a)", "float32[2,3,4]"},
      {"float[2,3,4] a", "LogSoftmax <axis=0> (a)", "float32[2,3,4]"},
      {"float[5,4] a, int64[2,3] i", "Gather(a, i)", "float32[2,3,4]"},
      {"float[5,4] a, int32[2] i", "Gather <axis=-1> (a, i)", "float32[5,2]"},
      {"int64[5] a, int64 i", "Gather(a, i)", "int64[]"},
      {"float[2,3] a, float[2,1] b", "Concat <axis=1> (a, b)", "float32[2,4]"},
      {"float[2,3,4] a", "Transpose <perm=[2,0,1]> (a)", "float32[4,2,3]"},
      {"float[2,3] a", "Transpose(a)", "float32[3,2]"},
      {"int64[2,3] a", "Cast <to=1> (a)", "float32[2,3]"},
      {"float[4,3] a, int64[2,1] i, float[2,3] u", "ScatterND(a, i, u)",
       "float32[4,3]"},
      {"float[2,3,8,9] a, float[4,3,3,2] w, float[4] b",
       "Conv <strides=[2,1], pads=[1,0,1,0]> (a, w, b)", "float32[2,4,4,8]"},
      {"float[2,4,8] a, float[6,2,3] w",
       "Conv <group=2, dilations=[2], auto_pad=\"SAME_UPPER\"> (a, w)",
       "float32[2,6,8]"},
      {"float[2,3,4,5] a, float[3,4,3,2] w",
       "ConvTranspose <strides=[2,2], output_padding=[1,0]> (a, w)",
       "float32[2,4,10,10]"},
      {"float[2,3,7] a, float[3,4,2] w",
       "ConvTranspose <output_shape=[6]> (a, w)", "float32[2,4,6]"},
      {"float[2,3,7] a, float[3,4,2] w",
       "ConvTranspose <strides=[2], output_padding=[1], "
       "auto_pad=\"SAME_UPPER\"> (a, w)",
       "float32[2,4,14]"},
      {"float[2,3,8,9] a, float[3] s, float[3] b, float[3] m, float[3] v",
       "BatchNormalization(a, s, b, m, v)", "float32[2,3,8,9]"},
      {"float[2,3,7,8] a",
       "MaxPool <kernel_shape=[2,2], strides=[2,2], ceil_mode=1> (a)",
       "float32[2,3,4,4]"},
      // The last window would begin on the padding.
      {"float[1,1,2,2] a",
       "MaxPool <kernel_shape=[1,1], strides=[2,2], ceil_mode=1> (a)",
       "float32[1,1,1,1]"},
      {"float[1,3,2,4] a",
       "AveragePool <kernel_shape=[3,3], strides=[3,3], pads=[1,1,1,1], "
       "ceil_mode=1> (a)",
       "float32[1,3,1,2]"},
      {"float[2,3,7,8] a",
       "AveragePool <kernel_shape=[3,2], pads=[1,0,1,0]> "
       "(a)",
       "float32[2,3,7,7]"},
      {"float[2,3,7,8] a", "GlobalAveragePool(a)", "float32[2,3,1,1]"},
      {"float[2,3,7] a", "GlobalMaxPool(a)", "float32[2,3,1]"},
      {"float[2,3] a, float[3] s", "PRelu(a, s)", "float32[2,3]"},
      {"float[2,3] a, float low, float high", "Clip(a, low, high)",
       "float32[2,3]"},
      {"float[2,3] a, float high", "Clip(a, , high)", "float32[2,3]"},
      {"float[2,1] a, float[3] b, float c", "Sum(a, b, c)", "float32[2,3]"},
      {"float[2,1] a, float[3] b", "Mean(a, b)", "float32[2,3]"},
      {"float[2,1] a, float[3] b", "Max(a, b)", "float32[2,3]"},
      {"float[2,1] a, float[3] b", "Min(a, b)", "float32[2,3]"},
      {"float[2,3] a", "Softsign(a)", "float32[2,3]"},
      {"float[2,3] a", "HardSigmoid(a)", "float32[2,3]"},
      {"float[2,3] a", "ThresholdedRelu(a)", "float32[2,3]"},
      {"float[2,3] a", "Sin(a)", "float32[2,3]"},
      {"float[2,3] a", "Cos(a)", "float32[2,3]"},
      {"float[2,3] a", "Round(a)", "float32[2,3]"},
      {"float[2,3] a", "Floor(a)", "float32[2,3]"},
      {"float[2,3] a", "Ceil(a)", "float32[2,3]"},
      {"float[2,3] a", "Sign(a)", "float32[2,3]"},
      {"float[2,3] a", "IsNaN(a)", "bool[2,3]"},
      {"float[2,3] a", "IsInf(a)", "bool[2,3]"},
      {"int64[2,1] a, int64[3] b", "Mod(a, b)", "int64[2,3]"},
      {"bool[2,1] a, bool[3] b", "Xor(a, b)", "bool[2,3]"},
      {"float[4,3] a, int32[2,3] i, float[2,3] u",
       "ScatterElements <axis=0> (a, i, u)", "float32[4,3]"},
      {"float[2,3] a", "ReduceMax <keepdims=0> (a)", "float32[]"},
      {"float[2,3] a", "ReduceL2 (a)", "float32[1,1]"},
      {"float[2,3] a", "ReduceSum(a)", "float32[1,1]"},
      {"float[2,3] a", "ReduceMean <keepdims=0> (a)", "float32[]"},
  };
  for (const Case& c : cases) {
    for (int opset : {11, 13, 14, 17, 18, 25}) {
      EXPECT_EQ(Output(opset, c.inputs, c.node), c.output)
          << c.node << " at " << opset;
    }
  }
  for (int opset : {19, 25}) {
    EXPECT_EQ(Output(opset, "float[2,3,9] a",
                     "AveragePool <kernel_shape=[2], dilations=[3]> (a)"),
              "float32[2,3,6]");
    EXPECT_EQ(Output(opset, "double[2,3] a", "Cast <to=1, saturate=0> (a)"),
              "float32[2,3]");
  }
  EXPECT_EQ(Output(24, "double[2] a", "Cast <to=1, round_mode=\"down\"> (a)"),
            "float32[2]");
  for (int opset : {12, 13, 17, 22, 25}) {
    EXPECT_EQ(Output(opset, "float[2,3] a", "Celu(a)"), "float32[2,3]");
    EXPECT_EQ(Output(opset, "float[2,3,4] a, int64[2,4] l",
                     "SoftmaxCrossEntropyLoss <reduction=\"none\"> (a, l)"),
              "float32[2,4]");
    EXPECT_EQ(Output(opset, "float[2,3] a, int64[2] l",
                     "NegativeLogLikelihoodLoss(a, l)"),
              "float32[]");
  }
  for (int opset : {12, 15, 16, 20, 25}) {
    EXPECT_EQ(Output(opset, "int64[2,1] a, int64[3] b", "LessOrEqual(a, b)"),
              "bool[2,3]");
    EXPECT_EQ(Output(opset, "float[2,3] a, float b", "GreaterOrEqual(a, b)"),
              "bool[2,3]");
  }
  for (int opset : {15, 19, 21, 24, 25}) {
    EXPECT_EQ(Output(opset, "double[2,3] a, int64[5] b", "CastLike(a, b)"),
              "int64[2,3]");
  }
  for (int opset : {18, 22, 25}) {
    EXPECT_EQ(Output(opset, "float[2,3] a", "Mish(a)"), "float32[2,3]");
  }
  for (int opset : {24, 25}) {
    EXPECT_EQ(Output(opset, "float[2,3] a", "Swish(a)"), "float32[2,3]");
  }
  for (int opset : {20, 25}) {
    EXPECT_EQ(Output(opset, "float[2,3] a", "Gelu <approximate=\"tanh\"> (a)"),
              "float32[2,3]");
  }
  EXPECT_EQ(Output(11, "float[2] a", "Dropout <ratio=0.1> (a)"), "float32[2]");
  for (int opset : {17, 23}) {
    EXPECT_EQ(Output(opset, "float[2,3] a, float[3] s, float[3] b",
                     "LayerNormalization(a, s, b)"),
              "float32[2,3]");
    EXPECT_EQ(
        Output(opset, "bool[3] c, float[2,1] a, float b", "Where(c, a, b)"),
        "float32[2,3]");
    EXPECT_EQ(Output(opset, "int64[2,3] a", "Trilu <upper=0> (a)"),
              "int64[2,3]");
  }
  EXPECT_EQ(Output(23, "float[2,3] a, float[3] s", "RMSNormalization(a, s)"),
            "float32[2,3]");
}

TEST(ShapeInferenceTest, AxesAreAnAttributeOrAnInputByVersion) {
  for (const std::string op :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp"}) {
    const int input_since = op == "ReduceSum" ? 13 : 18;
    for (int opset : {11, 12, 13, 17, 18, 25}) {
      const Inferred inferred =
          opset < input_since
              ? Infer(opset, absl::StrCat("(float[2,3,4] a) => (y) { y = ", op,
                                          " <axes=[1]> (a) }"))
              : Infer(opset, absl::StrCat("(float[2,3,4] a) => (y) <int64[1] "
                                          "x = {1}> { y = ",
                                          op, "(a, x) }"));
      EXPECT_THAT(inferred.problems, IsEmpty());
      EXPECT_EQ(inferred["y"], "float32[2,1,4]") << op << " at " << opset;
    }
  }
  for (int opset : {13, 21, 25}) {
    const Inferred inferred = Infer(opset, R"(
        (float[2,3] a) => (y, z) <int64[2] i = {0, -1}>
        { y = Unsqueeze(a, i)  z = Squeeze(y, i) })");
    EXPECT_THAT(inferred.problems, IsEmpty());
    EXPECT_EQ(inferred["y"], "float32[1,2,3,1]");
    EXPECT_EQ(inferred["z"], "float32[2,3]");
  }
}

TEST(ShapeInferenceTest, WhatMovesElementsReadsItsNumbers) {
  for (int opset : {11, 13, 18, 25}) {
    const Inferred inferred = Infer(opset, R"(
        (float[4,6] a) => (s, e, t)
        <int64[1] one = {1}, int64[1] four = {4}, int64[3] shape = {2, 4, 1},
         int64[2] repeats = {2, 3}>
        {
          s = Slice(a, one, four, one)
          e = Expand(s, shape)
          t = Tile(a, repeats)
        })");
    EXPECT_THAT(inferred.problems, IsEmpty());
    EXPECT_EQ(inferred["s"], "float32[4,3]");
    EXPECT_EQ(inferred["e"], "float32[2,4,3]");
    EXPECT_EQ(inferred["t"], "float32[8,18]");
  }
}

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

TEST(ShapeInferenceTest, RecurrentNetworksHaveUpToThreeOutputs) {
  for (int opset : {11, 14, 22, 25}) {
    const Inferred forward = Infer(opset, R"(
        (float[7,2,3] x, float[1,20,3] w, float[1,20,5] r) => (y, h, c)
        { y, h, c = LSTM <hidden_size=5> (x, w, r) })");
    EXPECT_THAT(forward.problems, IsEmpty());
    EXPECT_EQ(forward["y"], "float32[7,1,2,5]");
    EXPECT_EQ(forward["h"], "float32[1,2,5]");
    EXPECT_EQ(forward["c"], "float32[1,2,5]");
    const Inferred both = Infer(opset, R"(
        (float[7,2,3] x, float[2,15,3] w, float[2,15,5] r, int32[2] n) => (y, h)
        { y, h = GRU <hidden_size=5, direction="bidirectional"> (x, w, r, , n) })");
    EXPECT_THAT(both.problems, IsEmpty());
    EXPECT_EQ(both["h"], "float32[2,2,5]");
    if (opset < 14) continue;
    const Inferred batch_first = Infer(opset, R"(
        (float[2,7,3] x, float[1,5,3] w, float[1,5,5] r) => (y, h)
        { y, h = RNN <hidden_size=5, layout=1> (x, w, r) })");
    EXPECT_THAT(batch_first.problems, IsEmpty());
    EXPECT_EQ(batch_first["y"], "float32[2,7,1,5]");
    EXPECT_EQ(batch_first["h"], "float32[2,1,5]");
  }
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

TEST(ShapeInferenceTest, PadsMayBeNegativeAndTheirAxesNamed) {
  for (int opset : {11, 13, 18, 21, 25}) {
    const Inferred inferred = Infer(opset, R"(
        (float[4,6] a) => (y) <int64[4] p = {1, -2, 0, 1}> { y = Pad(a, p) })");
    EXPECT_THAT(inferred.problems, IsEmpty());
    EXPECT_EQ(inferred["y"], "float32[5,5]");
  }
  const Inferred named = Infer(18, R"(
      (float[4,6] a) => (y) <int64[2] p = {1, 2}, int32[1] x = {-1}>
      { y = Pad <mode="reflect"> (a, p, , x) })");
  EXPECT_THAT(named.problems, IsEmpty());
  EXPECT_EQ(named["y"], "float32[4,9]");
  const std::pair<const char*, const char*> bad[] = {
      {"{1, 2, 3}", "there are 3 pads, but 2 axes, which have two each"},
      {"{9000000000000000000, 0, 9000000000000000000, 0}", "too large"},
      {"{-3, 0, -3, 0}", "cannot be told"}};
  for (const auto& [pads, problem] : bad) {
    const Inferred inferred =
        Infer(13, absl::StrCat("(float[4,6] a) => (y) <int64[",
                               std::count(pads, pads + strlen(pads), ',') + 1,
                               "] p = ", pads, "> { y = Pad(a, p) }"));
    ASSERT_EQ(inferred.problems.size(), 1u) << pads;
    EXPECT_THAT(inferred.problems[0], HasSubstr(problem));
  }
  // Else pads that cancel each other would be as large as they like.
  const Inferred twice = Infer(18, R"(
      (float[4,6] a) => (y)
      <int64[4] p = {-4096, 4096, 4096, -4096}, int64[2] x = {1, -1}>
      { y = Pad (a, p, , x) })");
  ASSERT_EQ(twice.problems.size(), 1u);
  EXPECT_THAT(twice.problems[0], HasSubstr("axes name dimension 1 twice"));
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

TEST(ShapeInferenceTest, SplitHasItsSizesFromWhereTheOpsetSays) {
  for (int opset : {11, 13, 18, 25}) {
    const Inferred halves = Infer(
        opset, absl::StrCat("(float[2,6] a) => (p, q) { p, q = Split <axis=-1",
                            opset >= 18 ? ", num_outputs=2" : "", "> (a) }"));
    EXPECT_THAT(halves.problems, IsEmpty());
    EXPECT_EQ(halves["p"], "float32[2,3]");
    EXPECT_EQ(halves["q"], "float32[2,3]");
    if (opset == 11) continue;
    const Inferred parts = Infer(opset, R"(
        (float[2,6] a) => (p, q) <int64[2] sizes = {2, 4}>
        { p, q = Split <axis=1> (a, sizes) })");
    EXPECT_THAT(parts.problems, IsEmpty());
    EXPECT_EQ(parts["p"], "float32[2,2]");
    EXPECT_EQ(parts["q"], "float32[2,4]");
  }
  const Inferred uneven = Infer(18, R"(
      (float[5] a) => (p, q, r) { p, q, r = Split <num_outputs=3> (a) })");
  EXPECT_EQ(uneven["p"], "float32[2]");
  EXPECT_EQ(uneven["r"], "float32[1]");
  const Inferred wrong = Infer(18, R"(
      (float[5] a) => (p, q) <int64[2] sizes = {2, 4}>
      { p, q = Split(a, sizes) })");
  ASSERT_EQ(wrong.problems.size(), 1u);
  EXPECT_THAT(wrong.problems[0], HasSubstr("the parts do not add up to 5"));
}

TEST(ShapeInferenceTest, IndicesMayBeAnyNumbers) {
  const Inferred inferred = Infer(13, R"(
      (float[2,9] a) => (y) <int64[9] i = {8, 7, 6, 5, 4, 3, 2, -1, -2}>
      { y = Gather <axis=1> (a, i) })");
  EXPECT_THAT(inferred.problems, IsEmpty());
  EXPECT_EQ(inferred["y"], "float32[2,9]");
}

TEST(ShapeInferenceTest, DropoutHasAMask) {
  for (int opset : {12, 13, 22}) {
    const Inferred inferred = Infer(opset, R"(
        (float[2,3] a) => (y, mask) <float r = {0.5}, bool t = {1}>
        { y, mask = Dropout(a, r, t) })");
    EXPECT_THAT(inferred.problems, IsEmpty());
    EXPECT_EQ(inferred["y"], "float32[2,3]");
    EXPECT_EQ(inferred["mask"], "bool[2,3]");
  }
}

TEST(ShapeInferenceTest, ReshapeReadsItsShape) {
  struct Case {
    const char* shape;
    const char* attributes;
    const char* output;
  };
  for (const Case& c : {Case{"int64[2] s = {4, 6}", "", "float32[4,6]"},
                        Case{"int64[2] s = {-1, 12}", "", "float32[2,12]"},
                        Case{"int64[2] s = {0, -1}", "", "float32[2,12]"},
                        Case{"int64[1] s = {-1}", "", "float32[24]"}}) {
    for (int opset : {11, 13, 14, 25}) {
      const Inferred inferred =
          Infer(opset, absl::StrCat("(float[2,3,4] a) => (y) <", c.shape,
                                    "> { y = Reshape(a, s) }"));
      EXPECT_THAT(inferred.problems, IsEmpty());
      EXPECT_EQ(inferred["y"], c.output);
    }
  }
  const Inferred zero = Infer(14, R"((float[2,3] a, float[1] b) => (y, z)
      <int64[2] s = {0, 7}, float[0,3] e = {}>
      { y = Reshape <allowzero=1> (e, s)  z = Relu(a) })");
  EXPECT_THAT(zero.problems, IsEmpty());
  EXPECT_EQ(zero["y"], "float32[0,7]");
}

// libonnx has no rule for them before opset 14.
TEST(ShapeInferenceTest, StatisticsOfATrainingModel) {
  const std::string inputs =
      "(float[2,3,4] a, float[3] s, float[3] b, float[3] m, float[3] v)";
  const Inferred before =
      Infer(13, absl::StrCat(inputs,
                             " => (y, z) { y, mean, variance, z, unused = "
                             "BatchNormalization(a, s, b, m, v) }"));
  EXPECT_THAT(before.problems, IsEmpty());
  EXPECT_EQ(before["variance"], "float32[3]");
  EXPECT_EQ(before["z"], "float32[3]");
  const Inferred since =
      Infer(15, absl::StrCat(inputs,
                             " => (y) { y, mean, variance = "
                             "BatchNormalization <training_mode = 1> "
                             "(a, s, b, m, v) }"));
  EXPECT_THAT(since.problems, IsEmpty());
  EXPECT_EQ(since["variance"], "float32[3]");
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
