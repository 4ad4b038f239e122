// Goal: nodes become one where nothing is lost by it, and nowhere else. Method:
// the steps of small graphs after fusion, value by value, for a device that
// computes whatever it is asked, or refuses some of it.

#include "worker/compute/operator_fusion.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/zoo/zoo.h"
#include "gmock/gmock.h"
#include "tests/testing/training_model.h"
#include "worker/ops/fused_op.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using testing::MakeTrainingModel;
using ::testing::Pair;
using testing::TrainingModel;

// Of a node, "MatMul + Add": whether it is refused.
using Refuses = std::function<bool(const Node&)>;

bool RefusesNothing(const Node&) { return false; }

struct FusedPlan {
  explicit FusedPlan(const TrainingModel& m, const Refuses& refuses = {},
                     bool trains = true)
      : model(m) {
    std::vector<ValueId> parameters;
    for (const auto& p : m.training.parameters) {
      if (trains) parameters.push_back(p.value);
    }
    const Graph& graph = m.model->graph();
    flow = BuildBackwardGraph(graph, m.training.loss_output, parameters);
    shapes = *m.model->InferShapes(2);
    fused = FuseOperators(
        {.graph = &graph,
         .flow = &flow,
         .shapes = shapes,
         .loss_output = m.training.loss_output},
        [&](const FusedGraph&, const Node& node, const std::vector<bool>&) {
          return !(refuses ? refuses : RefusesNothing)(node);
        });
  }

  const Node& node(size_t position) const {
    return fused.graph.nodes[fused.flow.nodes[position]];
  }
  std::string Names(const std::vector<ValueId>& values) const {
    return absl::StrJoin(values, ", ", [&](std::string* out, ValueId v) {
      absl::StrAppend(out, v == kNoValue ? "-" : fused.graph.values[v].name);
    });
  }
  // "y = MatMul + Add(x, w, b)", in order.
  std::vector<std::string> Steps() const {
    std::vector<std::string> steps;
    for (size_t p = 0; p < fused.flow.nodes.size(); ++p) {
      steps.push_back(absl::StrCat(Names(node(p).outputs), " = ",
                                   node(p).op_type, "(", Names(node(p).inputs),
                                   ")"));
    }
    return steps;
  }

  const TrainingModel model;
  BackwardGraph flow;
  std::vector<Dims> shapes;
  FusedGraph fused;
};

// A hidden layer, and the product that reads it.
TrainingModel Perceptron(const std::string& function,
                         const std::string& more = "") {
  return MakeTrainingModel(
      "(float[N,3,4] x, float[4,8] w_a, float[8] w_b, float[8,5] w_c, "
      "float[5] w_d) => (float[N,3,5] y)",
      "",
      absl::StrCat("m = MatMul(x, w_a)\n h = Add(w_b, m)\n g = ", function,
                   "(h)\n n = MatMul(g, w_c)\n y = Add(n, w_d)", more),
      20);
}

constexpr char kGelu[] = "Gelu <approximate = \"tanh\">";

