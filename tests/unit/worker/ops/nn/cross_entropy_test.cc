// Goal: log probabilities that a SoftmaxCrossEntropyLoss gives beside its loss
// have a gradient too, a label that is no class ends the step. Method: central
// differences of the reference. (worker_op_table_test has the losses.)

#include "kernels/reference/reference_loss.h"
#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::Dot;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::FiniteDifferences;
using testing::OpRun;
using testing::RandomArray;

constexpr int64_t kClasses = 4;
const std::vector<int64_t>& Labels() {
  static const auto& labels = *new std::vector<int64_t>{3, 0, 2};
  return labels;
}

TEST(CrossEntropyTest, LogProbabilitiesHaveAGradient) {
  DoubleArray x = RandomArray({3, kClasses}, 1);
  const DoubleArray dloss = RandomArray({}, 2), dlog_p = RandomArray(x.dims, 3);
  OpRun run("SoftmaxCrossEntropyLoss", 13, {{"reduction", std::string("sum")}});
  run.Input(x).Integers(DType::kInt64, {3}, Labels());
  ASSERT_TRUE(run.Output({}).Output(x.dims).Forward().ok());
  ExpectNear(run.output(1), reference::LogSoftmax(x, 1, 2).values, 1e-6);
  for (const bool loss : {false, true}) {
    for (const bool log_p : {!loss, true}) {
      const std::vector<double> want = FiniteDifferences(x.values, [&] {
        const DoubleArray p = reference::LogSoftmax(x, 1, 2);
        double sum = log_p ? Dot(p.values, dlog_p.values) : 0;
        for (size_t n = 0; n < Labels().size() && loss; ++n) {
          sum -= dloss.values[0] * p.values[n * kClasses + Labels()[n]];
        }
        return sum;
      });
      const DoubleArray none;
      ExpectNear(run.Backward({loss ? dloss : none, log_p ? dlog_p : none})[0],
                 want, 1e-5);
    }
  }
}

TEST(CrossEntropyTest, ALabelThatIsNoClassEndsTheStep) {
  for (const int64_t bad : {int64_t{-1}, kClasses}) {
    OpRun run("NegativeLogLikelihoodLoss", 13);
    run.Input(RandomArray({2, kClasses}, 1))
        .Integers<int64_t>(DType::kInt64, {2}, {1, bad})
        .Output({});
    EXPECT_EQ(run.Forward().message(),
              absl::StrCat("label ", bad, ", number 1, is none of 4 classes"));
  }
}

}  // namespace
}  // namespace syncline::worker
