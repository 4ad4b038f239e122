// Goal: gradients flow exactly where they lead from the loss to a parameter.
// Method: small graphs; the nodes that run and the gradients that are wanted.

#include "worker/compute/backward_graph.h"

#include "tests/testing/training_model.h"

namespace syncline::worker {
namespace {

using testing::MakeTrainingModel;
using testing::TrainingModel;

BackwardGraph Flow(const TrainingModel& m) {
  std::vector<ValueId> parameters;
  for (const auto& p : m.training.parameters) parameters.push_back(p.value);
  return BuildBackwardGraph(m.model->graph(), m.training.loss_output,
                            parameters);
}

using Wants = std::vector<std::vector<bool>>;

TEST(BackwardGraphTest, DataHasNoGradient) {
  const auto d = Flow(MakeTrainingModel(
      "(float[N,4] x, float[4,3] w_a, float[3] w_b, float[3,2] w_c) => "
      "(float[N,2] y)",
      "", "h = Gemm(x, w_a, w_b)\n r = Relu(h)\n y = MatMul(r, w_c)"));
  EXPECT_TRUE(d.loss_has_gradient);
  EXPECT_EQ(d.nodes, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(d.wants_gradient,
            (Wants{{false, true, true}, {true}, {true, true}}));
}

TEST(BackwardGraphTest, FrozenWeightsPassGradientsAndHaveNone) {
  const auto d = Flow(MakeTrainingModel(
      "(float[N,2] x, float[2] w_a) => (float[N,2] y)",
      "float[2] frozen = {1.0, 2.0}",
      "a = Mul(x, frozen)\n b = Mul(a, w_a)\n y = Mul(b, frozen)"));
  EXPECT_EQ(d.wants_gradient,
            (Wants{{false, false}, {false, true}, {true, false}}));
  EXPECT_FALSE(d.RunsBackward(0));
  EXPECT_TRUE(d.RunsBackward(1));
}

TEST(BackwardGraphTest, DeadBranchesDoNotRun) {
  const auto d = Flow(MakeTrainingModel(
      "(float[N,2] x, float[2] w_a, float[2] w_b) => (float[N,2] y)", "",
      "dead = Mul(x, w_b)\n y = Mul(x, w_a)\n z = Relu(y)"));
  ASSERT_EQ(d.nodes.size(), 1u);
  EXPECT_EQ(d.wants_gradient, (Wants{{false, true}}));
}

TEST(BackwardGraphTest, SettingsHaveNoGradient) {
  const auto d = Flow(MakeTrainingModel(
      "(float[N,2] x, float[2] w_a) => (float[N,2] y)",
      "float ratio = {0.5}, int64[2] shape = {-1, 2}",
      "a = Mul(x, w_a)\n b = Dropout(a, ratio)\n y = Reshape(b, shape)"));
  EXPECT_EQ(d.wants_gradient,
            (Wants{{false, true}, {true, false}, {true, false}}));
}

TEST(BackwardGraphTest, GradientsFlowFromEveryOutputOfSplit) {
  const auto d = Flow(MakeTrainingModel(
      "(float[N,4] x, float[4] w_a) => (float[N,2] y)", "",
      "a = Mul(x, w_a)\n p, q = Split <axis=1> (a)\n y = Relu(q)"));
  EXPECT_EQ(d.wants_gradient, (Wants{{false, true}, {true}, {true}}));
}

TEST(BackwardGraphTest, WhatIsKnownBeforeTrainingIsNotRun) {
  const auto d = Flow(
      MakeTrainingModel("(float[N,2] x, float[2] w_a) => (float[N,2] y)", "",
                        "s = Shape(x)\n a = Mul(x, w_a)\n y = Reshape(a, s)"));
  EXPECT_EQ(d.nodes, (std::vector<int>{1, 2}));
}

TEST(BackwardGraphTest, WithoutParametersOnlyForwardRuns) {
  TrainingModel m = MakeTrainingModel(
      "(float[N,2] x, float[2] w_a) => (float[N,2] y)", "", "y = Mul(x, w_a)");
  m.training.parameters.clear();
  const auto d = Flow(m);
  EXPECT_FALSE(d.loss_has_gradient);
  EXPECT_FALSE(d.RunsBackward(0));
}

}  // namespace
}  // namespace syncline::worker
