// Goal: each row moves as its optimizer says, with the state it has and no
// other; rows that are not touched do not move.
// Method: many steps against the references in double, over dims that are
// vectorised and that are not.

#include "kernels/optimizer/row_optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference_row_optimizer.h"

namespace syncline {
namespace {

// A row: values and, behind them, state.
struct Row {
  Row(const RowOptimizer& optimizer, const std::vector<float>& value)
      : floats(value.size() + optimizer.state_floats()) {
    std::copy(value.begin(), value.end(), floats.begin());
    optimizer.InitState(floats.data() + value.size());
  }
  void Apply(const RowOptimizer& optimizer, const OptimizerStep& step,
             const std::vector<float>& gradient) {
    const float* const gradients[] = {gradient.data()};
    float* const rows[] = {floats.data()};
    optimizer.Apply(step, 1, gradients, rows);
  }
  std::vector<float> floats;
};

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
  Row ours(optimizer, value);
  reference::Row<double> row = ReferenceOf(params, value);
  for (int t = 0; t < steps; ++t) {
    std::vector<double> mean(dim);
    for (size_t i = 0; i < dim; ++i) {
      gradient[i] = static_cast<float>(random.Normal());
      mean[i] = gradient[i] * 0.25;
    }
    ours.Apply(optimizer, {.learning_rate = 0.05f, .gradient_scale = 0.25f},
               gradient);
    StepReference(params, 0.05f, mean, &row);
    for (size_t i = 0; i < dim; ++i) {
      ASSERT_NEAR(ours.floats[i], row.value[i], 5e-5)
          << "t=" << t << " i=" << i;
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
  Row often(optimizer, {0, 0}), once(optimizer, {0, 0});
  const OptimizerStep step = {.learning_rate = 0.1f};
  for (int i = 0; i < 100; ++i) often.Apply(optimizer, step, {3, -3});
  // With the correction of the 101st step the first would be three times as
  // long.
  once.Apply(optimizer, step, {3, -3});
  EXPECT_NEAR(once.floats[0], -0.1, 1e-6);
  EXPECT_NEAR(often.floats[0], -10, 1e-3);
}

TEST(RowOptimizerTest, ManyRowsMoveAsEachAlone) {
  Random random(3);
  for (const OptimizerKind kind : kKinds) {
    for (const size_t dim : {1, 8, 13, 16}) {
      const RowOptimizer optimizer(Params(kind), dim);
      std::vector<Row> alone, together;
      std::vector<std::vector<float>> gradients(20, std::vector<float>(dim));
      for (std::vector<float>& gradient : gradients) {
        for (float& g : gradient) g = static_cast<float>(random.Normal());
        alone.emplace_back(optimizer, gradient);
      }
      together = alone;
      std::vector<const float*> from;
      std::vector<float*> to;
      for (size_t i = 0; i < gradients.size(); ++i) {
        alone[i].Apply(optimizer, {.learning_rate = 0.1f}, gradients[i]);
        from.push_back(gradients[i].data());
        to.push_back(together[i].floats.data());
      }
      optimizer.Apply({.learning_rate = 0.1f}, from.size(), from.data(),
                      to.data());
      for (size_t i = 0; i < gradients.size(); ++i) {
        EXPECT_EQ(alone[i].floats, together[i].floats);
      }
    }
  }
}

TEST(RowOptimizerTest, NanStaysVisible) {
  for (const OptimizerKind kind : kKinds) {
    const RowOptimizer optimizer(Params(kind), 9);
    Row row(optimizer, std::vector<float>(9, 1.0f));
    row.Apply(optimizer, {.learning_rate = 0.5f},
              std::vector<float>(9, std::numeric_limits<float>::quiet_NaN()));
    for (size_t i = 0; i < 9; ++i) EXPECT_TRUE(std::isnan(row.floats[i]));
  }
}

}  // namespace
}  // namespace syncline
