// Goal: what an operator adds up keeps its digits however many there are; the
// gradient of a product is right where the product itself is not to be had; a
// logarithm of sums of infinite terms is what the limit gives. Method: sums of
// 70,000 numbers that a plain float32 loop gets wrong in the fourth digit,
// forward or backward, against fp64; the others by hand. (op_table_test has
// ordinary ones.)

#include "worker/ops/reduction/reductions.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::DoubleArray;
using testing::ExpectNear;
using testing::MakeArray;
using testing::OpRun;

constexpr int64_t kLong = 70'000;
// kSumBlock / 8, or kRowBlock, roundings and a few.
constexpr double kRelative = 72 * 6e-8;

DoubleArray Numbers(reference::Dims dims) {
  DoubleArray x(dims);
  for (size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = 0.1f + 1e-4f * static_cast<float>(i % 5);
  }
  return x;
}

struct Case {
  std::string op_type;
  double (*term)(double x);
  double (*result)(double sum);
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.op_type;
}

class LongReductionTest : public ::testing::TestWithParam<Case> {};

// Along rows, and along columns.
TEST_P(LongReductionTest, KeepsItsDigits) {
  const Case& c = GetParam();
  for (const int64_t axis : {0, 1}) {
    const DoubleArray x = Numbers(axis == 0 ? reference::Dims{kLong, 2}
                                            : reference::Dims{2, kLong});
    OpRun run(c.op_type, c.op_type == "ReduceSum" ? 11 : 13,
              {{"axes", std::vector<int64_t>{axis}}, {"keepdims", int64_t{0}}});
    run.Input(x).Output({2});
    ASSERT_TRUE(run.Forward().ok());
    for (int64_t k = 0; k < 2; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < kLong; ++i) {
        sum += c.term(x.values[axis == 0 ? i * 2 + k : k * kLong + i]);
      }
      const double want = c.result(sum);
      EXPECT_NEAR(run.output(0)[k], want, kRelative * std::fabs(want)) << axis;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Reductions, LongReductionTest,
    ::testing::Values(Case{"ReduceSum", [](double x) { return x; },
                           [](double s) { return s; }},
                      Case{"ReduceMean", [](double x) { return x; },
                           [](double s) { return s / kLong; }},
                      Case{"ReduceSumSquare", [](double x) { return x * x; },
                           [](double s) { return s; }},
                      Case{"ReduceL1", [](double x) { return x; },
                           [](double s) { return s; }},
                      Case{"ReduceL2", [](double x) { return x * x; },
                           [](double s) { return std::sqrt(s); }},
                      Case{"ReduceLogSum", [](double x) { return x; },
                           [](double s) { return std::log(s); }},
                      Case{"ReduceLogSumExp",
                           [](double x) { return std::exp(x); },
                           [](double s) { return std::log(s); }}),
    ::testing::PrintToStringParamName());

TEST(LongSumTest, OfAGlobalAveragePool) {
  const DoubleArray x = Numbers({1, 2, 350, 200});
  OpRun run("GlobalAveragePool", 1);
  run.Input(x).Output({1, 2, 1, 1});
  ASSERT_TRUE(run.Forward().ok());
  double mean = 0;
  for (int64_t i = 0; i < kLong; ++i) mean += x.values[i] / kLong;
  EXPECT_NEAR(run.output(0)[0], mean, kRelative * mean);
}

TEST(LongSumTest, OfACumulativeSum) {
  const DoubleArray x = Numbers({kLong});
  OpRun run("CumSum", 14);
  run.Input(x).Integers<int64_t>(DType::kInt64, {}, {0}).Known();
  run.Output({kLong});
  ASSERT_TRUE(run.Forward().ok());
  double sum = 0;
  for (int64_t i = 0; i < kLong; ++i) {
    sum += x.values[i];
    ASSERT_NEAR(run.output(0)[i], sum, 1e-7 * sum);
  }
}

TEST(LongSumTest, OfWhatWasRepeated) {
  for (const bool tiles : {false, true}) {
    OpRun run(tiles ? "Tile" : "Expand", 13);
    run.Input(Numbers({1, 2}));
    run.Integers<int64_t>(DType::kInt64, {2},
                          tiles ? std::vector<int64_t>{kLong, 1}
                                : std::vector<int64_t>{kLong, 2});
    run.Known();
    run.Output({kLong, 2});
    ASSERT_TRUE(run.Forward().ok());
    const DoubleArray dy = Numbers({kLong, 2});
    const std::vector<float> dx = run.Backward({dy})[0];
    double sum = 0;
    for (int64_t i = 0; i < kLong; ++i) sum += dy.values[2 * i];
    EXPECT_NEAR(dx[0], sum, kRelative * sum);
  }
}

TEST(LongSumTest, OfABiasGradient) {
  OpRun run("Gemm", 13);
  run.Input(Numbers({kLong, 1})).Input(Numbers({1, 2})).Input(Numbers({2}));
  run.Output({kLong, 2});
  ASSERT_TRUE(run.Forward().ok());
  const DoubleArray dy = Numbers({kLong, 2});
  const std::vector<std::vector<float>> gradients = run.Backward({dy});
  double sum = 0;
  for (int64_t i = 0; i < kLong; ++i) sum += dy.values[2 * i + 1];
  EXPECT_NEAR(gradients[2][1], sum, kRelative * sum);
}

TEST(LongSumTest, OfAConvolutionsBiasGradient) {
  for (const int64_t side : {260, 896}) {
    OpRun run("Conv", 11);
    run.Input(Numbers({1, 1, side, side})).Input(Numbers({16, 1, 1, 1}));
    run.Input(Numbers({16})).Output({1, 16, side, side});
    ASSERT_TRUE(run.Forward().ok());
    const DoubleArray dy = Numbers({1, 16, side, side});
    const std::vector<float> db = run.Backward({dy})[2];
    for (int64_t c = 0; c < 16; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < side * side; ++i) {
        sum += dy.values[c * side * side + i];
      }
      EXPECT_NEAR(db[c], sum, kRelative * sum) << side;
    }
  }
}

