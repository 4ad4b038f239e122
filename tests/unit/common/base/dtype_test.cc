#include "common/base/dtype.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(DTypeTest, SizesAreThoseOfTheTypesInMemory) {
  EXPECT_EQ(DTypeBytes(DType::kFloat32), sizeof(float));
  EXPECT_EQ(DTypeBytes(DType::kFloat64), sizeof(double));
  EXPECT_EQ(DTypeBytes(DType::kInt32), sizeof(int32_t));
  EXPECT_EQ(DTypeBytes(DType::kInt64), sizeof(int64_t));
  EXPECT_EQ(DTypeBytes(DType::kBool), sizeof(bool));
  EXPECT_EQ(DTypeBytes(DType::kUint8), sizeof(uint8_t));
  EXPECT_EQ(DTypeBytes(DType::kBfloat16), sizeof(uint16_t));
  EXPECT_EQ(DTypeBytes(DType::kFloat16), sizeof(uint16_t));
}

TEST(DTypeTest, TwoTypesHave16Bits) {
  EXPECT_TRUE(Is16Bit(DType::kBfloat16));
  EXPECT_TRUE(Is16Bit(DType::kFloat16));
  EXPECT_FALSE(Is16Bit(DType::kFloat32));
  EXPECT_FALSE(Is16Bit(DType::kBool));
}

TEST(DTypeTest, NamesAreThoseOfOnnxInLowerCase) {
  EXPECT_EQ(DTypeName(DType::kFloat32), "float32");
  EXPECT_EQ(DTypeName(DType::kInt64), "int64");
  EXPECT_EQ(DTypeName(DType::kBool), "bool");
  EXPECT_EQ(DTypeName(DType::kBfloat16), "bfloat16");
  EXPECT_EQ(DTypeName(DType::kFloat16), "float16");
}

}  // namespace
}  // namespace syncline
