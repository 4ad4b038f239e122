// Goal: attention with past keys passes gradients on from the outputs that have
// the joined ones, and what does not fit is refused. Method: a few numbers by
// hand. (op_table_test has the first output and its gradients, ONNX's own tests
// the others.)

#include <cmath>

#include "kernels/reference/reference_attention.h"
#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::Dot;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::FiniteDifferences;
using testing::MakeArray;
using testing::OpRun;
using testing::RandomArray;

// One query, one incoming and one past key of width 1.
class Joined : public OpRun {
 public:
  explicit Joined(double past_value = 4)
      : OpRun("Attention", 23, {{"scale", 1.0f}}) {
    Input(MakeArray({1, 1, 1, 1}, {0}));
    Input(MakeArray({1, 1, 1, 1}, {5}));
    Input(MakeArray({1, 1, 1, 1}, {2}));
    NoInput();
    Input(MakeArray({1, 1, 1, 1}, {3}));
    Input(MakeArray({1, 1, 1, 1}, {past_value}));
    Output({1, 1, 1, 1});
    Output({1, 1, 2, 1});
    Output({1, 1, 2, 1});
  }
};

TEST(AttentionTest, PastComesFirst) {
  Joined run;
  ASSERT_TRUE(run.Forward().ok());
  ExpectNear(run.output(0), {3}, 1e-6);  // both weights are 1/2
  ExpectNear(run.output(1), {3, 5}, 0);
  ExpectNear(run.output(2), {4, 2}, 0);
}

TEST(AttentionTest, JoinedKeysAndValuesPassGradientsOn) {
  Joined run;
  ASSERT_TRUE(run.Forward().ok());
  const DoubleArray dy = MakeArray({1, 1, 1, 1}, {8});
  const DoubleArray dkeys = MakeArray({1, 1, 2, 1}, {10, 20});
  const DoubleArray dvalues = MakeArray({1, 1, 2, 1}, {30, 40});
  // The query is 0, so keys have no part in y; y = (past + value) / 2 there,
  // and the query's gradient is the keys' covariance with the values.
  const auto all = run.Backward({dy, dkeys, dvalues});
  ExpectNear(all[0], {8 * 0.25 * (3 - 5) * (4 - 2)}, 1e-5);
  ExpectNear(all[1], {20}, 1e-5);
  ExpectNear(all[2], {44}, 1e-5);
  ExpectNear(all[4], {10}, 1e-5);
  ExpectNear(all[5], {34}, 1e-5);
  const auto without_y = run.Backward({DoubleArray(), dkeys, DoubleArray()});
  ExpectNear(without_y[0], {0}, 0);
  ExpectNear(without_y[1], {20}, 0);
  ExpectNear(without_y[2], {0}, 0);
  ExpectNear(without_y[4], {10}, 0);
  ExpectNear(without_y[5], {0}, 0);
}

TEST(AttentionTest, NanIsNotMistakenForAKeyThatIsHidden) {
  Joined run(std::nan(""));
  ASSERT_TRUE(run.Forward().ok());
  EXPECT_TRUE(std::isnan(run.output(0)[0]));
}

std::string Refusal(reference::Dims past_key, reference::Dims past_value,
                    std::map<std::string, Attribute> attributes = {}) {
  OpRun run("Attention", 23, std::move(attributes));
  for (int i = 0; i < 3; ++i) run.Input(RandomArray({1, 2, 3, 4}, i));
  run.NoInput()
      .Input(RandomArray(past_key, 4))
      .Input(RandomArray(past_value, 5))
      .Output({1, 2, 3, 4});
  return std::string(run.Forward().message());
}

TEST(AttentionTest, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(Refusal({1, 2, 5, 4}, {1, 2, 5, 4}), "");
  EXPECT_EQ(Refusal({1, 1, 5, 4}, {1, 2, 5, 4}),
            "node \"it\" (Attention): input 4 is float32[1,1,5,4]; it must be "
            "float32[1,2,past,4]");
  EXPECT_EQ(Refusal({1, 2, 5, 4}, {1, 2, 6, 4}),
            "node \"it\" (Attention): there are past keys of 5 rows, but past "
            "values of 6");
  EXPECT_EQ(
      Refusal({1, 2, 5, 4}, {1, 2, 5, 4},
              {{"qk_matmul_output_mode", int64_t{4}}}),
      "node \"it\" (Attention): qk_matmul_output_mode is 4; it must be 0, "
      "1, 2 or 3");
}

