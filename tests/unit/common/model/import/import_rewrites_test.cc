// Goal: lists of tensors become operators on tensors, and the file is kept as
// it was. Method: each way in which exporters cut and join, by the nodes that
// come out and by the shapes of a model made of them.

#include "common/model/import/import_rewrites.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(int opset, const std::string& graph) {
  return absl::StrCat("<ir_version: 8, opset_import: [\"\" : ", opset, "]> g ",
                      graph);
}

struct Rewritten {
  std::vector<std::string> operators;
  std::string y;  // type and shape
};

Rewritten Rewrite(int opset, const std::string& graph) {
  const auto model = Model::Parse(Text(opset, graph), "m");
  EXPECT_TRUE(model.ok()) << model.status();
  Rewritten result;
  if (!model.ok()) return result;
  for (const Node& node : (*model)->graph().nodes) {
    result.operators.push_back(node.op_type);
  }
  const auto shapes = (*model)->InferShapes(5);
  EXPECT_TRUE(shapes.ok()) << shapes.status();
  result.y = DimsToString((*shapes)[(*model)->graph().FindValue("y")]);
  return result;
}

TEST(ImportRewritesTest, ARowOfEachIsAGather) {
  for (const int opset : {11, 13, 18}) {
    auto r = Rewrite(opset, R"((float[N,3,4] x) => (y) {
        s = SplitToSequence <axis = 1, keepdims = 0> (x)
        one = Constant <value = int64 {-1}> ()
        y = SequenceAt(s, one) })");
    EXPECT_THAT(r.operators, ElementsAre("Gather"));
    EXPECT_EQ(r.y, "[5,4]");
    r = Rewrite(opset, R"((float[N,3,4] x) => (y) {
        s = SplitToSequence <axis = 1> (x)
        one = Constant <value = int64 {2}> ()
        y = SequenceAt(s, one) })");
    EXPECT_EQ(r.y, "[5,1,4]");
  }
}

TEST(ImportRewritesTest, PartsOfOneSizeAreSlices) {
  const auto r = Rewrite(18, R"((float[N,5,4] x) => (y) {
      size = Constant <value = int64 {2}> ()
      zero = Constant <value = int64 {0}> ()
      two = Constant <value = int64 {2}> ()
      s = SplitToSequence <axis = 1> (x, size)
      a = SequenceAt(s, zero)
      b = SequenceAt(s, two)
      y = Concat <axis = 1> (a, b) })");
  EXPECT_THAT(r.operators, ElementsAre("Slice", "Slice", "Concat"));
  EXPECT_EQ(r.y, "[5,3,4]");  // the last part is the smaller one
}

TEST(ImportRewritesTest, PartsOfGivenSizesAreOneSplit) {
  for (const int opset : {11, 13, 18}) {
    const auto r = Rewrite(opset, R"((float[N,5,4] x) => (y)
        <int64[3] sizes = {1, 3, 1}> {
        last = Constant <value = int64 {-1}> ()
        one = Constant <value = int64 {1}> ()
        s = SplitToSequence <axis = 1> (x, sizes)
        a = SequenceAt(s, last)
        b = SequenceAt(s, one)
        y = Concat <axis = 1> (b, a) })");
    EXPECT_THAT(r.operators,
                ElementsAre("Split", "Identity", "Identity", "Concat"));
    EXPECT_EQ(r.y, "[5,4,4]");
  }
}

TEST(ImportRewritesTest, ListsAreJoined) {
  for (const int opset : {11, 13}) {
    auto r = Rewrite(opset, R"((float[N,4] a, float[N,4] b) => (y) {
        s = SequenceConstruct(a, b)
        y = ConcatFromSequence <axis = 1, new_axis = 1> (s) })");
    EXPECT_THAT(r.operators, ElementsAre("Unsqueeze", "Unsqueeze", "Concat"));
    EXPECT_EQ(r.y, "[5,2,4]");
    r = Rewrite(opset, R"((float[N,4] a, float[N,4] b) => (y) {
        s = SequenceConstruct(a, b)
        y = ConcatFromSequence <axis = 1> (s) })");
    EXPECT_EQ(r.y, "[5,8]");
  }
}

TEST(ImportRewritesTest, WhatCannotBeToldIsRefusedByName) {
  // How many parts there are depends on the data.
  const auto model = Model::Parse(Text(13, R"((float[N,5] x, int64[1] size) =>
      (y) {
      zero = Constant <value = int64 {0}> ()
      s = SplitToSequence(x, size)
      y = SequenceAt(s, zero) })"),
                                  "m");
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("SplitToSequence"));
}

TEST(ImportRewritesTest, TheExportIsTheFileAsItWas) {
  const std::string text = Text(13, R"((float[N,4] x) => (float[N,2] y)
      <float[2] w = {1, 2}> {
      one = Constant <value = int64 {1}> ()
      size = Constant <value = int64 {2}> ()
      s = SplitToSequence <axis = 1> (x, size)
      a = SequenceAt(s, one)
      y = Mul(a, w) })");
  const auto model = Model::Parse(text, "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->notes(), IsEmpty());
  const std::vector<float> w = {5, 6};
  const auto bytes = (*model)->WithWeights({{"w", w}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  onnx::ModelProto got, want;
  ASSERT_TRUE(ReadOnnxFile(*bytes, &got).ok());
  ASSERT_TRUE(ReadOnnxFile(text, &want).ok());
  EXPECT_EQ(got.graph().initializer(0).raw_data(),
            std::string(reinterpret_cast<const char*>(w.data()), 8));
  got.mutable_graph()->clear_initializer();
  want.mutable_graph()->clear_initializer();
  EXPECT_EQ(got.SerializeAsString(), want.SerializeAsString());
}

TEST(ImportRewritesTest, AFileWithoutAnyIsLeftAlone) {
  onnx::ModelProto file;
  ASSERT_TRUE(
      ReadOnnxFile(Text(13, "(float[N,2] x) => (y) { y = Relu(x) }"), &file)
          .ok());
  std::vector<std::string> problems, notes;
  ExactContents exact;
  EXPECT_EQ(RewriteForTraining(&file, &problems, &notes, &exact), nullptr);
}

}  // namespace
}  // namespace syncline
