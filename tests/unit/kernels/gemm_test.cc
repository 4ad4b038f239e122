// Goal: Gemm computes what it says for every layout. Method: against the
// reference in double, over transposes, batches, alpha, bias, accumulation, one
// and two threads; sizes that are no multiple of a vector.

#include "kernels/gemm.h"

#include "kernels/reference/reference_matrix.h"
#include "kernels/threads.h"
#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using testing::DoubleArray;
using testing::ExpectNear;
using testing::RandomArray;
using testing::ToFloats;

struct Operands {
  explicit Operands(const Gemm::Shape& s)
      : a(RandomArray({s.batch, s.m, s.k}, 1)),
        b(RandomArray({s.batch, s.k, s.n}, 2)),
        bias(RandomArray({s.n}, 3)),
        before(RandomArray({s.batch, s.m, s.n}, 4)),
        product({s.batch, s.m, s.n}) {
    for (int64_t i = 0; i < s.batch; ++i) {
      reference::Multiply(s.m, s.n, s.k, double{s.alpha},
                          &a.values[i * s.m * s.k], s.transpose_a,
                          &b.values[i * s.k * s.n], s.transpose_b,
                          &product.values[i * s.m * s.n]);
    }
  }
  DoubleArray a, b, bias, before, product;
};

void ExpectReference(const Gemm::Shape& s) {
  SCOPED_TRACE(::testing::Message()
               << s.m << "x" << s.k << "x" << s.n << " ta=" << s.transpose_a
               << " tb=" << s.transpose_b << " batch=" << s.batch
               << " alpha=" << s.alpha << " bias=" << s.has_bias);
  Operands o(s);
  auto gemm = Gemm::Create(s);
  ASSERT_TRUE(gemm.ok()) << gemm.status();
  const std::vector<float> a = ToFloats(o.a.values);
  const std::vector<float> b = ToFloats(o.b.values);
  const std::vector<float> bias = ToFloats(o.bias.values);
  std::vector<float> c = ToFloats(o.before.values);
  const double tolerance = 1e-6 * s.k;

  ASSERT_TRUE(gemm->Accumulate(a.data(), b.data(), c.data()).ok());
  std::vector<double> sum = o.product.values;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += o.before.values[i];
  ExpectNear(c, sum, tolerance);

  ASSERT_TRUE(gemm->Run(a.data(), b.data(), s.has_bias ? bias.data() : nullptr,
                        c.data())
                  .ok());
  std::vector<double> want = o.product.values;
  if (s.has_bias) {
    for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i % s.n];
  }
  ExpectNear(c, want, tolerance);
}

TEST(GemmTest, EveryLayoutGivesTheReference) {
  for (int64_t batch : {1, 3}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const float alpha : {1.0f, -0.5f}) {
          for (const auto& [m, n, k] :
               {std::tuple{1, 1, 1}, {5, 7, 3}, {33, 10, 65}, {1, 19, 40}}) {
            ExpectReference({.m = m,
                             .n = n,
                             .k = k,
                             .transpose_a = ta,
                             .transpose_b = tb,
                             .batch = batch,
                             .alpha = alpha,
                             .has_bias = alpha == 1.0f});
          }
        }
      }
    }
  }
}

