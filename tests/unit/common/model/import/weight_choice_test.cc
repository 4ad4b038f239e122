// Goal: constants that exporters store as initializers are told from weights by
// their values and uses, and what is not certain is a weight. Method: a row for
// each kind of constant, and its siblings that are weights.

#include "common/model/import/weight_choice.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/model.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

// The judgement of initializer "w", given as text "float[2] w = {1,2}".
WeightReason Judge(const std::string& initializers, const std::string& nodes,
                   const std::string& inputs = "float[N,4] x", int opset = 17) {
  const std::string text =
      absl::StrCat("<ir_version: 8, opset_import: [\"\" : ", opset, "]>\ng (",
                   inputs, ") => (y)\n<", initializers, ">\n{ ", nodes, " }");
  const auto model = Model::Parse(text, "test");
  EXPECT_TRUE(model.ok()) << model.status() << text;
  if (!model.ok()) return WeightReason::kUnreached;
  const Graph& graph = (*model)->graph();
  for (const Initializer& initializer : graph.initializers) {
    const std::string& name = graph.values[initializer.value].name;
    if (name == "w") {
      return WeightUses(graph).Judge(initializer);
    }
  }
  ADD_FAILURE() << "no w";
  return WeightReason::kUnreached;
}

std::string Floats(const std::string& type, const std::vector<float>& values) {
  return absl::StrCat(type, " w = {", absl::StrJoin(values, ","), "}");
}

TEST(WeightChoiceTest, SingleNumbersInArithmeticAreConstants) {
  for (const char* nodes :
       {"y = Mul(x, w)", "y = Div(x, w)", "y = Pow(x, w)", "y = Add(x, w)",
        "y = Sub(x, w)", "a = Exp(w) y = Mul(x, a)",
        "a = Identity(w) y = Mul(x, a)"}) {
    EXPECT_EQ(Judge("float w = {0.5}", nodes), WeightReason::kSingleNumber)
        << nodes;
    EXPECT_EQ(Judge("float[1] w = {0.5}", nodes), WeightReason::kSingleNumber)
        << nodes;
  }
}

TEST(WeightChoiceTest, SingleNumbersInLayersAreWeights) {
  // The slope of a PRelu, as it is and brought to a shape.
  EXPECT_EQ(Judge("float[1] w = {0.25}", "y = PRelu(x, w)"),
            WeightReason::kLayer);
  EXPECT_EQ(Judge("float[1] w = {0.25}, int64[2] s = {1,1}",
                  "a = Reshape(w, s) y = PRelu(x, a)"),
            WeightReason::kLayer);
  // The bias of one output: of a Gemm, and added to a product.
  const char kColumn[] = "float[4,1] m = {1,2,3,4}, ";
  EXPECT_EQ(
      Judge(absl::StrCat(kColumn, "float[1] w = {0}"), "y = Gemm(x, m, w)"),
      WeightReason::kLayer);
  EXPECT_EQ(Judge(absl::StrCat(kColumn, "float[1] w = {0}"),
                  "p = MatMul(x, m) y = Add(p, w)"),
            WeightReason::kLayer);
  // A number without dimensions is no bias, unless it is called one.
  EXPECT_EQ(Judge(absl::StrCat(kColumn, "float w = {0}"),
                  "p = MatMul(x, m) y = Add(p, w)"),
            WeightReason::kSingleNumber);
  // One channel.
  EXPECT_EQ(Judge("float[1] w = {1}, float[1] b = {0}, float[1] m = {0}, "
                  "float[1] v = {1}",
                  "y = BatchNormalization(x, w, b, m, v)", "float[N,1,4] x"),
            WeightReason::kLayer);
}

TEST(WeightChoiceTest, StatisticsAreNeitherConstantsNorWeights) {
  EXPECT_EQ(Judge("float[1] s = {1}, float[1] b = {0}, float[1] w = {0}, "
                  "float[1] v = {1}",
                  "y = BatchNormalization(x, s, b, w, v)", "float[N,1,4] x"),
            WeightReason::kStatistic);
}

