// Goal: each padded element is from where its mode says, however far outside.
// Method: axes of one to five elements, walked step by step in both directions.
// (worker_op_table_test has whole arrays, and gradients.)

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/padding_kernels.h"

namespace syncline {
namespace {

constexpr int64_t kPad = 17;
constexpr int64_t kFirst = 2;  // of the elements that are left

// One row of `n` elements that are left, numbered in the input.
std::vector<uint32_t> Padded(PadMode mode, int64_t n) {
  Padding p;
  p.mode = mode;
  p.axes.push_back(
      {.first = kFirst, .left = n, .begin = kPad, .count = n + 2 * kPad});
  std::vector<uint32_t> x(kFirst + n), y(p.axes[0].count);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint32_t>(i);
  const uint32_t constant = 99;
  CpuStream stream(&ThisMachine());
  ThisMachine().kernels().padding->forward(stream, p, x.data(), &constant,
                                           y.data());
  return y;
}

// A step from element `at` of `n` in `direction`, which turns at the ends.
int64_t Step(PadMode mode, int64_t n, int64_t at, int64_t* direction) {
  const int64_t to = at + *direction;
  if (to >= 0 && to < n) return to;
  if (mode == PadMode::kEdge) return at;
  if (mode == PadMode::kWrap) return to < 0 ? n - 1 : 0;
  *direction = -*direction;
  return n == 1 ? 0 : at + *direction;
}

TEST(PaddingTest, EveryModeGoesOnAsItBegins) {
  for (const PadMode mode :
       {PadMode::kEdge, PadMode::kReflect, PadMode::kWrap}) {
    for (int64_t n = 1; n <= 5; ++n) {
      SCOPED_TRACE(::testing::Message()
                   << "mode " << static_cast<int>(mode) << ", " << n);
      const std::vector<uint32_t> y = Padded(mode, n);
      for (const int64_t way : {-1, 1}) {
        int64_t direction = way;
        int64_t at = way < 0 ? 0 : n - 1;
        int64_t place = kPad + at;
        for (int64_t i = 0; i < kPad; ++i) {
          at = Step(mode, n, at, &direction);
          place += way;
          EXPECT_EQ(y[place], kFirst + at) << place;
        }
      }
    }
  }
}

TEST(PaddingTest, OutsideIsTheConstant) {
  const std::vector<uint32_t> y = Padded(PadMode::kConstant, 2);
  for (int64_t i = 0; i < kPad; ++i) {
    EXPECT_EQ(y[i], 99u);
    EXPECT_EQ(y[kPad + 2 + i], 99u);
  }
  EXPECT_EQ(y[kPad], kFirst);
  EXPECT_EQ(y[kPad + 1], kFirst + 1);
}

}  // namespace
}  // namespace syncline
