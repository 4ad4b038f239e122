// Goal: values between convolutions lie in blocks, and no operator is given
// blocks that it does not know. Method: small graphs; which values are blocked.

#include "worker/compute/layout_assignment.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "tests/testing/training_model.h"
#include "worker/compute/dtype_overlay.h"

namespace syncline::worker {
namespace {

using ::testing::IsEmpty;
using testing::MakeTrainingModel;
using testing::TrainingModel;
using ::testing::UnorderedElementsAre;

// `inputs` besides x [N,C,4,4] and w_k, a 1x1 kernel of C filters.
std::set<std::string> Blocked(const std::string& body, int64_t channels = 16,
                              const std::string& inputs = "",
                              int64_t block = 16,
                              const std::string& output = "float[N,M] y") {
  const std::string c = std::to_string(channels);
  const TrainingModel m =
      MakeTrainingModel("(float[N," + c + ",4,4] x, float[" + c + "," + c +
                            ",1,1] w_k" + inputs + ") => (" + output + ")",
                        "", body, /*opset=*/14);
  std::set<std::string> names;
  if (m.model == nullptr) return names;
  const Graph& graph = m.model->graph();
  std::vector<ValueId> parameters;
  for (const auto& p : m.training.parameters) parameters.push_back(p.value);
  const auto shapes = m.model->Infer(2);
  EXPECT_TRUE(shapes.ok()) << shapes.status();
  const std::vector<int64_t> blocks = AssignLayouts(
      graph, BuildBackwardGraph(graph, m.training.loss_output, parameters),
      shapes->dims, m.training.loss_output, block);
  for (size_t v = 0; v < blocks.size(); ++v) {
    if (blocks[v] == 1) continue;
    EXPECT_EQ(blocks[v], block);
    names.insert(graph.values[v].name);
  }
  return names;
}

constexpr char kPooled[] = "p = GlobalAveragePool(last)\n y = Flatten(p)";

TEST(LayoutAssignmentTest, FromConvolutionToPool) {
  EXPECT_THAT(Blocked(std::string("a = Conv(x, w_k)\n b = Relu(a)\n"
                                  "c = MaxPool <kernel_shape = [2, 2]> (b)\n"
                                  "last = Conv(c, w_k)\n") +
                      kPooled),
              UnorderedElementsAre("a", "b", "c", "last"));
}

// Rounding goes element by element: what is kept in blocks in float32 is kept
// in blocks in 16 bits.
TEST(LayoutAssignmentTest, CopiesOf16BitsHaveTheLayoutOfTheirSource) {
  const TrainingModel m = MakeTrainingModel(
      "(float[N,16,4,4] x, float[16,16,1,1] w_k) => (float[N,M] y)", "",
      "a = Conv(x, w_k)\n b = Exp(a)\n c = Conv(b, w_k)\n"
      "p = GlobalAveragePool(c)\n y = Flatten(p)",
      /*opset=*/14);
  const Graph& graph = m.model->graph();
  const ValueId w = m.training.parameters[0].value;
  const BackwardGraph flow =
      BuildBackwardGraph(graph, m.training.loss_output, {w});
  const DTypeOverlay overlay =
      OverlayDTypes({.graph = &graph,
                     .flow = &flow,
                     .data = m.training.feeds,
                     .loss_output = m.training.loss_output});
  auto shapes = m.model->Infer(2);
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  for (size_t v = shapes->dims.size(); v < overlay.sources.size(); ++v) {
    shapes->dims.push_back(Dims(shapes->dims[overlay.sources[v]]));
  }
  const std::vector<int64_t> blocks =
      AssignLayouts(overlay.graph, overlay.flow, shapes->dims,
                    m.training.loss_output, /*block=*/16);
  std::set<std::string> names;
  for (size_t v = 0; v < blocks.size(); ++v) {
    if (blocks[v] > 1) names.insert(overlay.graph.values[v].name);
  }
  EXPECT_THAT(names, UnorderedElementsAre("a", "b", "b in bfloat16", "c"));
}

TEST(LayoutAssignmentTest, AResidualIsAllOrNothing) {
  const std::string block =
      "a = Conv(x, w_k)\n b = Relu(a)\n c = Conv(b, w_k)\n"
      "last = Add(c, b)\n";
  EXPECT_THAT(Blocked(block + kPooled),
              UnorderedElementsAre("a", "b", "c", "last"));
  // Flatten reads rows, so the sum is in rows, and both that it is of.
  EXPECT_THAT(Blocked(block + "y = Flatten(last)"), IsEmpty());
}

TEST(LayoutAssignmentTest, WhatIsGivenIsInRows) {
  EXPECT_THAT(Blocked(std::string("last = Conv(x, w_k)\n") + kPooled),
              UnorderedElementsAre("last"));
  EXPECT_THAT(Blocked(std::string("a = Relu(x)\n b = Conv(a, w_k)\n"
                                  "last = Add(b, x)\n") +
                      kPooled),
              IsEmpty());
}

TEST(LayoutAssignmentTest, ABroadcastOperandKeepsRowsAndAScalarDoesNot) {
  const std::string conv = "a = Conv(x, w_k)\n last = Mul(a, w_s)\n";
  EXPECT_THAT(Blocked(conv + kPooled, 16, ", float[16,1,1] w_s"), IsEmpty());
  EXPECT_THAT(Blocked(conv + kPooled, 16, ", float[1] w_s"),
              UnorderedElementsAre("a", "last"));
}

TEST(LayoutAssignmentTest, BatchNormalizationGoesWithItsInput) {
  EXPECT_THAT(Blocked(std::string("a = Conv(x, w_k)\n"
                                  "last = BatchNormalization(a, w_s, w_b, "
                                  "w_running_m, w_running_v)\n") +
                          kPooled,
                      16,
                      ", float[16] w_s, float[16] w_b, float[16] w_running_m, "
                      "float[16] w_running_v"),
              UnorderedElementsAre("a", "last"));
}

TEST(LayoutAssignmentTest, WhereMaximaWereIsToldOfRows) {
  EXPECT_THAT(Blocked("a = Conv(x, w_k)\n"
                      "b, at = MaxPool <kernel_shape = [2, 2]> (a)\n"
                      "c = Flatten(b)\n d = Flatten(at)\n"
                      "e = Cast <to = 1> (d)\n y = Add(c, e)"),
              IsEmpty());
}

TEST(LayoutAssignmentTest, ChannelsThatDoNotFillBlocksAndOtherMachines) {
  const std::string conv = std::string("last = Conv(x, w_k)\n") + kPooled;
  EXPECT_THAT(Blocked(conv, 24), IsEmpty());
  EXPECT_THAT(Blocked(conv, 24, "", /*block=*/8), UnorderedElementsAre("last"));
  EXPECT_THAT(Blocked(conv, 16, "", /*block=*/1), IsEmpty());
}

TEST(LayoutAssignmentTest, ScoresAreInRows) {
  EXPECT_THAT(Blocked("a = Conv(x, w_k)\n y = Relu(a)", 16, "", 16,
                      "float[N,16,4,4] y"),
              IsEmpty());
}

}  // namespace
}  // namespace syncline::worker
