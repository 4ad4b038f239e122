// Goal: float64 that is fed or trained is float32 here, said aloud; float64
// that is known before training stays exact; what would be another number is
// refused by name. Method: small models, their types, notes and problems.

#include "common/model/import/float64_rewrite.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(const std::string& graph) {
  return absl::StrCat("<ir_version: 8, opset_import: [\"\" : 18]> g ", graph);
}

std::shared_ptr<const Model> Parse(const std::string& graph) {
  const auto model = Model::Parse(Text(graph), "m");
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : nullptr;
}

std::string TypeOf(const Model& model, const char* name) {
  return std::string(
      DTypeName(model.graph().values[model.graph().FindValue(name)].dtype));
}

TEST(Float64RewriteTest, AnInputThatIsCastIsFedAsFloat32) {
  const auto model = Parse(R"((double[N,2] x) => (float[N,2] y)
      <float[2] w = {1, 2}> { a = Cast <to = 1> (x)  y = Mul(a, w) })");
  EXPECT_EQ(TypeOf(*model, "x"), "float32");
  EXPECT_THAT(model->notes(),
              ElementsAre("computes in float64, which is trained in float32: "
                          "graph input 'x'"));
}

TEST(Float64RewriteTest, WeightsOfFloat64AreTrainedAndExportedAsSuch) {
  const auto model = Parse(R"((double[N,2] x) => (double[N,3] y)
      <double[3,2] w = {1, 2, 3, 4, 5, 6}, double s = {0.5}> {
      t = Transpose(w)
      p = MatMul(x, t)
      c = Constant <value = double {3}> ()
      q = Mul(p, s)
      y = Pow(q, c) })");
  EXPECT_EQ(TypeOf(*model, "w"), "float32");
  EXPECT_EQ(TypeOf(*model, "y"), "float32");
  const Graph& graph = model->graph();
  EXPECT_FALSE(graph.values[graph.FindValue("t")].folded);
  EXPECT_THAT(graph.initializers[0].tensor.floats(),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(model->notes(),
              ElementsAre(HasSubstr("graph input 'x', initializer 'w', "
                                    "initializer 's'")));
  const std::vector<float> w = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f};
  const auto bytes = model->WithWeights({{"w", w}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  onnx::ModelProto exported;
  ASSERT_TRUE(exported.ParseFromString(*bytes));
  const onnx::TensorProto& tensor = exported.graph().initializer(0);
  EXPECT_EQ(tensor.data_type(), onnx::TensorProto::DOUBLE);
  std::vector<double> values(6);
  ASSERT_EQ(tensor.raw_data().size(), sizeof(double) * values.size());
  std::memcpy(values.data(), tensor.raw_data().data(),
              tensor.raw_data().size());
  EXPECT_THAT(values, ElementsAre(0.5, 1.5, 2.5, 3.5, 4.5, 5.5));
  EXPECT_EQ(exported.graph().input(0).type().tensor_type().elem_type(),
            onnx::TensorProto::DOUBLE);
  EXPECT_TRUE(Model::Parse(*bytes, "again").ok());
}

TEST(Float64RewriteTest, WhatIsKnownBeforeTrainingStaysExact) {
  const auto model = Parse(R"((float[N,2] x) => (float[N,2] y) {
      c = Constant <value = double {0.1}> ()
      r = Sqrt(c)
      f = Cast <to = 1> (r)
      y = Mul(x, f) })");
  EXPECT_EQ(TypeOf(*model, "r"), "float64");
  EXPECT_THAT(model->notes(), IsEmpty());
}

TEST(Float64RewriteTest, AComputationInBetweenIsRounded) {
  const auto model = Parse(R"((float[N,2] x) => (float[N,2] y) {
      c = Constant <value = double {0.1}> ()
      a = Cast <to = 11> (x)
      b = Mul(a, c)
      d = Add(b, c)
      y = Cast <to = 1> (d) })");
  for (const char* name : {"a", "b", "d"}) {
    EXPECT_EQ(TypeOf(*model, name), "float32") << name;
  }
  EXPECT_THAT(model->notes(),
              ElementsAre("computes in float64, which is trained in float32: "
                          "node 'Cast#1' (Cast, opset 18)"));
}

TEST(Float64RewriteTest, WhatIsNotTrainedKeepsItsDigits) {
  const auto model = Parse(R"((double[N,2] x) => (double[N,2] y)
      <double[2] w = {0.1, 0.2}, double[2] frozen = {0.1, 0.3}> {
      a = Mul(x, w)
      y = Add(a, frozen) })");
  const std::vector<float> w = {0.5f, 0.1f};
  const auto bytes = model->WithWeights({{"w", w}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  onnx::ModelProto exported;
  ASSERT_TRUE(exported.ParseFromString(*bytes));
  const auto values_of = [&](int i) {
    std::vector<double> values(2);
    const std::string& raw = exported.graph().initializer(i).raw_data();
    EXPECT_EQ(raw.size(), sizeof(double) * values.size());
    std::memcpy(values.data(), raw.data(),
                std::min(raw.size(), sizeof(double) * values.size()));
    return values;
  };
  EXPECT_THAT(values_of(0), ElementsAre(0.5, double{0.1f}));
  EXPECT_THAT(values_of(1), ElementsAre(0.1, 0.3));
}

// CastLike takes the type of its second input, whose numbers do not matter.
TEST(Float64RewriteTest, CastLikeIsACast) {
  const auto model = Parse(R"((float[N,2] x) => (float[N,2] y)
      <double huge = {1e300}> {
      a = CastLike(x, huge)
      b = Mul(a, a)
      y = Cast <to = 1> (b) })");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(TypeOf(*model, "a"), "float32");
  EXPECT_THAT(model->notes(),
              ElementsAre("computes in float64, which is trained in float32: "
                          "node 'CastLike#0' (CastLike, opset 18)"));
}

TEST(Float64RewriteTest, AConstantCastLikeAnInputStaysExact) {
  const auto model = Parse(R"((double[N,2] x) => (double[N,2] y) {
      c = Constant <value = float {2}> ()
      d = Constant <value = double {0.1}> ()
      wide = CastLike(c, x)
      sum = Add(wide, d)
      y = Mul(x, sum) })");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(TypeOf(*model, "sum"), "float64");
  EXPECT_EQ(TypeOf(*model, "y"), "float32");
}

TEST(Float64RewriteTest, OtherNumbersAreRefusedByName) {
  const std::pair<const char*, const char*> table[] = {
      {R"((double[N,2] x) => (int64[N,2] y) { y = Cast <to = 7> (x) })",
       "node 'Cast#0' (Cast, opset 18): makes integers of float64"},
      {R"((double[N,2] x, int64[N] like) => (int64[N,2] y)
          { y = CastLike(x, like) })",
       "node 'CastLike#0' (CastLike, opset 18): makes integers of float64"},
      {R"((double[N,2] x) => (int64[N,2] y)
          { shape = Shape(x)  y = CastLike(x, shape) })",
       "node 'CastLike#1' (CastLike, opset 18): makes integers of float64"},
      {R"((double[N,2] x) => (double[N,2] y) <double[2] w = {1, 1e300}>
          { y = Mul(x, w) })",
       "initializer 'w': float64 is trained as float32, which has no 1e+300"},
      {R"((double[N,2] x) => (double[N,2] y)
          { c = Constant <value = double {-1e300}> () y = Mul(x, c) })",
       "float64 is trained as float32, which has no -1e+300"},
  };
  for (const auto& [text, problem] : table) {
    const auto model = Model::Parse(Text(text), "m");
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(problem));
  }
}

}  // namespace
}  // namespace syncline
