// Goal: float32 powers with broadcasting on this machine's processors. Method:
// the exponents that have a function of their own against libm's pow, special
// values included; gradients at 0. (worker_op_table_test holds all of it
// against the reference.)

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/power_kernels.h"
#include "kernels/elementwise/broadcast.h"

namespace syncline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const PowerKernels& Kernels() { return *ThisMachine().kernels().power; }

TEST(PowerTest, SingleExponentsAreThoseOfPow) {
  CpuStream stream(&ThisMachine());
  const std::vector<float> x = {0.0f, -0.0f, 1.5f,      -2.0f,
                                3e5f, 1e-3f, kInfinity, std::nanf("")};
  const Broadcast s = *MakeBroadcast({8}, {});
  for (const float exponent : {-1.0f, 0.0f, 0.5f, 1.0f, 2.0f, 3.0f, 2.5f}) {
    std::vector<float> y(x.size());
    Kernels().forward(stream, s, x.data(), &exponent, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const float want = std::pow(x[i], exponent);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(y[i])) << x[i] << " ^ " << exponent;
      } else {
        EXPECT_FLOAT_EQ(y[i], want) << x[i] << " ^ " << exponent;
      }
    }
  }
}

TEST(PowerTest, GradientsAtZeroAreFinite) {
  CpuStream stream(&ThisMachine());
  const std::vector<float> a = {0, 0, 0};
  const std::vector<float> b = {0, 1, 2};
  const std::vector<float> y = {1, 0, 0};
  const std::vector<float> dy = {3, 3, 3};
  std::vector<float> d(3);
  const Broadcast s = *MakeBroadcast({3}, {3});
  Kernels().backward_a(stream, s, a.data(), b.data(), dy.data(),
                       /*accumulate=*/false, d.data());
  EXPECT_EQ(d, (std::vector<float>{0, 3, 0}));
  Kernels().backward_b(stream, s, a.data(), y.data(), dy.data(),
                       /*accumulate=*/false, d.data());
  EXPECT_EQ(d, (std::vector<float>{0, 0, 0}));
}

}  // namespace
}  // namespace syncline
