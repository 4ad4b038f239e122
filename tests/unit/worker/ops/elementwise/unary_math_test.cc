// Goal: step functions, which pass no gradient on, round as ONNX says, at ties
// and for values that are not finite too. Method: a few numbers by hand. (The
// others are rows of op_table_test.)

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using testing::MakeArray;
using testing::OpRun;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<float> Of(const std::string& op_type,
                      const std::vector<double>& x) {
  const auto count = static_cast<int64_t>(x.size());
  OpRun run(op_type, 13);
  run.Input(MakeArray({count}, x)).WithoutGradients().Output({count});
  const absl::Status status = run.Forward();
  EXPECT_TRUE(status.ok()) << status;
  return run.output(0);
}

TEST(StepFunctionTest, CeilAndFloor) {
  const std::vector<double> x = {-1.5, -1, -0.25, 0, 0.25, 1, 1.5};
  EXPECT_THAT(Of("Ceil", x), ElementsAre(-1, -1, 0, 0, 1, 1, 2));
  EXPECT_THAT(Of("Floor", x), ElementsAre(-2, -1, -1, 0, 0, 1, 1));
}

TEST(StepFunctionTest, RoundTakesTiesToEven) {
  EXPECT_THAT(Of("Round", {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.75, 1e10}),
              ElementsAre(-2, -2, 0, 0, 2, 2, 3, 1e10f));
}

TEST(StepFunctionTest, SignIsMinusOneZeroOrOne) {
  EXPECT_THAT(Of("Sign", {-3, -0.0, 0, 1e-30, kInfinity}),
              ElementsAre(-1, 0, 0, 1, 1));
}

TEST(StepFunctionTest, InfinityAndNaNPass) {
  for (const char* op_type : {"Ceil", "Floor", "Round"}) {
    const std::vector<float> y =
        Of(op_type, {kInfinity, -kInfinity, std::nan("")});
    EXPECT_EQ(y[0], kInfinity) << op_type;
    EXPECT_EQ(y[1], -kInfinity) << op_type;
    EXPECT_TRUE(std::isnan(y[2])) << op_type;
  }
}

}  // namespace
}  // namespace syncline::worker
