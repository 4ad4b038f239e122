// Goal: the small accessors of the graph: sizes, names, attribute defaults.
// Method: examples.

#include "common/model/graph/graph.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(GraphTest, ElementTypes) {
  const std::tuple<DType, size_t, absl::string_view> table[] = {
      {DType::kFloat32, 4, "float32"}, {DType::kFloat64, 8, "float64"},
      {DType::kInt32, 4, "int32"},     {DType::kInt64, 8, "int64"},
      {DType::kBool, 1, "bool"},       {DType::kUint8, 1, "uint8"}};
  for (const auto& [dtype, bytes, name] : table) {
    EXPECT_EQ(DTypeBytes(dtype), bytes);
    EXPECT_EQ(DTypeName(dtype), name);
  }
}

TEST(GraphTest, Dims) {
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount({2, 3, 4}), 24);
  EXPECT_EQ(ElementCount({2, 0}), 0);
  EXPECT_EQ(DimsToString({}), "[]");
  EXPECT_EQ(DimsToString({kBatchDim, 3, kDerivedDim}), "[N,3,?]");
}

TEST(GraphTest, ConstantsAreReadInPlace) {
  const float values[] = {1.5f, -2};
  ConstantTensor tensor;
  tensor.dims = {2};
  tensor.bytes.assign(reinterpret_cast<const char*>(values), sizeof(values));
  EXPECT_THAT(tensor.floats(), ElementsAre(1.5f, -2));
  const int64_t ints[] = {-1};
  tensor.dtype = DType::kInt64;
  tensor.bytes.assign(reinterpret_cast<const char*>(ints), sizeof(ints));
  EXPECT_THAT(tensor.ints(), ElementsAre(-1));
}

TEST(GraphTest, AttributesFallBack) {
  Node node;
  node.attributes["axis"] = int64_t{2};
  node.attributes["alpha"] = 0.5f;
  node.attributes["mode"] = std::string("tanh");
  node.attributes["perm"] = std::vector<int64_t>{1, 0};
  EXPECT_EQ(node.Int("axis", 7), 2);
  EXPECT_EQ(node.Int("absent", 7), 7);
  EXPECT_EQ(node.Int("alpha", 7), 7);  // another type
  EXPECT_EQ(node.Float("alpha", 1), 0.5f);
  EXPECT_EQ(node.Float("absent", 1), 1);
  EXPECT_EQ(node.String("mode", "none"), "tanh");
  EXPECT_EQ(node.String("absent", "none"), "none");
  EXPECT_THAT(node.Ints("perm"), ElementsAre(1, 0));
  EXPECT_THAT(node.Ints("absent"), IsEmpty());
  EXPECT_TRUE(node.Has("axis"));
  EXPECT_FALSE(node.Has("absent"));
}

TEST(GraphTest, ValuesAreFoundByName) {
  Graph graph;
  graph.values.resize(2);
  graph.values[1].name = "x";
  EXPECT_EQ(graph.FindValue("x"), 1);
  EXPECT_EQ(graph.FindValue("y"), kNoValue);
}

}  // namespace
}  // namespace syncline
