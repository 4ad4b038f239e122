// Goal: an index that is out of range is reported and does no harm. Method: a
// few numbers by hand. (worker_op_table_test has the rest.)

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/gather_kernels.h"
#include "kernels/device/kernel_table.h"

namespace syncline {
namespace {

class GatherTest : public ::testing::Test {
 protected:
  std::vector<float> Forward(const GatherShape& s, const std::vector<float>& x,
                             const std::vector<int64_t>& indices) {
    std::vector<float> y(s.outer * s.indices * s.inner, 77.0f);
    kernels_.forward(stream_, s, x.data(), indices.data(), y.data(),
                     {.record = &error_, .node = 3});
    return y;
  }
  std::vector<float> Backward(const GatherShape& s,
                              const std::vector<float>& dy,
                              const std::vector<int64_t>& indices) {
    std::vector<float> dx(s.outer * s.n * s.inner, 77.0f);
    kernels_.backward(stream_, s, indices.data(), dy.data(),
                      /*accumulate=*/false, dx.data(), /*scratch=*/nullptr);
    return dx;
  }

  const GatherKernels& kernels_ = *ThisMachine().kernels().gather;
  CpuStream stream_ = CpuStream(&ThisMachine());
  DataError error_;
};

TEST_F(GatherTest, TheFirstIndexThatIsOutOfRangeIsReported) {
  const GatherShape s = {.outer = 2, .n = 3, .inner = 1, .indices = 4};
  EXPECT_EQ(Forward(s, {1, 2, 3, 4, 5, 6}, {-1, 7, 2, -4}),
            (std::vector<float>{3, 1, 3, 1, 6, 4, 6, 4}));
  EXPECT_EQ(error_.node, 3);
  EXPECT_EQ(error_.kind, 0);
  EXPECT_EQ(error_.position, 1);
  EXPECT_EQ(error_.value, 7);
}

TEST_F(GatherTest, AnIndexThatIsOutOfRangeCountsAsZeroBackwardToo) {
  const GatherShape s = {.outer = 1, .n = 2, .inner = 2, .indices = 3};
  EXPECT_EQ(Backward(s, {1, 2, 3, 4, 5, 6}, {1, 2, -3}),
            (std::vector<float>{8, 10, 1, 2}));
}

TEST_F(GatherTest, OfNoRowsThereAreZeros) {
  const GatherShape s = {.outer = 2, .n = 0, .inner = 1, .indices = 2};
  EXPECT_EQ(Forward(s, {}, {0, 1}), std::vector<float>(4, 0.0f));
  EXPECT_EQ(error_.position, 0);
  EXPECT_TRUE(Backward(s, {1, 2, 3, 4}, {0, 1}).empty());
}

}  // namespace
}  // namespace syncline
