// Goal: a position that is outside the tables ends the step, and until then
// does no harm. Method: one head at three places by hand, of which one has a
// row in the tables. (worker_op_table_test has values and gradients.)

#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::MakeArray;
using testing::OpRun;

TEST(RotaryEmbeddingTest, APositionOutsideTheTablesEndsTheStep) {
  OpRun run("RotaryEmbedding", 23);
  run.Input(MakeArray({1, 1, 3, 2}, {1, 2, 3, 4, 5, 6}))
      .Input(MakeArray({2, 1}, {1, 0}))  // cosines
      .Input(MakeArray({2, 1}, {0, 1}))  // sines
      .Integers<int64_t>(DType::kInt64, {1, 3}, {1, 2, -1})
      .Output({1, 1, 3, 2});
  EXPECT_EQ(run.Forward().message(),
            "position 2, number 1, is outside tables of 2 rows");
  // A quarter turn, and two that are left as they were.
  EXPECT_EQ(run.output(0), std::vector<float>({-2, 1, 3, 4, 5, 6}));
  const auto dx = run.Backward({MakeArray({1, 1, 3, 2}, {1, 2, 3, 4, 5, 6})});
  EXPECT_EQ(dx[0], std::vector<float>({2, -1, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace syncline::worker
