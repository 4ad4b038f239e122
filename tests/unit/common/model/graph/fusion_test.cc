// Goal: GELU and attention written out are one operator, whatever way exporters
// write them, and nothing else is. Method: models in text, parsed; forms of the
// pattern and near misses. The results of such models are compared by
// tests/peers/torch_peer.py, and held against derivatives by executor_test.

#include "common/model/graph/fusion.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "gtest/gtest.h"
#include "tests/testing/attention_text.h"

namespace syncline {
namespace {

using testing::kHeads;
using testing::kProduct;
using testing::kRest;

struct Form {
  std::string name;
  std::string body;
  bool fuses = true;
  std::string outputs = "float[N,4] y";
};

std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << form.name;
}

constexpr char kNumbers[] = R"(
    root = Constant <value_float = 1.41421354> ()
    over_root = Constant <value_float = 0.70710677> ()
    one = Constant <value_float = 1.0> ()
    half = Constant <value_float = 0.5> ()
    two = Constant <value_float = 2.0> ()
    scaled = Div (x, root)
)";

class FusionTest : public ::testing::TestWithParam<Form> {};

TEST_P(FusionTest, Gelu) {
  const Form& form = GetParam();
  const auto model =
      Model::Parse(absl::StrCat("<ir_version: 8, opset_import: [\"\" : 17]>\n",
                                "g (float[N,4] x) => (", form.outputs, ")\n{",
                                kNumbers, form.body, "}\n"),
                   "test");
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = (*model)->graph();
  const ValueId y = graph.FindValue("y");
  const Node& last = graph.nodes[graph.values[y].producer];
  EXPECT_EQ(last.op_type == "Gelu", form.fuses) << last.op_type;
  if (form.fuses) {
    EXPECT_EQ(last.inputs, std::vector<ValueId>{graph.FindValue("x")});
  }
  const auto shapes = (*model)->InferShapes(3);
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ((*shapes)[y], (Dims{3, 4}));
}

INSTANTIATE_TEST_SUITE_P(
    Forms, FusionTest,
    ::testing::Values(Form{"Torch", R"(
    erf = Erf (scaled)
    more = Add (erf, one)
    twice = Mul (x, more)
    y = Mul (twice, half)
)"},
                      Form{"TurnedRound", R"(
    times = Mul (over_root, x)
    erf = Erf (times)
    more = Add (one, erf)
    twice = Mul (more, x)
    y = Mul (half, twice)
)"},
                      Form{"HalfFirst", R"(
    erf = Erf (scaled)
    more = Add (erf, one)
    some = Mul (more, half)
    y = Mul (x, some)
)"},
                      Form{"HalfOfX", R"(
    small = Mul (x, half)
    erf = Erf (scaled)
    more = Add (erf, one)
    y = Mul (small, more)
)"},
                      Form{"AnotherNumber", R"(
    erf = Erf (scaled)
    more = Add (erf, two)
    twice = Mul (x, more)
    y = Mul (twice, half)
)",
                           false},
                      Form{"AnotherFactor", R"(
    erf = Erf (scaled)
    more = Add (erf, one)
    twice = Mul (scaled, more)
    y = Mul (twice, half)
)",
                           false},
                      Form{"ReadBetween", R"(
    erf = Erf (scaled)
    more = Add (erf, one)
    twice = Mul (x, more)
    y = Mul (twice, half)
    z = Identity (erf)
)",
                           false, "float[N,4] y, float[N,4] z"},
                      Form{"AnOutputBetween", R"(
    erf = Erf (scaled)
    more = Add (erf, one)
    twice = Mul (x, more)
    y = Mul (twice, half)
)",
                           false, "float[N,4] y, float[N,4] twice"}),
    [](const auto& info) { return info.param.name; });

