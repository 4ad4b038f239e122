// Goal: every wire type of a job has its element type, float32 by default.
// Method: a table.

#include "common/wire/wire_element_type.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(WireElementTypeTest, IsWhatTheJobSays) {
  EXPECT_EQ(ElementTypeOf(WIRE_BFLOAT16), ElementType::kBfloat16);
  EXPECT_EQ(ElementTypeOf(WIRE_FLOAT16), ElementType::kFloat16);
  EXPECT_EQ(ElementTypeOf(WIRE_FLOAT32), ElementType::kFloat32);
  EXPECT_EQ(ElementTypeOf(JobSpec().wire_type()), ElementType::kFloat32);
}

}  // namespace
}  // namespace syncline