TEST(OperatorFusionTest, AHiddenLayerIsOneStepAndKeepsTheFunctionsArgument) {
  const FusedPlan plan(Perceptron(kGelu));
  EXPECT_THAT(plan.Steps(),
              ElementsAre("g, h = MatMul + Add + Gelu(x, w_a, w_b)",
                          "y = MatMul + Add(g, w_c, w_d, h)"));
  const Node& hidden = plan.node(0);
  EXPECT_EQ(hidden.domain, kFusedDomain);
  EXPECT_EQ(hidden.name, "MatMul#0");
  EXPECT_EQ(hidden.String(kFusedFunction, ""), kGeluTanhFunction);
  EXPECT_EQ(plan.node(1).String(kFusedInputFunction, ""), kGeluTanhFunction);
  EXPECT_EQ(plan.fused.flow.wants_gradient[0],
            (std::vector<bool>{false, true, true}));
  EXPECT_EQ(plan.fused.flow.wants_gradient[1],
            (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(plan.fused.parts,
            (std::vector<std::vector<int>>{{0, 1, 2}, {3, 4}}));
  // The node that writes what is kept.
  EXPECT_EQ(plan.fused.graph.values[hidden.outputs[1]].producer,
            plan.fused.flow.nodes[0]);
  EXPECT_TRUE(plan.fused.graph.initializers.empty());
}

TEST(OperatorFusionTest, ReluKeepsABitForEachElement) {
  const FusedPlan plan(Perceptron("Relu"));
  EXPECT_THAT(
      plan.Steps(),
      ElementsAre("g, Relu#2 kept bits = MatMul + Add + Relu(x, w_a, w_b)",
                  "y = MatMul + Add(g, w_c, w_d, Relu#2 kept bits)"));
  const ValueId bits = plan.node(0).outputs[1];
  EXPECT_EQ(plan.fused.graph.values[bits].dtype, DType::kUint8);
  EXPECT_EQ(plan.fused.shapes[bits], (Dims{6, 16}));
  EXPECT_EQ(plan.fused.sources[bits], bits);
  EXPECT_EQ(plan.fused.shapes.size(), plan.fused.graph.values.size());
}

TEST(OperatorFusionTest, WithoutGradientsNothingIsKept) {
  const FusedPlan plan(Perceptron("Relu"), {}, /*trains=*/false);
  EXPECT_THAT(plan.Steps(), ElementsAre("g = MatMul + Add + Relu(x, w_a, w_b)",
                                        "y = MatMul + Add(g, w_c, w_d)"));
}

TEST(OperatorFusionTest, GemmsAreJoinedByTheirFunctions) {
  const FusedPlan plan(MakeTrainingModel(
      "(float[N,4] x, float[8,4] w_a, float[8] w_b, float[8,5] w_c, "
      "float[5,3] w_d) => (float[N,3] y)",
      "",
      "h = Gemm <transB = 1> (x, w_a, w_b)\n g = Relu(h)\n m = Gemm(g, w_c)\n"
      "r = Relu(m)\n y = Gemm(r, w_d)"));
  EXPECT_THAT(
      plan.Steps(),
      ElementsAre(
          "g, Relu#1 kept bits = Gemm + Relu(x, w_a, w_b)",
          "r, Relu#3 kept bits = Gemm + Relu(g, w_c, -, Relu#1 kept bits)",
          "y = Gemm(r, w_d, -, Relu#3 kept bits)"));
  EXPECT_EQ(plan.node(0).Int("transB", 0), 1);
}

// A fused function would leave the other reader without its gradient.
TEST(OperatorFusionTest, AFunctionStaysWhereOthersReadItsResult) {
  const FusedPlan twice(MakeTrainingModel(
      "(float[N,4] x, float[4,4] w_a, float[4] w_b, float[4,4] w_c) => "
      "(float[N,4] y)",
      "",
      "m = MatMul(x, w_a)\n h = Add(m, w_b)\n g = Relu(h)\n"
      "n = MatMul(g, w_c)\n y = Add(n, g)"));
  EXPECT_THAT(twice.Steps(),
              ElementsAre("h = MatMul + Add(x, w_a, w_b)", "g = Relu(h)",
                          "n = MatMul(g, w_c)", "y = Add(n, g)"));
  // By a product that is not of its rows; as its second factor.
  const FusedPlan transposed(MakeTrainingModel(
      "(float[N,4] x, float[4,4] w_a, float[4] w_b) => (float[4,4] y)", "",
      "m = MatMul(x, w_a)\n h = Add(m, w_b)\n g = Relu(h)\n"
      "y = Gemm <transA = 1> (g, x)"));
  EXPECT_EQ(transposed.Steps()[1], "g = Relu(h)");
  const FusedPlan second(MakeTrainingModel(
      "(float[N,4,4] x, float[4,4] w_a, float[4] w_b, float[4,4] w_c) => "
      "(float[N,4,4] y)",
      "",
      "m = MatMul(x, w_a)\n h = Add(m, w_b)\n g = Relu(h)\n"
      "y = MatMul(w_c, g)"));
  EXPECT_EQ(second.Steps()[1], "g = Relu(h)");
  // The last one's gradient is the loss's.
  const FusedPlan last(MakeTrainingModel(
      "(float[N,4] x, float[4,4] w_a, float[4] w_b) => (float[N,4] y)", "",
      "m = MatMul(x, w_a)\n h = Add(m, w_b)\n y = Relu(h)"));
  EXPECT_THAT(last.Steps(),
              ElementsAre("h = MatMul + Add(x, w_a, w_b)", "y = Relu(h)"));
}

TEST(OperatorFusionTest, TheErrorFunctionsGeluStays) {
  const FusedPlan plan(Perceptron("Gelu"));
  EXPECT_THAT(plan.Steps(),
              ElementsAre("h = MatMul + Add(x, w_a, w_b)", "g = Gelu(h)",
                          "y = MatMul + Add(g, w_c, w_d)"));
}

// A summand and the signature of its graph.
void ExpectNoBias(const std::string& inputs, const std::string& body,
                  const std::string& initializers = "") {
  SCOPED_TRACE(body);
  const FusedPlan plan(MakeTrainingModel(
      absl::StrCat("(float[N,3,4] x, ", inputs, ") => (float[N,3,4] y)"),
      initializers, body));
  for (const std::string& step : plan.Steps()) {
    EXPECT_FALSE(absl::StrContains(step, "+")) << step;
  }
}

TEST(OperatorFusionTest, OnlyABiasAlongTheLastAxisIsOne) {
  ExpectNoBias("float[4,4] w_a, float[3,4] w_b",
               "m = MatMul(x, w_a)\n y = Add(m, w_b)");
  ExpectNoBias("float[4,4] w_a, float[1] w_b",
               "m = MatMul(x, w_a)\n y = Add(m, w_b)");
  ExpectNoBias("float[4,4] w_a, float[3,1] w_b",
               "m = MatMul(x, w_a)\n y = Add(m, w_b)");
  // Not known to be the same for all rows of all batches.
  ExpectNoBias("float[4,4] w_a, float[4] w_b",
               "m = MatMul(x, w_a)\n b = Tanh(w_b)\n y = Add(m, b)");
  ExpectNoBias("float[4,4] w_a", "m = MatMul(x, w_a)\n y = Add(m, x)");
  // The result has more dimensions than the product.
  ExpectNoBias("float[4,4] w_a, float[1,1,1,4] w_b",
               "m = MatMul(x, w_a)\n a = Add(m, w_b)\n y = Squeeze(a, axes)",
               "int64[1] axes = {0}");
}

TEST(OperatorFusionTest, WhatIsBetweenAndReadElsewhereStays) {
  ExpectNoBias("float[4,4] w_a, float[4] w_b",
               "m = MatMul(x, w_a)\n a = Add(m, w_b)\n y = Mul(a, m)");
  // A stack of matrices has no rows in common.
  ExpectNoBias("float[3,4] w_a, float[4] w_b",
               "t = Transpose <perm = [0, 2, 1]> (x)\n m = MatMul(x, t)\n"
               "p = MatMul(m, x)\n a = Add(p, w_b)\n y = Tanh(a)");
}

TEST(OperatorFusionTest, AScaledSummandOfAGemmIsNone) {
  const FusedPlan plan(MakeTrainingModel(
      "(float[N,4] x, float[4,4] w_a, float[4] w_b, float[4,4] w_c) => "
      "(float[N,4] y)",
      "",
      "h = Gemm <beta = 0.5> (x, w_a, w_b)\n g = Relu(h)\n y = MatMul(g, "
      "w_c)"));
  EXPECT_THAT(plan.Steps(), ElementsAre("h = Gemm(x, w_a, w_b)", "g = Relu(h)",
                                        "y = MatMul(g, w_c)"));
}

TEST(OperatorFusionTest, WhatTheDeviceRefusesFallsBackToLess) {
  const auto refuses = [](absl::string_view what) {
    return [what](const Node& node) { return node.op_type == what; };
  };
  EXPECT_THAT(
      FusedPlan(Perceptron(kGelu), refuses("MatMul + Add + Gelu")).Steps(),
      ElementsAre("h = MatMul + Add(x, w_a, w_b)", "g = Gelu(h)",
                  "y = MatMul + Add(g, w_c, w_d)"));
  // Of the reader: the gradient that the function's goes with.
  const auto refuses_gradient = [](const Node& node) {
    return !node.String(kFusedInputFunction, "").empty();
  };
  const FusedPlan plan(Perceptron("Relu"), refuses_gradient);
  EXPECT_THAT(plan.Steps(),
              ElementsAre("h = MatMul + Add(x, w_a, w_b)", "g = Relu(h)",
                          "y = MatMul + Add(g, w_c, w_d)"));
  EXPECT_EQ(plan.fused.graph.values.size(),
            plan.model.model->graph().values.size())
      << "no bits are kept";
  EXPECT_THAT(FusedPlan(Perceptron(kGelu), refuses("MatMul + Add")).Steps(),
              ElementsAre("g, h = MatMul + Add + Gelu(x, w_a, w_b)",
                          "n = MatMul(g, w_c, -, h)", "y = Add(n, w_d)"));
  EXPECT_THAT(
      FusedPlan(Perceptron(kGelu), [](const Node&) { return true; }).Steps(),
      ElementsAre("m = MatMul(x, w_a)", "h = Add(w_b, m)", "g = Gelu(h)",
                  "n = MatMul(g, w_c)", "y = Add(n, w_d)"));
}

TEST(OperatorFusionTest, AGradientThatIsRefusedLateIsNotLost) {
  int asked = 0;
  const FusedPlan plan(Perceptron(kGelu), [&](const Node& node) {
    return !node.String(kFusedInputFunction, "").empty() && ++asked > 1;
  });
  EXPECT_THAT(plan.Steps(),
              ElementsAre("g, h = MatMul + Add + Gelu(x, w_a, w_b)",
                          "n = MatMul(g, w_c, -, h)", "y = Add(n, w_d)"));
}

// A sum that others read after its normalisation.
TrainingModel Residual(const std::string& norm) {
  return MakeTrainingModel(
      "(float[N,3,4] x, float[4,4] w_a, float[4] w_s, float[4] w_b, "
      "float[4,4] w_c) => (float[N,3,4] y)",
      "",
      absl::StrCat("m = MatMul(x, w_a)\n s = Add(x, m)\n n = ", norm,
                   "\n d = MatMul(n, w_c)\n y = Add(s, d)"),
      23);
}

TEST(OperatorFusionTest, ASumAndItsNormalisationAreOneStep) {
  const FusedPlan plan(Residual("LayerNormalization(s, w_s, w_b)"));
  EXPECT_THAT(plan.Steps(),
              ElementsAre("m = MatMul(x, w_a)",
                          "s, n = Add + LayerNormalization(x, m, w_s, w_b)",
                          "d = MatMul(n, w_c)", "y = Add(s, d)"));
  EXPECT_EQ(plan.fused.flow.wants_gradient[1],
            (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(plan.fused.graph.values[plan.node(1).outputs[0]].producer,
            plan.fused.flow.nodes[1]);
  EXPECT_EQ(plan.node(1).Int(kFusedCentred, -1), 1);
  const FusedPlan rms(Residual("RMSNormalization(s, w_s)"));
  EXPECT_EQ(rms.Steps()[1], "s, n = Add + RMSNormalization(x, m, w_s)");
  EXPECT_EQ(rms.node(1).Int(kFusedCentred, -1), 0);
}

// Its gradient would be that of two inputs; its statistics are results.
TEST(OperatorFusionTest, OtherSumsAreNotNormalisedAtOnce) {
  const auto expect_none = [](const TrainingModel& m) {
    for (const std::string& step : FusedPlan(m).Steps()) {
      EXPECT_FALSE(absl::StrContains(step, "+")) << step;
    }
  };
  expect_none(MakeTrainingModel(
      "(float[N,4] x, float[4] w_s, float[4,4] w_c) => (float[N,4] y)", "",
      "t = MatMul(x, w_c)\n s = Add(t, t)\n n = LayerNormalization(s, w_s)\n"
      "y = Tanh(n)",
      20));
  expect_none(MakeTrainingModel(
      "(float[N,4] x, float[4] w_s, float[4,4] w_c) => (float[N,4] y)", "",
      "t = MatMul(x, w_c)\n s = Add(x, t)\n"
      "n, mean = LayerNormalization(s, w_s)\n y = Add(n, mean)",
      20));
  // A summand that is repeated over rows.
  expect_none(MakeTrainingModel(
      "(float[N,3,4] x, float[3,4] w_p, float[4] w_s) => (float[N,3,4] y)", "",
      "s = Add(x, w_p)\n n = LayerNormalization(s, w_s)\n y = Tanh(n)", 20));
  // Somebody reads the sum before it is normalised.
  expect_none(MakeTrainingModel(
      "(float[N,4] x, float[4] w_s, float[4,4] w_c) => (float[N,4] y)", "",
      "t = MatMul(x, w_c)\n s = Add(x, t)\n e = Tanh(s)\n"
      "n = LayerNormalization(s, w_s)\n y = Mul(n, e)",
      20));
}

// How many steps of each fused kind a model of the zoo has.
std::map<std::string, int> FusedOfTheZoo(
    const std::string& name,
    const std::map<std::string, std::string>& settings) {
  TrainingModel m;
  m.model = *Model::Parse(*WriteZooModel(name, settings), name, {}, {},
                          {"sequence", 6});
  const Graph& graph = m.model->graph();
  for (size_t i = 0; i < graph.initializers.size(); ++i) {
    const ValueId v = graph.initializers[i].value;
    if (graph.values[v].dtype != DType::kFloat32) continue;
    m.training.parameters.push_back({.value = v,
                                     .name = graph.values[v].name,
                                     .dims = graph.values[v].dims,
                                     .initializer = static_cast<int>(i)});
  }
  m.training.loss_output = graph.outputs[0];
  const FusedPlan plan(m);
  std::map<std::string, int> counts;
  for (size_t p = 0; p < plan.fused.flow.nodes.size(); ++p) {
    const std::string& type = plan.node(p).op_type;
    if (plan.node(p).domain == kFusedDomain) ++counts[type];
  }
  return counts;
}

// GPT's products have no biases. BERT's have: queries with keys and values,
// what attention mixes, and both of the perceptron, whose Gelu is the error
// function's; and two in its head. Each layer has two sums that are normalised.
TEST(OperatorFusionTest, TransformersOfTheZoo) {
  const std::map<std::string, std::string> small = {{"layers", "2"},
                                                    {"width", "8"},
                                                    {"heads", "2"},
                                                    {"vocabulary", "11"},
                                                    {"length", "6"}};
  EXPECT_THAT(FusedOfTheZoo("gpt", small),
              ElementsAre(Pair("Add + LayerNormalization", 4)));
  EXPECT_THAT(FusedOfTheZoo("bert", small),
              ElementsAre(Pair("Add + LayerNormalization", 4),
                          Pair("MatMul + Add", 10)));
}

}  // namespace
}  // namespace syncline::worker
