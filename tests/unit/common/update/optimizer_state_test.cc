// Goal: optimizers whose state differs have different names.

#include "common/update/optimizer_state.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(OptimizerStateTest, EachKindHasItsName) {
  std::set<std::string> names;
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kNesterov,
        OptimizerKind::kAdagrad, OptimizerKind::kRowWiseAdagrad,
        OptimizerKind::kRmsProp, OptimizerKind::kAdam, OptimizerKind::kAdamW,
        OptimizerKind::kLamb, OptimizerKind::kFtrl}) {
    OptimizerParams params;
    params.kind = kind;
    EXPECT_TRUE(names.insert(OptimizerStateName(params)).second);
  }
  OptimizerParams rms;
  rms.kind = OptimizerKind::kRmsProp;
  rms.centered = true;
  rms.momentum = 0.9f;
  EXPECT_EQ(OptimizerStateName(rms), "rmsprop centered momentum");
}

}  // namespace
}  // namespace syncline