// Matrices that are columns of wider ones, as heads of attention are.
TEST(GemmTest, RowsOfWiderMatricesGiveTheReference) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Gemm::Shape dense = {
          .m = 5, .n = 7, .k = 9, .transpose_a = ta, .transpose_b = tb};
      Gemm::Shape wide = dense;
      wide.a_row = 20;
      wide.b_row = 21;
      wide.c_row = 22;
      const Operands o(dense);
      const auto spread = [](const DoubleArray& x, int64_t columns,
                             int64_t row) {
        std::vector<float> out(x.values.size() / columns * row, 99.0f);
        for (size_t i = 0; i < x.values.size(); ++i) {
          out[i / columns * row + i % columns] =
              static_cast<float>(x.values[i]);
        }
        return out;
      };
      const std::vector<float> a = spread(o.a, ta ? 5 : 9, 20);
      const std::vector<float> b = spread(o.b, tb ? 9 : 7, 21);
      std::vector<float> c(5 * 22, 99.0f);
      auto gemm = Gemm::Create(wide);
      ASSERT_TRUE(gemm.ok()) << gemm.status();
      ASSERT_TRUE(gemm->Run(a.data(), b.data(), nullptr, c.data()).ok());
      ASSERT_TRUE(gemm->Accumulate(a.data(), b.data(), c.data()).ok());
      for (int64_t i = 0; i < 5 * 22; ++i) {
        const double want =
            i % 22 < 7 ? 2 * o.product.values[i / 22 * 7 + i % 22] : 99;
        EXPECT_NEAR(c[i], want, 1e-4) << "element " << i;
      }
    }
  }
}

TEST(GemmTest, TwoThreadsGiveTheReference) {
  SetComputeThreads(2);
  ExpectReference({.m = 200, .n = 130, .k = 150, .has_bias = true});
  SetComputeThreads(1);
}

// oneDNN would divide by a number of blocks that it has in 32 bits.
TEST(GemmTest, SizesThat32BitsDoNotCountAreRefused) {
  const auto refused = Gemm::Create({.m = 1, .n = int64_t{1} << 32, .k = 784});
  EXPECT_TRUE(absl::IsInternal(refused.status())) << refused.status();
  EXPECT_NE(refused.status().message().find("32 bits"), std::string::npos);
}

TEST(GemmTest, AnEmptySumIsTheBias) {
  auto gemm = Gemm::Create({.m = 2, .n = 3, .k = 0, .has_bias = true});
  ASSERT_TRUE(gemm.ok()) << gemm.status();
  const float bias[] = {1, 2, 3};
  std::vector<float> c(6, 99);
  ASSERT_TRUE(gemm->Run(nullptr, nullptr, bias, c.data()).ok());
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 1, 2, 3}));
}

TEST(GemmTest, AnEmptyProductAddsNothing) {
  for (const bool transposed : {false, true}) {
    for (const auto& [batch, m, n, k] : {std::tuple{1, 0, 3, 2},
                                         {1, 2, 0, 3},
                                         {1, 2, 3, 0},
                                         {0, 2, 3, 4},
                                         {2, 2, 3, 0},
                                         {2, 0, 3, 4},
                                         {1, 0, 0, 0}}) {
      SCOPED_TRACE(::testing::Message()
                   << batch << " of " << m << "x" << k << "x" << n);
      auto gemm = Gemm::Create({.m = m,
                                .n = n,
                                .k = k,
                                .transpose_a = transposed,
                                .transpose_b = transposed,
                                .batch = batch});
      ASSERT_TRUE(gemm.ok()) << gemm.status();
      const std::vector<float> operand(24, 1);
      std::vector<float> c(batch * m * n, 5);
      ASSERT_TRUE(
          gemm->Accumulate(operand.data(), operand.data(), c.data()).ok());
      EXPECT_EQ(c, std::vector<float>(c.size(), 5));
      ASSERT_TRUE(
          gemm->Run(operand.data(), operand.data(), nullptr, c.data()).ok());
      EXPECT_EQ(c, std::vector<float>(c.size(), 0));
    }
  }
}

TEST(GemmTest, RunningTwiceGivesTheSameBits) {
  const Gemm::Shape s = {.m = 64, .n = 48, .k = 100};
  Operands o(s);
  auto gemm = Gemm::Create(s);
  ASSERT_TRUE(gemm.ok());
  const std::vector<float> a = ToFloats(o.a.values);
  const std::vector<float> b = ToFloats(o.b.values);
  std::vector<float> first(s.m * s.n), second(s.m * s.n);
  ASSERT_TRUE(gemm->Run(a.data(), b.data(), nullptr, first.data()).ok());
  ASSERT_TRUE(gemm->Run(a.data(), b.data(), nullptr, second.data()).ok());
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace syncline
