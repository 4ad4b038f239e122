// Goal: what an exporter wrote for training is for inference after an export,
// and nothing else changes. Method: graphs in ONNX's text syntax.

#include "common/model/import/inference_form.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;

onnx::GraphProto InferenceForm(const char* text) {
  onnx::GraphProto graph;
  onnx::OnnxParser parser(text);
  const auto status = parser.Parse(graph);
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage();
  MakeInferenceForm(&graph);
  return graph;
}

TEST(InferenceFormTest, DropoutLosesItsTrainingMode) {
  const onnx::GraphProto graph = InferenceForm(R"(
      g (float[N,4] x, float r, bool t) => (float[N,4] y)
      { a = Dropout(x, r, t)  b = Dropout(a, r)  y = Dropout <seed = 7> (b) })");
  EXPECT_THAT(graph.node(0).input(), ElementsAre("x", "r"));
  EXPECT_THAT(graph.node(1).input(), ElementsAre("a", "r"));
  EXPECT_THAT(graph.node(2).input(), ElementsAre("b"));
  EXPECT_EQ(graph.node(2).attribute(0).i(), 7);
}

TEST(InferenceFormTest, BatchNormalizationUsesItsRunningValues) {
  const onnx::GraphProto graph = InferenceForm(R"(
      g (float[N,4] x, float[4] s, float[4] b, float[4] m, float[4] v)
      => (float[N,4] y)
      { y, rm, rv = BatchNormalization <training_mode = 1, momentum = 0.9>
            (x, s, b, m, v) })");
  EXPECT_THAT(graph.node(0).output(), ElementsAre("y"));
  EXPECT_EQ(graph.node(0).attribute(0).i(), 0);
  EXPECT_EQ(graph.node(0).attribute(1).f(), 0.9f);
  EXPECT_EQ(graph.node(0).input_size(), 5);
}

TEST(InferenceFormTest, StatisticsThatAreReadStay) {
  const onnx::GraphProto graph = InferenceForm(R"(
      g (float[N,4] x, float[4] s, float[4] b, float[4] m, float[4] v)
      => (float[N,4] y, float[4] rm)
      { y, rm, rv = BatchNormalization <training_mode = 1> (x, s, b, m, v) })");
  EXPECT_EQ(graph.node(0).output_size(), 3);
  EXPECT_EQ(graph.node(0).attribute(0).i(), 1);
}

}  // namespace
}  // namespace syncline
