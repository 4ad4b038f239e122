// Goal: the list of types names operators that exist, each once, and nothing
// that adds up many numbers or grows fast is in 16 bits. Method: the list
// against the operators', and a few rows.

#include "worker/compute/type_rules.h"

#include "common/model/graph/operator_list.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using Kind = TypeRule::Kind;

TEST(TypeRulesTest, ProductsAreNarrow) {
  for (const char* op : {"Gemm", "MatMul", "Conv", "ConvTranspose"}) {
    EXPECT_EQ(TypeRuleOf(op).kind, Kind::kNarrow) << op;
    EXPECT_EQ(TypeRuleOf(op).inputs, 0b11u) << op;  // not the bias
  }
  for (const char* op : {"Attention", "RNN", "GRU", "LSTM"}) {
    EXPECT_EQ(TypeRuleOf(op).kind, Kind::kNarrow) << op;
    EXPECT_EQ(TypeRuleOf(op).inputs, 0b111u) << op;
  }
  EXPECT_EQ(TypeRuleOf("Einsum").inputs, kEvery);
}

TEST(TypeRulesTest, SumsPowersAndLossesAreFloat32) {
  for (const char* op : {"Softmax",
                         "LogSoftmax",
                         "Exp",
                         "Log",
                         "Pow",
                         "Reciprocal",
                         "Softplus",
                         "ReduceSum",
                         "ReduceMean",
                         "ReduceL2",
                         "ReduceLogSumExp",
                         "CumSum",
                         "LRN",
                         "SoftmaxCrossEntropyLoss",
                         "NegativeLogLikelihoodLoss",
                         "ScatterND",
                         "ScatterElements",
                         "Cast",
                         "Sqrt",
                         "no such operator"}) {
    EXPECT_EQ(TypeRuleOf(op).kind, Kind::kFloat32) << op;
  }
}

// Scales, means and variances stay float32, read or written.
TEST(TypeRulesTest, OfANormalizationOnlyTheDataIsNarrow) {
  for (const char* op :
       {"BatchNormalization", "InstanceNormalization", "GroupNormalization",
        "LayerNormalization", "RMSNormalization"}) {
    const TypeRule rule = TypeRuleOf(op);
    EXPECT_EQ(rule.kind, Kind::kFollows) << op;
    EXPECT_EQ(rule.inputs, 0b1u) << op;
    EXPECT_EQ(rule.outputs, 0b1u) << op;
  }
}

// The operators of the model's list that have a rule are all that there are.
TEST(TypeRulesTest, EveryRuleIsOfAnOperatorThatExists) {
  int ruled = 0;
  for (const std::string& op : SupportedOperators()) {
    const TypeRule rule = TypeRuleOf(op);
    if (rule.kind == Kind::kFloat32) continue;
    ++ruled;
    EXPECT_NE(rule.inputs, 0u) << op;
    EXPECT_NE(rule.outputs, 0u) << op;
  }
  EXPECT_EQ(ruled, TypeRuleCount());
}

}  // namespace
}  // namespace syncline::worker
