// Goal: sizes and names of element types and dimensions, and the contents of
// constants. Method: examples.

#include "common/model/graph/tensor.h"

#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;

TEST(TensorTest, ElementTypes) {
  const std::tuple<DType, size_t, absl::string_view> table[] = {
      {DType::kFloat32, 4, "float32"}, {DType::kFloat64, 8, "float64"},
      {DType::kInt32, 4, "int32"},     {DType::kInt64, 8, "int64"},
      {DType::kBool, 1, "bool"},       {DType::kUint8, 1, "uint8"}};
  for (const auto& [dtype, bytes, name] : table) {
    EXPECT_EQ(DTypeBytes(dtype), bytes);
    EXPECT_EQ(DTypeName(dtype), name);
  }
}

TEST(TensorTest, Dims) {
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount({2, 3, 4}), 24);
  EXPECT_EQ(ElementCount({2, 0}), 0);
  EXPECT_EQ(DimsToString({}), "[]");
  EXPECT_EQ(DimsToString({kBatchDim, 3, kDerivedDim}), "[N,3,?]");
}

TEST(TensorTest, ConstantsAreReadInPlace) {
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

}  // namespace
}  // namespace syncline
