// Goal: the first of equals has the gradient, a NaN wins, and nothing has an
// extremum that is no number. Method: a few numbers by hand.
// (worker_op_table_test has the rest.)

#include <cmath>

#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::DoubleArray;
using testing::MakeArray;
using testing::OpRun;

TEST(ExtremaTest, TheFirstOfEqualsHasTheGradient) {
  for (const int64_t axis : {0, 1}) {
    for (const char* op : {"ReduceMax", "ReduceMin"}) {
      OpRun run(op, 13, {{"axes", std::vector<int64_t>{axis}}});
      run.Input(MakeArray({2, 2}, {3, 3, 3, 3})).Output({2});
      ASSERT_TRUE(run.Forward().ok());
      EXPECT_EQ(run.Backward({MakeArray({2}, {5, 7})})[0],
                axis == 0 ? (std::vector<float>{5, 7, 0, 0})
                          : (std::vector<float>{5, 0, 7, 0}));
    }
  }
}

TEST(ExtremaTest, ANanWins) {
  const double nan = std::nan("");
  OpRun run("ReduceMax", 13, {{"axes", std::vector<int64_t>{1}}});
  run.Input(MakeArray({2, 3}, {1, nan, 2, 4, 5, 6})).Output({2});
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_TRUE(std::isnan(run.output(0)[0]));
  EXPECT_EQ(run.output(0)[1], 6);
}

TEST(ExtremaTest, OfNothingItIsInfinite) {
  OpRun run("ReduceMin", 13, {{"axes", std::vector<int64_t>{1}}});
  run.Input(DoubleArray({2, 0})).Output({2});
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_EQ(run.output(0), std::vector<float>(2, INFINITY));
  EXPECT_TRUE(run.Backward({MakeArray({2}, {1, 1})})[0].empty());
}

}  // namespace
}  // namespace syncline::worker
