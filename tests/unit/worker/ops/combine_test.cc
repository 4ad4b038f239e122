// Goal: among equals the first input has the gradient, and NaN in any input is
// NaN in the result. Method: a few numbers by hand. (worker_op_table_test has
// the rest.)

#include "worker/ops/combine.h"

#include <cmath>

#include "tests/testing/op_run.h"

namespace syncline {
namespace {

using testing::MakeArray;
using testing::OpRun;

TEST(CombineTest, TheFirstOfEqualsHasTheGradient) {
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

TEST(CombineTest, NanIsNeverSwallowed) {
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

}  // namespace
}  // namespace syncline
