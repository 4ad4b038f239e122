// Goal: products without rows, columns or terms are what numpy says, forward
// and backward. Method: by hand; the others are rows of op_table_test.

#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::DoubleArray;
using testing::OpRun;
using testing::RandomArray;
using Dims = reference::Dims;

// Every element of the result and of the gradients is an empty sum.
void ExpectZeros(const Dims& a, const Dims& b, const Dims& y) {
  SCOPED_TRACE(::testing::Message() << DimsToString(a) << DimsToString(b));
  OpRun run("MatMul", 13);
  run.Input(RandomArray(a, 1)).Input(RandomArray(b, 2)).Output(y);
  const absl::Status status = run.Forward();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(run.output(0), std::vector<float>(reference::Product(y), 0));
  const auto dx = run.Backward({RandomArray(y, 3)});
  EXPECT_EQ(dx[0], std::vector<float>(reference::Product(a), 0));
  EXPECT_EQ(dx[1], std::vector<float>(reference::Product(b), 0));
}

TEST(MatMulTest, EmptyProductsAreZeros) {
  ExpectZeros({5, 0, 1}, {1, 1}, {5, 0, 1});  // no rows
  ExpectZeros({0, 3}, {3, 4}, {0, 4});
  ExpectZeros({2, 3}, {3, 0}, {2, 0});           // no columns
  ExpectZeros({2, 0}, {0, 4}, {2, 4});           // no terms
  ExpectZeros({0, 2, 3}, {0, 3, 4}, {0, 2, 4});  // no matrices
  ExpectZeros({0, 1, 2, 3}, {1, 5, 3, 4}, {0, 5, 2, 4});
}

}  // namespace
}  // namespace syncline::worker
