// Goal: a bound may be missing, either one, and the bounds themselves let a
// gradient through. Method: a few numbers by hand. (worker_op_table_test has
// the rest.)

#include "tests/testing/op_run.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

using testing::DoubleArray;
using testing::MakeArray;
using testing::OpRun;

const DoubleArray& Line() {
  static const DoubleArray& x =
      *new DoubleArray(MakeArray({5}, {-2, -1, 0, 1, 2}));
  return x;
}

std::vector<float> Gradient(OpRun& run) {
  return run.Backward({MakeArray({5}, {1, 2, 3, 4, 5})})[0];
}

TEST(ClipTest, WithoutALowerBound) {
  OpRun run("Clip", 13);
  run.Input(Line()).NoInput().Input(MakeArray({}, {1})).Output({5});
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_EQ(run.output(0), (std::vector<float>{-2, -1, 0, 1, 1}));
}

TEST(ClipTest, WithoutAnUpperBound) {
  OpRun run("Clip", 13);
  run.Input(Line()).Input(MakeArray({}, {-1})).Output({5});
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_EQ(run.output(0), (std::vector<float>{-1, -1, 0, 1, 2}));
}

TEST(ClipTest, WithoutBoundsNothingChanges) {
  OpRun run("Clip", 13);
  run.Input(Line()).Output({5});
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_EQ(run.output(0), (std::vector<float>{-2, -1, 0, 1, 2}));
  EXPECT_EQ(Gradient(run), (std::vector<float>{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace syncline::worker