// Some exporters store the numbers as initializers, which could be weights.
TEST(GeluFusionTest, NumbersThatNobodyTrainsMayBeInitializers) {
  const std::string model_text = R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,4] x) => (float[N,4] y)
    <float root = {1.41421354}, float one = {1}, float half = {0.5}> {
      scaled = Div (x, root)
      erf = Erf (scaled)
      more = Add (erf, one)
      twice = Mul (x, more)
      y = Mul (twice, half)
    })";
  for (const bool trains : {false, true}) {
    JobSpec spec;
    if (trains) spec.mutable_model()->add_train("half");
    const auto model = ParseJobModel(spec, model_text, "m");
    ASSERT_TRUE(model.ok()) << model.status();
    const Graph& graph = (*model)->graph();
    const Node& last = graph.nodes[graph.values[graph.FindValue("y")].producer];
    EXPECT_EQ(last.op_type, trains ? "Mul" : "Gelu");
    const auto bytes = (*model)->WithWeights({});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto exported = Model::Parse(*bytes, "exported");
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_EQ((*exported)->graph().initializers.size(), 3u);
  }
}

TEST(AttentionScaleTest, TheScaleMayBeAnInitializer) {
  const auto model = ParseJobModel(JobSpec(),
                                   R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,3,2,4] x) => (float[N,3,2,4] y) <float scale = {0.5}> {
      q = Transpose <perm = [0, 2, 1, 3]> (x)
      k = Transpose <perm = [0, 2, 3, 1]> (x)
      v = Transpose <perm = [0, 2, 1, 3]> (x)
      scores = MatMul (q, k)
      ready = Mul (scores, scale)
      weights = Softmax <axis = -1> (ready)
      mixed = MatMul (weights, v)
      y = Transpose <perm = [0, 2, 1, 3]> (mixed)
    })",
                                   "m");
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = (*model)->graph();
  const Node& last = graph.nodes[graph.values[graph.FindValue("y")].producer];
  EXPECT_EQ(last.op_type, "Attention");
  EXPECT_FLOAT_EQ(last.Float("scale", 0), 0.5);
}

struct AttentionForm {
  std::string name;
  std::string body;  // between `scores`, of q and k, and `y`
  bool fuses = true;
  float scale = 1;
  std::vector<std::string> inputs = {"x", "x", "x"};
  std::vector<int64_t> rows_first = {1, 1, 1, 1};
  std::string outputs = "float[N,3,2,4] y";
};

std::ostream& operator<<(std::ostream& out, const AttentionForm& form) {
  return out << form.name;
}

constexpr char kAttentionNumbers[] = R"(
    four = Constant <value_float = 4.0> ()
    half = Constant <value_float = 0.5> ()
    root = Sqrt (half)
    never = Constant <value_float = -1000.0> ()
)";

class AttentionFusionTest : public ::testing::TestWithParam<AttentionForm> {};

TEST_P(AttentionFusionTest, Attention) {
  const AttentionForm& form = GetParam();
  const auto model = Model::Parse(
      absl::StrCat("<ir_version: 8, opset_import: [\"\" : 17]>\n",
                   "g (float[N,3,2,4] x) => (", form.outputs, ")\n<",
                   "float[3,3] mask = {0,-9,-9,0,0,-9,0,0,0}, ",
                   "bool[3,3] seen = {1,0,0,1,1,0,1,1,1}>\n{",
                   kAttentionNumbers, kHeads, form.body, "}\n"),
      "test");
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = (*model)->graph();
  const ValueId y = graph.FindValue("y");
  const Node& last = graph.nodes[graph.values[y].producer];
  ASSERT_EQ(last.op_type == "Attention", form.fuses) << last.op_type;
  EXPECT_EQ(last.is_fused, form.fuses);
  if (!form.fuses) return;
  std::vector<std::string> inputs;
  for (const ValueId v : last.inputs) inputs.push_back(graph.values[v].name);
  EXPECT_EQ(inputs, form.inputs);
  EXPECT_FLOAT_EQ(last.Float("scale", 0), form.scale);
  EXPECT_EQ(last.Ints(kRowsFirst), form.rows_first);
  const auto shapes = (*model)->InferShapes(5);
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ(ElementCount((*shapes)[y]), 5 * 3 * 2 * 4);
}

