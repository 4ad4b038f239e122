// Goal: gradients are followed as the list of operators says, and one that
// would be lost is found. Method: small graphs; names of what is reached and of
// where a gradient ends.

#include "common/model/graph/gradient_flow.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Parameters are initializers whose names start with "w".
struct Flow {
  std::vector<std::string> reached;  // of the parameters
  std::vector<std::string> lost;     // "parameter at node: value"
};

Flow FlowOf(const std::string& graph_text, int opset = 13) {
  const auto parsed =
      Model::Parse(absl::StrCat("<ir_version: 8, opset_import: [\"\" : ", opset,
                                "]>\ng ", graph_text),
                   "test");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  Flow flow;
  if (!parsed.ok()) return flow;
  const Graph& graph = (*parsed)->graph();
  const ValueId output = graph.outputs[0];
  const std::vector<bool> reached = ReachedByGradient(graph, output);
  std::vector<bool> is_parameter(graph.values.size(), false);
  for (const Initializer& initializer : graph.initializers) {
    const std::string& name = graph.values[initializer.value].name;
    if (!absl::StartsWith(name, "w")) continue;
    is_parameter[initializer.value] = true;
    if (reached[initializer.value]) flow.reached.push_back(name);
  }
  for (const LostGradient& lost :
       FindLostGradients(graph, output, is_parameter)) {
    flow.lost.push_back(absl::StrCat(graph.values[lost.parameter].name, " at ",
                                     graph.nodes[lost.node].op_type,
                                     lost.is_output ? " out " : " in ",
                                     graph.values[lost.value].name));
  }
  return flow;
}

TEST(GradientFlowTest, FollowsTheListOfOperators) {
  const Flow flow = FlowOf(R"((float[N,4] x) => (float[4] y)
      <float[4] w1 = {1,2,3,4}, float w2 = {0.5}, float[4] w3 = {1,2,3,4}>
      { a = Mul(x, w1) b = Dropout(a, w2) y = Floor(w3)
        z = Add(b, w3) })");
  EXPECT_THAT(flow.reached, IsEmpty());  // Floor has no derivative
  EXPECT_THAT(flow.lost, IsEmpty());
}

TEST(GradientFlowTest, SettingsOfReachedNodesAreNotReached) {
  const Flow flow = FlowOf(R"((float[N,4] x) => (float[N,4] y)
      <float[4] w1 = {1,2,3,4}, float w2 = {0.5}>
      { a = Mul(x, w1) y = Dropout(a, w2) })");
  EXPECT_THAT(flow.reached, ElementsAre("w1"));
  EXPECT_THAT(flow.lost, ElementsAre("w2 at Dropout in w2"));
}

TEST(GradientFlowTest, EveryInputAndOutputOfManyCounts) {
  std::string outputs, inputs, weights;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&outputs, i == 0 ? "" : ", ", "p", i);
    absl::StrAppend(&inputs, i == 0 ? "" : ", ", "w", i);
    absl::StrAppend(&weights, i == 0 ? "" : ", ", "float[1,1] w", i, " = {1}");
  }
  const Flow split = FlowOf(absl::StrCat(
      "(float[N,40] x) => (float[N,1] y)\n<float[40] w = {",
      absl::StrJoin(std::vector<int>(40, 1), ","), "}>\n{ a = Mul(x, w) ",
      outputs, " = Split <axis = 1> (a) y = Relu(p39) }"));
  EXPECT_THAT(split.reached, ElementsAre("w"));
  EXPECT_THAT(split.lost, IsEmpty());
  const Flow concat = FlowOf(absl::StrCat(
      "(float[N,40] x) => (float[N,40] y)\n<", weights, ">\n{ a = Concat ",
      "<axis = 1> (", inputs, ") y = Mul(x, a) }"));
  EXPECT_EQ(concat.reached.size(), 40u);
  EXPECT_THAT(concat.lost, IsEmpty());
}

// The import makes float64 on the way float32 (float64_rewrite_test).
TEST(GradientFlowTest, Float64LosesNothing) {
  const Flow flow = FlowOf(R"((float[N,4] x) => (float[N,4] y)
      <float[4] w1 = {1,2,3,4}, int64 axis = {1}>
      { a = Mul(x, w1) d = Cast <to = 11> (a) s = CumSum(d, axis)
        c = Cast <to = 1> (s) y = Add(a, c) })");
  EXPECT_THAT(flow.reached, ElementsAre("w1"));
  EXPECT_THAT(flow.lost, IsEmpty());
}

TEST(GradientFlowTest, IntegersAndDeadBranchesLoseNothing) {
  const Flow flow = FlowOf(R"((float[N,4] x) => (float[N,4] y)
      <float[4] w1 = {1,2,3,4}, float[4] w2 = {1,2,3,4}>
      { a = Mul(x, w1) i = Cast <to = 7> (a) f = Cast <to = 1> (i)
        r = Round(a) b = Add(f, r) y = Add(a, b)
        d = Cast <to = 11> (w2) e = Cast <to = 1> (d) z = Mul(a, e) })");
  EXPECT_THAT(flow.reached, ElementsAre("w1"));
  EXPECT_THAT(flow.lost, IsEmpty());
}

TEST(GradientFlowTest, AnOutputWithoutGradientLosesIt) {
  const Flow flow = FlowOf(R"((float[N,1,2,4] x) => (float[N,1,2,2] scores)
      <float[4] w1 = {1,2,3,4}>
      { q = Mul(x, w1) y, pk, pv, scores = Attention(q, q, q) })",
                           23);
  EXPECT_THAT(flow.reached, IsEmpty());
  EXPECT_THAT(flow.lost, ElementsAre("w1 at Attention out scores"));
}

}  // namespace
}  // namespace syncline
