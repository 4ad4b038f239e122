// Goal: a batch that is computed in parts gives what its samples give, in
// scratch memory that does not grow with it. Method: against the same samples a
// few at a time, which are one part. That a part is right, of every shape, is
// op_table_test's to show.

#include "kernels/convolution.h"

#include <algorithm>

#include "common/base/aligned_buffer.h"
#include "kernels/threads.h"
#include "tests/testing/arrays.h"

namespace syncline {
namespace {

using testing::ExpectNear;
using testing::RandomArray;
using testing::ToFloats;

constexpr int64_t kChannels = 8, kFilters = 16, kSide = 32;
constexpr int64_t kX = kChannels * kSide * kSide;
constexpr int64_t kY = kFilters * kSide * kSide;
constexpr int64_t kW = kFilters * kChannels * 9;

Convolution Create(int64_t batch) {
  Convolution::Shape shape;
  shape.batch = batch;
  shape.channels = kChannels;
  shape.filters = kFilters;
  shape.has_bias = true;
  const Window::Axis axis = {.in = kSide,
                             .out = kSide,
                             .kernel = 3,
                             .stride = 1,
                             .dilation = 1,
                             .pad_begin = 1,
                             .pad_end = 1};
  shape.window = {axis, axis};
  auto convolution = Convolution::Create(
      shape,
      {.forward = true, .backward_data = true, .backward_weights = true});
  EXPECT_TRUE(convolution.ok()) << convolution.status();
  return *std::move(convolution);
}

int64_t ScratchBytes(const Convolution& c) {
  return std::max({c.forward_scratch_bytes(), c.backward_data_scratch_bytes(),
                   c.backward_weights_scratch_bytes()});
}

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  return ToFloats(RandomArray({count}, seed).values);
}

std::vector<double> ToDoubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// Results of samples of a batch, computed `at_once` at a time. Sums
// begin with ones.
struct Results {
  Results(int64_t batch, int64_t at_once)
      : y(batch * kY), dx(batch * kX, 1), dw(kW, 1) {
    const std::vector<float> x = RandomFloats(batch * kX, 1);
    const std::vector<float> dy = RandomFloats(batch * kY, 2);
    const std::vector<float> w = RandomFloats(kW, 3);
    const std::vector<float> bias = RandomFloats(kFilters, 4);
    Convolution c = Create(at_once);
    scratch_bytes = ScratchBytes(c);
    AlignedFloats scratch(scratch_bytes / sizeof(float));
    for (int64_t i = 0; i < batch; i += at_once) {
      EXPECT_TRUE(c.Forward(&x[i * kX], w.data(), bias.data(),
                            /*accumulate=*/false, &y[i * kY], scratch.data())
                      .ok());
      EXPECT_TRUE(c.BackwardWeights(&x[i * kX], &dy[i * kY],
                                    /*accumulate=*/true, dw.data(),
                                    scratch.data())
                      .ok());
      EXPECT_TRUE(c.BackwardData(&dy[i * kY], w.data(), /*accumulate=*/true,
                                 &dx[i * kX], scratch.data(),
                                 /*after_weights=*/true)
                      .ok());
    }
  }
  std::vector<float> y, dx, dw;
  int64_t scratch_bytes = 0;
};

void ExpectEqual(const Results& got, const Results& want) {
  ExpectNear(got.y, ToDoubles(want.y), 1e-5);
  ExpectNear(got.dx, ToDoubles(want.dx), 1e-5);
  // Sums of so many products in another order.
  ExpectNear(got.dw, ToDoubles(want.dw), 1e-2);
}

TEST(ConvolutionTest, ABatchInPartsIsItsSamples) {
  SetComputeThreads(1);
  // Arrays of 24 MiB, in four parts.
  const Results whole(256, 256);
  ExpectEqual(whole, Results(256, 8));
  EXPECT_LT(whole.scratch_bytes, 10 << 20);
  // Half of it, in two.
  ExpectEqual(Results(128, 128), Results(128, 8));
}

TEST(ConvolutionTest, APrimeNumberOfSamplesIsOnePart) {
  SetComputeThreads(1);
  ExpectEqual(Results(61, 61), Results(61, 1));
}

}  // namespace
}  // namespace syncline
