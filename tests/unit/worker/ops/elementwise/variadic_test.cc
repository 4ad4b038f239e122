// Goal: among equals the first input has the gradient, and NaN in any input is
// NaN in the result. Method: a few numbers by hand. (worker_op_table_test has
// the rest.)

#include <cmath>
#include <string>

#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::MakeArray;
using testing::OpRun;

TEST(VariadicTest, TheFirstOfEqualsHasTheGradient) {
  for (const char* op : {"Max", "Min"}) {
    OpRun run(op, 13);
    run.Input(MakeArray({3}, {1, 2, 3}))
        .Input(MakeArray({3}, {1, 2, 3}))
        .Output({3});
    ASSERT_TRUE(run.Forward().ok());
    const auto dx = run.Backward({MakeArray({3}, {5, 6, 7})});
    EXPECT_EQ(dx[0], (std::vector<float>{5, 6, 7}));
    EXPECT_EQ(dx[1], (std::vector<float>{0, 0, 0}));
  }
}

TEST(VariadicTest, NanIsNeverSwallowed) {
  for (const char* op : {"Sum", "Mean", "Max", "Min"}) {
    for (size_t at = 0; at < 3; ++at) {
      OpRun run(op, 13);
      for (size_t i = 0; i < 3; ++i) {
        run.Input(MakeArray({2}, {i == at ? std::nan("") : double(i), 1}));
      }
      ASSERT_TRUE(run.Output({2}).Forward().ok());
      EXPECT_TRUE(std::isnan(run.output(0)[0])) << op << " of input " << at;
      EXPECT_FALSE(std::isnan(run.output(0)[1]));
    }
  }
}

// Indices of inputs from 256 on do not fit a byte.
TEST(VariadicTest, TheGradientIsThatOfTheWinnerAmongManyInputs) {
  constexpr size_t kInputs = 300, kWinner = 257;
  for (const char* op : {"Max", "Min"}) {
    const double best = op == std::string("Max") ? 9 : -9;
    OpRun run(op, 13);
    for (size_t i = 0; i < kInputs; ++i) {
      run.Input(MakeArray({1}, {i == kWinner ? best : 1.0}));
    }
    ASSERT_TRUE(run.Output({1}).Forward().ok());
    EXPECT_EQ(run.output(0)[0], best);
    const auto dx = run.Backward({MakeArray({1}, {5})});
    for (size_t i = 0; i < kInputs; ++i) {
      EXPECT_EQ(dx[i][0], i == kWinner ? 5 : 0) << op << " of input " << i;
    }
  }
}

}  // namespace
}  // namespace syncline::worker