// A causal query sees as many of the first keys, however many there are.
TEST(AttentionTest, PaddedKeysAreNotSeen) {
  for (const bool causal : {false, true}) {
    reference::AttentionAttributes a;
    a.scale = 1;
    a.causal = causal;
    a.key_counts = {4, 1};
    std::vector<DoubleArray> in;
    OpRun run("Attention", 24,
              {{"scale", 1.0f}, {"is_causal", int64_t{causal}}});
    for (const int64_t rows : {3, 4, 4}) {
      in.push_back(RandomArray({2, 1, rows, 2}, in.size()));
      run.Input(in.back());
    }
    run.NoInput()
        .NoInput()
        .NoInput()
        .Integers<int64_t>(DType::kInt64, {2}, a.key_counts)
        .Output({2, 1, 3, 2});
    ASSERT_TRUE(run.Forward().ok());
    const auto forward = [&] {
      return reference::AttentionCase<double>(a, in).Forward().values;
    };
    ExpectNear(run.output(0), forward(), 1e-5);
    const DoubleArray dy = RandomArray({2, 1, 3, 2}, 7);
    const auto dx = run.Backward({dy});
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<double> want = FiniteDifferences(
          in[i].values, [&] { return Dot(forward(), dy.values); });
      ExpectNear(dx[i], want, 1e-5);
    }
  }
}

TEST(AttentionTest, AMaskOfOneColumnHidesTheOtherKeysFromOpset24On) {
  for (const int opset : {23, 24}) {
    reference::AttentionAttributes a;
    a.scale = 1;
    a.one_column_ends = opset == 24;
    const std::vector<DoubleArray> in = {
        RandomArray({1, 1, 2, 4}, 1), RandomArray({1, 1, 3, 4}, 2),
        RandomArray({1, 1, 3, 4}, 3), RandomArray({2, 1}, 4)};
    OpRun run("Attention", opset, {{"scale", 1.0f}});
    for (const DoubleArray& array : in) run.Input(array);
    run.Output({1, 1, 2, 4});
    ASSERT_TRUE(run.Forward().ok());
    ExpectNear(run.output(0),
               reference::AttentionCase<double>(a, in).Forward().values, 1e-5);
  }
}

TEST(AttentionTest, MoreKeysThanThereAreEndTheStep) {
  OpRun run("Attention", 24);
  for (int i = 0; i < 3; ++i) run.Input(RandomArray({1, 2, 3, 4}, i));
  run.NoInput()
      .NoInput()
      .NoInput()
      .Integers<int64_t>(DType::kInt64, {1}, {4})
      .Output({1, 2, 3, 4});
  EXPECT_EQ(run.Forward().message(),
            "nonpad_kv_seqlen of sample 0 is 4; there are 3 keys");
}

// 70,000 queries that share a row of it, each with the same gradient.
TEST(AttentionTest, AMaskOfManyQueriesKeepsItsGradientsDigits) {
  constexpr int64_t kQueries = 70'000;
  OpRun run("Attention", 23);
  DoubleArray ones({1, 1, kQueries, 1});
  ones.values.assign(kQueries, 1);
  run.Input(ones).Input(MakeArray({1, 1, 2, 1}, {0.5, -0.25}));
  run.Input(MakeArray({1, 1, 2, 1}, {0.75, -0.5}));
  run.Input(MakeArray({1, 2}, {0.25, 0.125})).Output({1, 1, kQueries, 1});
  ASSERT_TRUE(run.Forward().ok());
  const std::vector<float> dmask = run.Backward({ones})[3];
  const double p = 1 / (1 + std::exp((-0.25 + 0.125) - (0.5 + 0.25)));
  const double want = kQueries * p * (1 - p) * (0.75 + 0.5);
  // Of each query's, and of the sum.
  const double bound = (8 + 72) * 6e-8 * want;
  EXPECT_NEAR(dmask[0], want, bound);
  EXPECT_NEAR(dmask[1], -want, bound);
}

}  // namespace
}  // namespace syncline::worker
