// Goal: types and shapes of every supported operator, with the semantics of the
// opset. Method: one-node models in ONNX text with concrete shapes, per opset.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/common/model/inference/shape_inference_fixture.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  // Pads that cancel each other are bounded, too.
  const Inferred twice = Infer(18, R"(
      (float[4,6] a) => (y)
      <int64[4] p = {-4096, 4096, 4096, -4096}, int64[2] x = {1, -1}>
      { y = Pad (a, p, , x) })");
  ASSERT_EQ(twice.problems.size(), 1u);
  EXPECT_THAT(twice.problems[0], HasSubstr("axes name dimension 1 twice"));
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

// libonnx leaves it open.
TEST(ShapeInferenceTest, TheDepthIsTheSizeOfTheNewDimension) {
  for (const char* depth : {"int64[1] d = {7}", "int64 d = {7}"}) {
    const Inferred inferred = Infer(
        13, absl::StrCat("(int64[2,3] i) => (y) <", depth,
                         ", float[2] v = {0, 1}> "
                         "{ y = OneHot(i, d, v) z = OneHot <axis = 1> (i, d, "
                         "v) }"));
    EXPECT_THAT(inferred.problems, IsEmpty());
    EXPECT_EQ(inferred["y"], "float32[2,3,7]");
    EXPECT_EQ(inferred["z"], "float32[2,7,3]");
  }
}

// As PyTorch's exporter writes repeat_interleave: the shape is joined of parts.
TEST(ShapeInferenceTest, PartsOfKnownValuesAreKnown) {
  const Inferred inferred = Infer(
      13,
      "(float[2,1,3] x) => (y) <int64[4] all = {9, 2, 5, 3}, int64[2] parts = "
      "{1, 3}, int64[3] each = {1, 1, 1}> { skipped, shape = Split(all, parts) "
      "a, b, c = Split(shape, each) whole = Concat <axis = 0> (a, b, c) "
      "y = Expand(x, whole) }");
  EXPECT_THAT(inferred.problems, IsEmpty());
  EXPECT_EQ(inferred["y"], "float32[2,5,3]");
}

}  // namespace
}  // namespace syncline