AttentionForm Attends(std::string name, const std::string& between,
                      float scale = 1,
                      std::vector<std::string> inputs = {"x", "x", "x"}) {
  return {std::move(name), absl::StrCat(kProduct, between, kRest), true, scale,
          std::move(inputs)};
}

AttentionForm Differs(std::string name, const std::string& body,
                      const std::string& outputs = "float[N,3,2,4] y") {
  return {.name = std::move(name),
          .body = body,
          .fuses = false,
          .outputs = outputs};
}

INSTANTIATE_TEST_SUITE_P(
    Forms, AttentionFusionTest,
    ::testing::Values(
        AttentionForm{.name = "Plain",
                      .body = "ready = MatMul (q, k)\n" + std::string(kRest)},
        Attends("Divided", "ready = Div (scores, four)\n", 0.25),
        Attends("Added",
                "scaled = Mul (half, scores)\n ready = Add (scaled, mask)\n",
                0.5, {"x", "x", "x", "mask"}),
        Attends("AddedFirst", "ready = Add (mask, scores)\n", 1,
                {"x", "x", "x", "mask"}),
        Attends("Seen", "ready = Where (seen, scores, never)\n", 1,
                {"x", "x", "x", "seen"}),
        Attends("Hidden",
                "scaled = Div (scores, half)\n"
                "ready = Where (seen, never, scaled)\n",
                2, {"x", "x", "x", "seen"}),
        AttentionForm{.name = "OperandsScaled",
                      .body = "more = Mul (q, root)\n less = Mul (k, root)\n"
                              "ready = MatMul (more, less)\n" +
                              std::string(kRest),
                      .scale = 0.5},
        AttentionForm{
            .name = "HeadsFirst",
            .body = "a = Abs (q)\n b = Transpose <perm = [0, 1, 3, 2]> (a)\n"
                    "scores = MatMul (a, b)\n"
                    "weights = Softmax <axis = 3> (scores)\n"
                    "y = MatMul (weights, a)\n",
            .inputs = {"a", "a", "a"},
            .rows_first = {0, 0, 0, 0},
            .outputs = "float[N,2,3,4] y"},
        AttentionForm{.name = "KeysTurnedTwice",
                      .body = "b = Transpose <perm = [0, 1, 3, 2]> (v)\n"
                              "ready = MatMul (q, b)\n" +
                              std::string(kRest)},
        Differs("KeysAsTheyAre",
                "b = Abs (k)\n ready = MatMul (q, b)\n" + std::string(kRest)),
        Differs("MaskScaled",
                "scores = MatMul (q, k)\n masked = Add (scores, mask)\n"
                "ready = Mul (masked, half)\n" +
                    std::string(kRest)),
        Differs("AnotherAxis",
                "scores = MatMul (q, k)\n"
                "weights = Softmax <axis = 2> (scores)\n"
                "mixed = MatMul (weights, v)\n"
                "y = Transpose <perm = [0, 2, 1, 3]> (mixed)\n"),
        Differs("WeightsAreAnOutput",
                "ready = MatMul (q, k)\n" + std::string(kRest),
                "float[N,3,2,4] y, float[N,2,3,3] weights"),
        Differs("MaskHasTheRows",
                "one = ReduceMean <axes = [2]> (q)\n"
                "scores = MatMul (one, k)\n ready = Add (scores, mask)\n" +
                    std::string(kRest)),
        Differs("HiddenByData",
                "scores = MatMul (q, k)\n m = ReduceSum (mask)\n"
                "ready = Where (seen, scores, m)\n" +
                    std::string(kRest))),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace syncline