// The sum of every other row of `dy`, rows of two: of those that name one row.
double SumOfHalf(const DoubleArray& dy, int64_t column) {
  double sum = 0;
  for (int64_t i = 0; i < kLong; i += 2) sum += dy.values[2 * i + column];
  return sum;
}

// Row 1 of three is named by every other index.
template <typename Index>
std::vector<Index> HalfName(Index one, int64_t each) {
  std::vector<Index> indices;
  for (int64_t i = 0; i < kLong; ++i) {
    indices.insert(indices.end(), each, i % 2 == 0 ? one : Index{2});
  }
  return indices;
}

TEST(LongSumTest, OfRowsThatAreGatheredAgainAndAgain) {
  const DoubleArray dy = Numbers({kLong, 2});
  for (const int64_t one : {1, -2}) {
    for (const std::string op : {"Gather", "GatherND", "GatherElements"}) {
      OpRun run(op, 13);
      run.Input(Numbers({3, 2}));
      if (op == "Gather") {
        run.Integers<int64_t>(DType::kInt64, {kLong}, HalfName(one, 1));
      } else {
        const int64_t each = op == "GatherND" ? 1 : 2;
        run.Integers<int64_t>(DType::kInt64, {kLong, each},
                              HalfName(one, each));
      }
      run.Output({kLong, 2});
      ASSERT_TRUE(run.Forward().ok());
      const std::vector<float> dx = run.Backward({dy})[0];
      EXPECT_EQ(dx[0], 0);
      for (const int64_t column : {0, 1}) {
        const double sum = SumOfHalf(dy, column);
        EXPECT_NEAR(dx[2 + column], sum, kRelative * sum) << op;
      }
    }
  }
}

TEST(LongSumTest, OfRowsThatAreScatteredToOnePlace) {
  const DoubleArray updates = Numbers({kLong, 2});
  for (const std::string op : {"ScatterND", "ScatterElements"}) {
    OpRun run(op, 16, {{"reduction", std::string("add")}});
    // ScatterElements has as many indices as the data has elements, or fewer.
    const int64_t each = op == "ScatterND" ? 1 : 2;
    run.Input(Numbers({3, 2}));
    run.Integers<int64_t>(DType::kInt64, {kLong, each},
                          HalfName(int64_t{1}, each));
    run.Input(updates).Output({3, 2});
    ASSERT_TRUE(run.Forward().ok());
    for (const int64_t column : {0, 1}) {
      const double sum =
          Numbers({3, 2}).values[2 + column] + SumOfHalf(updates, column);
      EXPECT_NEAR(run.output(0)[2 + column], sum, kRelative * sum) << op;
    }
  }
}

// Operands are a number, a row, and a column; the condition is of every place,
// of a row, of a column, and one.
TEST(LongSumTest, OfWhatWhereRepeats) {
  const DoubleArray dy = Numbers({kLong, 2});
  for (const reference::Dims& x : {reference::Dims{}, {2}, {1, 2}}) {
    for (const reference::Dims& c :
         {reference::Dims{kLong, 2}, {2}, {kLong, 1}, {}}) {
      OpRun run("Where", 16);
      std::vector<uint8_t> chosen(reference::Product(c));
      for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = i % 3 != 1;
      run.Integers<uint8_t>(DType::kBool, c, chosen);
      run.Input(Numbers(x)).Input(Numbers({kLong, 2})).Output({kLong, 2});
      ASSERT_TRUE(run.Forward().ok());
      const std::vector<float> dx = run.Backward({dy})[1];
      std::vector<double> sums(dx.size());
      for (int64_t i = 0; i < 2 * kLong; ++i) {
        const int64_t at = reference::BroadcastOffset(i, {kLong, 2}, c);
        if (chosen[at] != 0) sums[x.empty() ? 0 : i % 2] += dy.values[i];
      }
      for (size_t k = 0; k < sums.size(); ++k) {
        EXPECT_NEAR(dx[k], sums[k], kRelative * sums[k])
            << x.size() << " " << c.size();
      }
    }
  }
}

// Term by term: a sum over one operand, the other repeated; and a diagonal.
TEST(LongSumTest, OfAnEinsum) {
  const DoubleArray x = Numbers({kLong, 2});
  OpRun run("Einsum", 12, {{"equation", std::string("ij,k->jk")}});
  run.Input(x).Input(Numbers({1})).Output({2, 1});
  ASSERT_TRUE(run.Forward().ok());
  const DoubleArray dy = Numbers({2, 1});
  const std::vector<float> db = run.Backward({dy})[1];
  const double b = Numbers({1}).values[0];
  double gradient = 0;
  for (int64_t j = 0; j < 2; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < kLong; ++i) sum += x.values[2 * i + j];
    EXPECT_NEAR(run.output(0)[j], sum * b, kRelative * sum * b);
    gradient += sum * dy.values[j];
  }
  EXPECT_NEAR(db[0], gradient, kRelative * gradient);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