TEST(WeightChoiceTest, ZerosThatARecurrentLayerStartsFrom) {
  const char kWeights[] =
      "float[1,4,4] k = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}, "
      "float[1,4,4] r = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}, ";
  const char kNode[] = "y, h = RNN <hidden_size = 4> (x, k, r, , , w)";
  const char kInput[] = "float[3,1,4] x";
  EXPECT_EQ(Judge(absl::StrCat(kWeights, "float[1,1,4] w = {0,0,0,0}"), kNode,
                  kInput),
            WeightReason::kZeroState);
  // A start that is learned is not zero any more.
  EXPECT_EQ(Judge(absl::StrCat(kWeights, "float[1,1,4] w = {0,1,0,0}"), kNode,
                  kInput),
            WeightReason::kAssumed);
  EXPECT_EQ(Judge(absl::StrCat(kWeights,
                               "float[1,4] w = {0,0,0,0}, "
                               "int64[1] a = {0}"),
                  "s = Unsqueeze(w, a) y, h = RNN <hidden_size = 4> "
                  "(x, k, r, , , s)",
                  kInput),
            WeightReason::kZeroState);
}

TEST(WeightChoiceTest, MasksFrequenciesAndPositionsAreToldByTheirValues) {
  EXPECT_EQ(Judge(Floats("float[2,2]", {0, -1e9f, 0, 0}), "y = Add(x, w)",
                  "float[N,2,2] x"),
            WeightReason::kMask);
  EXPECT_EQ(Judge(Floats("float[2,2]", {0, -3, 0, 0}), "y = Add(x, w)",
                  "float[N,2,2] x"),
            WeightReason::kAssumed);
  std::vector<float> frequencies, table, cosines;
  for (int i = 0; i < 4; ++i) {
    frequencies.push_back(std::pow(10000.0f, -2.0f * i / 8));
  }
  for (int t = 0; t < 6; ++t) {
    for (int c = 0; c < 4; ++c) {
      const float angle = t * std::pow(10000.0f, -(c / 2) / 2.0f);
      table.push_back(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
      cosines.push_back(std::cos(t * (2.5f - c / 3.0f)));
    }
  }
  EXPECT_EQ(Judge(Floats("float[4]", frequencies), "y = Mul(x, w)"),
            WeightReason::kFrequencies);
  // Also where they are multiplied with positions as a matrix.
  EXPECT_EQ(Judge(Floats("float[4,1]", frequencies), "y = MatMul(x, w)"),
            WeightReason::kFrequencies);
  EXPECT_EQ(
      Judge(Floats("float[1,6,4]", table), "y = Add(x, w)", "float[N,6,4] x"),
      WeightReason::kPositions);
  EXPECT_EQ(
      Judge(Floats("float[6,4]", cosines), "y = Mul(x, w)", "float[N,6,4] x"),
      WeightReason::kPositions);
  // An embedding that starts small, with a row for padding.
  std::vector<float> small(24, 1e-4f);
  std::fill(small.begin(), small.begin() + 4, 0.0f);
  EXPECT_NE(
      Judge(Floats("float[6,4]", small), "y = Mul(x, w)", "float[N,6,4] x"),
      WeightReason::kPositions);
  // Weights as they may start.
  EXPECT_EQ(Judge(Floats("float[6,4]", std::vector<float>(24, 1)),
                  "y = Mul(x, w)", "float[N,6,4] x"),
            WeightReason::kAssumed);
  EXPECT_EQ(Judge(Floats("float[4]", {1, 1, 1, 1}), "y = Mul(x, w)"),
            WeightReason::kAssumed);
  table[9] += 0.1f;
  EXPECT_EQ(
      Judge(Floats("float[1,6,4]", table), "y = Add(x, w)", "float[N,6,4] x"),
      WeightReason::kAssumed);
}

TEST(WeightChoiceTest, ReadersAreCountedThroughWhatOnlyMoves) {
  const auto model = Model::Parse(R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,4] x) => (float[N,4] y)
      <float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[4] b = {1,2,3,4}>
      { t = Transpose(w) a = MatMul(x, w) c = MatMul(a, t) y = Add(c, b) })",
                                  "test");
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = (*model)->graph();
  const WeightUses uses(graph);
  EXPECT_EQ(uses.ReaderCount(graph.FindValue("w")), 2);
  EXPECT_EQ(uses.ReaderCount(graph.FindValue("b")), 1);
}

}  // namespace
}  // namespace syncline
