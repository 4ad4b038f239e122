// Goal: what the reductions of a Scatter do where values are equal, zero or
// NaN. Method: a few numbers by hand; those of PyTorch's scatter_reduce.
// (op_table_test has the rest.)

#include <cmath>

#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::ExpectNear;
using testing::MakeArray;
using testing::OpRun;

// Two places; the updates go to the first, the first and the second.
class Scatter : public OpRun {
 public:
  Scatter(const std::string& reduction, std::vector<double> data,
          std::vector<double> updates)
      : OpRun("ScatterElements", 18, {{"reduction", reduction}}) {
    Input(MakeArray({2}, std::move(data)));
    Integers<int64_t>(DType::kInt64, {3}, {0, 0, 1});
    Input(MakeArray({3}, std::move(updates)));
    Output({2});
  }
};

TEST(ScatterReductionTest, EqualExtremaShareTheGradient) {
  Scatter run("max", {4, 1}, {4, 4, 1});
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_EQ(run.output(0), (std::vector<float>{4, 1}));
  const auto dx = run.Backward({MakeArray({2}, {3, 8})});
  ExpectNear(dx[0], {1, 4}, 1e-6);
  ExpectNear(dx[2], {1, 1, 4}, 1e-6);
}

TEST(ScatterReductionTest, WhatIsNotTheExtremumHasNoGradient) {
  Scatter run("min", {4, 1}, {2, 3, 5});
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_EQ(run.output(0), (std::vector<float>{2, 1}));
  const auto dx = run.Backward({MakeArray({2}, {3, 8})}, 1.0f);
  ExpectNear(dx[0], {1, 9}, 1e-6);
  ExpectNear(dx[2], {4, 1, 1}, 1e-6);
}

TEST(ScatterReductionTest, AFactorOfZeroHasTheProductOfTheOthers) {
  Scatter run("mul", {2, 0}, {0, 3, 5});
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_EQ(run.output(0), (std::vector<float>{0, 0}));
  const auto dx = run.Backward({MakeArray({2}, {1, 1})});
  ExpectNear(dx[0], {0, 5}, 1e-6);
  ExpectNear(dx[2], {6, 0, 0}, 1e-6);
}

TEST(ScatterReductionTest, NanStays) {
  const double nan = std::nan("");
  for (const char* reduction : {"add", "mul", "max", "min"}) {
    Scatter run(reduction, {1, nan}, {nan, 2, 3});
    ASSERT_TRUE(run.Forward().ok());
    EXPECT_TRUE(std::isnan(run.output(0)[0])) << reduction;
    EXPECT_TRUE(std::isnan(run.output(0)[1])) << reduction;
  }
}

}  // namespace
}  // namespace syncline::worker
