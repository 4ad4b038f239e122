// Goal: each row moves as its optimizer says, with the state it has and no
// other; rows that are not touched do not move.
// Method: many steps against the references in double, over dims that are
// vectorised and that are not.

#include "kernels/row_optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/reference.h"

namespace syncline {
namespace {

using ::testing::Each;

constexpr OptimizerKind kKinds[] = {
    OptimizerKind::kSgd, OptimizerKind::kAdagrad,
    OptimizerKind::kRowWiseAdagrad, OptimizerKind::kAdam, OptimizerKind::kFtrl};

OptimizerParams Params(OptimizerKind kind) {
  OptimizerParams params;
  params.kind = kind;
  params.epsilon = 1e-6f;
  params.initial_accumulator = 0.1f;
  params.l1 = 0.1f;
  params.l2 = 0.3f;
  return params;
}

void StepReference(const OptimizerParams& p, double rate,
                   const std::vector<double>& g, reference::Row<double>* row) {
  switch (p.kind) {
    case OptimizerKind::kSgd:
      return reference::SgdRow(rate, g, row);
    case OptimizerKind::kAdagrad:
      return reference::AdagradRow<double>(rate, p.epsilon, g, row);
    case OptimizerKind::kRowWiseAdagrad:
      return reference::RowWiseAdagradRow<double>(rate, p.epsilon, g, row);
    case OptimizerKind::kAdam:
      return reference::LazyAdamRow<double>(rate, p.beta1, p.beta2, p.epsilon,
                                            g, row);
    case OptimizerKind::kFtrl:
      return reference::FtrlRow<double>(rate, p.learning_rate_power, p.l1, p.l2,
                                        g, row);
    default:
      FAIL();
  }
}

reference::Row<double> ReferenceOf(const OptimizerParams& params,
                                   const std::vector<float>& value) {
  reference::Row<double> row;
  row.value.assign(value.begin(), value.end());
  row.first.assign(value.size(), 0);
  const bool squares = params.kind != OptimizerKind::kAdam;
  row.second.assign(value.size(), squares ? params.initial_accumulator : 0);
  row.mean_squares = params.initial_accumulator;
  return row;
}

void ExpectFollowsReference(const OptimizerParams& params, size_t dim,
                            int steps) {
  SCOPED_TRACE(
      absl::StrCat("kind=", static_cast<int>(params.kind), " dim=", dim));
  const RowOptimizer optimizer(params, dim);
  Random random(dim);
  std::vector<float> value(dim), gradient(dim);
  for (float& v : value) v = static_cast<float>(random.Normal());
  std::vector<float> state(optimizer.state_floats());
  optimizer.InitState(state.data());
  reference::Row<double> row = ReferenceOf(params, value);
  for (int t = 0; t < steps; ++t) {
    std::vector<double> mean(dim);
    for (size_t i = 0; i < dim; ++i) {
      gradient[i] = static_cast<float>(random.Normal());
      mean[i] = gradient[i] * 0.25;
    }
    optimizer.Apply({.learning_rate = 0.05f, .gradient_scale = 0.25f},
                    gradient.data(), value.data(), state.data());
    StepReference(params, 0.05f, mean, &row);
    for (size_t i = 0; i < dim; ++i) {
      ASSERT_NEAR(value[i], row.value[i], 5e-5) << "t=" << t << " i=" << i;
    }
  }
}

TEST(RowOptimizerTest, FollowsTheReference) {
  for (const OptimizerKind kind : kKinds) {
    for (const size_t dim : {1, 2, 7, 8, 16, 33, 1000}) {
      ExpectFollowsReference(Params(kind), dim, 40);
    }
  }
}

TEST(RowOptimizerTest, LazyAdamCountsBeyondTheStepsItHasPrepared) {
  ExpectFollowsReference(Params(OptimizerKind::kAdam), 3, 1100);
}

TEST(RowOptimizerTest, StateIsAsLongAsItSays) {
  const auto floats = [](OptimizerKind kind) {
    return RowOptimizer(Params(kind), 16).state_floats();
  };
  EXPECT_EQ(floats(OptimizerKind::kSgd), 0u);
  EXPECT_EQ(floats(OptimizerKind::kAdagrad), 16u);
  EXPECT_EQ(floats(OptimizerKind::kRowWiseAdagrad), 1u);
  EXPECT_EQ(floats(OptimizerKind::kAdam), 33u);
  EXPECT_EQ(floats(OptimizerKind::kFtrl), 32u);
}

TEST(RowOptimizerTest, OnlyOptimizersOfRows) {
  for (const OptimizerKind kind : kKinds) {
    EXPECT_TRUE(RowOptimizer::Supports(kind));
  }
  EXPECT_FALSE(RowOptimizer::Supports(OptimizerKind::kMomentum));
  EXPECT_FALSE(RowOptimizer::Supports(OptimizerKind::kNesterov));
  EXPECT_FALSE(RowOptimizer::Supports(OptimizerKind::kAdamW));
}

TEST(RowOptimizerTest, EachRowHasItsOwnAdamClock) {
  const RowOptimizer optimizer({.kind = OptimizerKind::kAdam, .epsilon = 1e-8f},
                               2);
  std::vector<float> old_value(2), old_state(5), new_value(2), new_state(5);
  optimizer.InitState(old_state.data());
  optimizer.InitState(new_state.data());
  const std::vector<float> gradient = {3, -3};
  const OptimizerStep step = {.learning_rate = 0.1f};
  for (int i = 0; i < 100; ++i) {
    optimizer.Apply(step, gradient.data(), old_value.data(), old_state.data());
  }
  // With the correction of the 101st step the first would be three times as
  // long.
  optimizer.Apply(step, gradient.data(), new_value.data(), new_state.data());
  EXPECT_NEAR(new_value[0], -0.1, 1e-6);
  EXPECT_NEAR(old_value[0], -10, 1e-3);
}

TEST(RowOptimizerTest, NanStaysVisible) {
  for (const OptimizerKind kind : kKinds) {
    const RowOptimizer optimizer(Params(kind), 9);
    std::vector<float> value(9, 1.0f), state(optimizer.state_floats());
    optimizer.InitState(state.data());
    const std::vector<float> gradient(9,
                                      std::numeric_limits<float>::quiet_NaN());
    optimizer.Apply({.learning_rate = 0.5f}, gradient.data(), value.data(),
                    state.data());
    EXPECT_THAT(value, Each(testing::IsNan()));
  }
}

}  // namespace
}  // namespace syncline
