// Goal: the gradient of a product is right where the product itself is not to
// be had. Method: by hand; ordinary ones are rows of op_table_test.

#include <cmath>

#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::ExpectNear;
using testing::MakeArray;
using testing::OpRun;

// Of two columns.
std::vector<float> GradientOf(const std::vector<double>& x,
                              const std::vector<double>& product) {
  OpRun run("ReduceProd", 13, {{"axes", std::vector<int64_t>{0}}});
  const int64_t rows = static_cast<int64_t>(x.size()) / 2;
  run.Input(MakeArray({rows, 2}, x)).Output({1, 2});
  EXPECT_TRUE(run.Forward().ok());
  ExpectNear(run.output(0), product, 1e-6);
  return run.Backward({MakeArray({1, 2}, {1, 2})})[0];
}

TEST(ReduceProdTest, AProductOfTooLittleStillHasAGradient) {
  const std::vector<float> dx =
      GradientOf({1e-18, 1, 1e-18, 2, 1e-18, 3}, {0, 6});
  ExpectNear(absl::MakeConstSpan(dx).subspan(1, 1), {12}, 1e-6);
  EXPECT_FLOAT_EQ(dx[0], 1e-36f);
  EXPECT_FLOAT_EQ(dx[2], 1e-36f);
}

TEST(ReduceProdTest, AProductOfTooMuchStillHasAGradient) {
  OpRun run("ReduceProd", 13);
  run.Input(MakeArray({3}, {1e20, 1e20, 1e10})).Output({1});
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_TRUE(std::isinf(run.output(0)[0]));
  const std::vector<float> dx = run.Backward({MakeArray({1}, {1})})[0];
  EXPECT_FLOAT_EQ(dx[0], 1e30f);
  EXPECT_FLOAT_EQ(dx[1], 1e30f);
  EXPECT_TRUE(std::isinf(dx[2]));
}

}  // namespace
}  // namespace syncline::worker
