// Goal: infinite inputs give what the limit gives. Method: by hand; finite ones
// are rows of op_table_test.

#include <cmath>

#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::DoubleArray;
using testing::MakeArray;
using testing::OpRun;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ReduceLogSumExpTest, InfiniteTermsCountAsTheyAre) {
  OpRun run("ReduceLogSumExp", 13, {{"axes", std::vector<int64_t>{1}}});
  run.Input(MakeArray({4, 2}, {0, kInfinity,            // more than all
                               0, -kInfinity,           // nothing
                               -kInfinity, -kInfinity,  // nothing at all
                               std::nan(""), 0}))
      .Output({4, 1});
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_EQ(run.output(0)[0], static_cast<float>(kInfinity));
  EXPECT_EQ(run.output(0)[1], 0);
  EXPECT_EQ(run.output(0)[2], static_cast<float>(-kInfinity));
  EXPECT_TRUE(std::isnan(run.output(0)[3]));
  const std::vector<float> dx =
      run.Backward({MakeArray({4, 1}, {1, 1, 1, 1})})[0];
  EXPECT_EQ(dx[2], 1);
  EXPECT_EQ(dx[3], 0);
  EXPECT_EQ(dx[4], 0);
  EXPECT_EQ(dx[5], 0);
}

}  // namespace
}  // namespace syncline::worker
