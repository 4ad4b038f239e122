// Goal: the operator table agrees with ONNX: every listed version exists and
// none is missing, as far as libonnx knows; every supported operator has a
// schema at every opset that has the operator.
// Method: walk all opsets.

#include "common/model/graph/schemas.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/graph/operator_list.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/defs/schema.h"

namespace syncline {
namespace {

using ::testing::Contains;
using ::testing::Not;

TEST(SchemasTest, TheListIsSortedAndHasNoConstant) {
  const std::vector<std::string> names = SupportedOperators();
  EXPECT_GE(names.size(), 46u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_THAT(names, Contains("Gemm"));
  EXPECT_THAT(names, Not(Contains("Constant")));
  EXPECT_TRUE(IsSupportedOperator("Gemm"));
  EXPECT_FALSE(IsSupportedOperator("Constant"));
  EXPECT_FALSE(IsSupportedOperator("Loop"));
  EXPECT_EQ(FindOperator("Loop"), nullptr);
}

TEST(SchemasTest, EveryOpsetHasASchema) {
  for (const std::string& name : SupportedOperators()) {
    const OperatorInfo& op = *FindOperator(name);
    for (int opset = kOpsetMin; opset <= kOpsetMax; ++opset) {
      SCOPED_TRACE(absl::StrCat(name, " at ", opset));
      const bool exists = opset >= op.versions[0];
      EXPECT_EQ(FindSchema(op, opset) != nullptr, exists);
      EXPECT_EQ(SinceVersion(op, opset) != 0, exists);
    }
  }
}

TEST(SchemasTest, VersionsAgreeWithLibonnx) {
  for (const std::string& name : SupportedOperators()) {
    const OperatorInfo& op = *FindOperator(name);
    for (int opset = kOpsetMin; opset <= 17; ++opset) {
      const onnx::OpSchema* schema = FindSchema(op, opset);
      if (schema == nullptr) continue;
      EXPECT_EQ(SinceVersion(op, opset), schema->SinceVersion())
          << name << " at " << opset;
    }
  }
}

TEST(SchemasTest, VersionsAscend) {
  for (const std::string& name : SupportedOperators()) {
    const auto& versions = FindOperator(name)->versions;
    const auto end = std::find(versions.begin(), versions.end(), 0);
    EXPECT_LT(versions.begin(), end) << name;
    EXPECT_TRUE(std::is_sorted(versions.begin(), end)) << name;
    EXPECT_LE(*(end - 1), kOpsetMax) << name;
  }
}

TEST(SchemasTest, SomeVersions) {
  const std::tuple<const char*, int, int> table[] = {
      {"Softmax", 11, 11},
      {"Softmax", 12, 11},
      {"Softmax", 25, 13},
      {"Dropout", 11, 10},
      {"Dropout", 12, 12},
      {"Dropout", 22, 22},
      {"Reshape", 11, 5},
      {"Reshape", 14, 14},
      {"Reshape", 20, 19},
      {"Flatten", 25, 25},
      {"Identity", 25, 25},
      {"Relu", 11, 6},
      {"Gelu", 20, 20},
      {"ReduceMean", 17, 13},
      {"ReduceMean", 18, 18},
      {"ReduceSum", 18, 13},
      {"ScatterND", 16, 16},
      {"MatMul", 12, 9},
      {"Add", 13, 13},
      {"Split", 18, 18},
      {"LayerNormalization", 16, 0},
      {"RMSNormalization", 22, 0},
      {"AveragePool", 18, 11},
      {"AveragePool", 20, 19},
      {"Conv", 21, 11},
      {"MaxPool", 12, 12},
  };
  for (const auto& [name, opset, since] : table) {
    EXPECT_EQ(SinceVersion(*FindOperator(name), opset), since)
        << name << " at " << opset;
  }
}

}  // namespace
}  // namespace syncline
