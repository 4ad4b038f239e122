// Goal: a tuner chooses the fastest algorithm by what it measures, within its
// limits, and others follow its table with the same bits; what the library
// refuses, or is of another GPU, is not taken. Method: products of an emulated
// device whose library's double has algorithms with other sums and times.

#include "kernels/device/product_tuner.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "kernels/device/device.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/matrix_product_kernels.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;
using ::testing::HasSubstr;

constexpr MatrixProductShape kWide = {.m = 3, .n = 4, .k = 70};
constexpr MatrixProductShape kTall = {.m = 9, .n = 2, .k = 50};

std::vector<absl::Duration> Times(std::vector<double> milliseconds) {
  std::vector<absl::Duration> times;
  for (const double time : milliseconds) {
    times.push_back(absl::Milliseconds(time));
  }
  return times;
}

class ProductTunerTest : public ::testing::Test {
 protected:
  static ProductTuner& TunerOf(EmulatedDevice& device) {
    return *device.product_tuner();
  }
  static std::unique_ptr<MatrixProduct> Make(EmulatedDevice& device,
                                             const MatrixProductShape& shape) {
    auto product = device.kernels().matrix_product->make(device, shape);
    EXPECT_TRUE(product.ok()) << product.status();
    return *std::move(product);
  }
  // The product of drawn numbers.
  static std::vector<float> BitsOf(EmulatedDevice& device,
                                   MatrixProduct& product,
                                   const MatrixProductShape& s) {
    const auto stream = *device.MakeStream();
    const auto put = [&](int64_t count, uint64_t seed) {
      const std::vector<float> values =
          testing::ToFloats(testing::RandomArray({count}, seed).values);
      return *Upload(device, absl::Span<const float>(values));
    };
    const DeviceMemory a = put(s.m * s.k, 1);
    const DeviceMemory b = put(s.k * s.n, 2);
    const DeviceMemory c = put(s.m * s.n, 3);
    EXPECT_EQ(product.Run(*stream, a.as<float>(), b.as<float>(),
                          /*bias=*/nullptr, c.as<float>()),
              absl::OkStatus());
    std::vector<float> values(s.m * s.n);
    stream->CopyToHost(values.data(), c.data(), values.size() * sizeof(float));
    EXPECT_EQ(stream->Synchronize(), absl::OkStatus());
    return values;
  }
  static ProductTuner::Report Tune(EmulatedDevice& device,
                                   const ProductTable& known = {},
                                   const ProductTuner::Limits& limits = {}) {
    const auto report = TunerOf(device).Tune(device, known, limits);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.value_or(ProductTuner::Report());
  }

  EmulatedDevice device_;
};

TEST_F(ProductTunerTest, TheFastestThatIsMeasuredIsTaken) {
  device_.products().times = Times({4, 3, 2, 5});
  const auto wide = Make(device_, kWide);
  const auto tall = Make(device_, kTall);
  const auto first = BitsOf(device_, *wide, kWide);
  const ProductTuner::Report report = Tune(device_);
  EXPECT_EQ(report.known, 0);
  EXPECT_EQ(report.measured, 2);
  EXPECT_EQ(report.changed, 2);
  EXPECT_THAT(report.unmeasured, ::testing::IsEmpty());
  EXPECT_EQ(device_.products().measurements, 2 * 4);
  EXPECT_NE(BitsOf(device_, *wide, kWide), first);
  EXPECT_EQ(device_.products().runs[2], 1);
  EXPECT_EQ(TunerOf(device_).table().algorithms().size(), 2u);
}

TEST_F(ProductTunerTest, ALittleFasterIsNotWorthOtherBits) {
  device_.products().times = Times({100, 98});
  const auto wide = Make(device_, kWide);
  const ProductTuner::Report report = Tune(device_);
  EXPECT_EQ(report.measured, 1);
  EXPECT_EQ(report.changed, 0);
  EXPECT_EQ(*TunerOf(device_).table().Find(
                TunerOf(device_).table().algorithms().begin()->first),
            "algorithm 0");
}

TEST_F(ProductTunerTest, ProductsThatAreAlikeAreMeasuredOnce) {
  device_.products().times = Times({3, 2});
  const auto one = Make(device_, kWide);
  const auto other = Make(device_, kWide);
  MatrixProductShape with_bias = kWide;
  with_bias.has_bias = true;
  const auto third = Make(device_, with_bias);
  EXPECT_EQ(Tune(device_).measured, 2);
  EXPECT_EQ(BitsOf(device_, *one, kWide), BitsOf(device_, *other, kWide));
  EXPECT_EQ(device_.products().runs[1], 2);
  // One that is made later has what was chosen.
  const auto later = Make(device_, kWide);
  BitsOf(device_, *later, kWide);
  EXPECT_EQ(device_.products().runs[1], 3);
}

TEST_F(ProductTunerTest, AnotherDeviceFollowsWithTheSameBits) {
  device_.products().times = Times({4, 3, 2});
  const auto wide = Make(device_, kWide);
  Tune(device_);
  EmulatedDevice other(/*seed=*/2);
  other.products().times = Times({1, 2, 3});  // its own choice is the first
  const auto same = Make(other, kWide);
  const auto lacking = Make(other, kTall);
  ASSERT_EQ(TunerOf(other).Follow(TunerOf(device_).table()), absl::OkStatus());
  EXPECT_EQ(BitsOf(other, *same, kWide), BitsOf(device_, *wide, kWide));
  EXPECT_EQ(other.products().runs[2], 1);
  EXPECT_EQ(other.products().measurements, 0);
  // A product that the table lacks has the library's first choice.
  BitsOf(other, *lacking, kTall);
  EXPECT_EQ(other.products().runs[0], 1);
  EXPECT_EQ(TunerOf(other).refused(), 0);
  // The next job begins with the library's own.
  ASSERT_EQ(TunerOf(other).Follow(ProductTable(TunerOf(other).library())),
            absl::OkStatus());
  BitsOf(other, *same, kWide);
  EXPECT_EQ(other.products().runs[0], 2);
}

TEST_F(ProductTunerTest, ATableOfAnotherGpuOrLibraryIsNotFollowed) {
  device_.products().times = Times({4, 3});
  const auto wide = Make(device_, kWide);
  Tune(device_);
  for (const ProductLibrary& library :
       {ProductLibrary{"another", "products 1.0"},
        ProductLibrary{"emulated", "products 1.1"}}) {
    EmulatedDevice other(1, uint64_t{1} << 40, library);
    other.products().times = Times({4, 3});
    const auto same = Make(other, kWide);
    const absl::Status refused =
        TunerOf(other).Follow(TunerOf(device_).table());
    EXPECT_TRUE(absl::IsFailedPrecondition(refused));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(library.name));
    BitsOf(other, *same, kWide);
    EXPECT_EQ(other.products().runs[0], 1);
    // Nor is it known to the next measurement.
    EXPECT_EQ(Tune(other, TunerOf(device_).table()).known, 0);
  }
}

TEST_F(ProductTunerTest, WhatTheLibraryRefusesIsItsFirstChoice) {
  device_.products().times = Times({4, 3});
  const auto wide = Make(device_, kWide);
  Tune(device_);
  const ProductTable table = TunerOf(device_).table();
  EmulatedDevice other;
  other.products().times = Times({4, 3});
  other.products().refused = {1};
  const auto same = Make(other, kWide);
  ASSERT_EQ(TunerOf(other).Follow(table), absl::OkStatus());
  EXPECT_EQ(TunerOf(other).refused(), 1);
  BitsOf(other, *same, kWide);
  EXPECT_EQ(other.products().runs[0], 1);
  const auto later = Make(other, kWide);
  EXPECT_EQ(TunerOf(other).refused(), 2);
  // Bytes that are no algorithm are refused, too.
  ProductTable garbage(TunerOf(other).library());
  ASSERT_TRUE(garbage.Set(table.algorithms().begin()->first, "\x01\x02"));
  ASSERT_EQ(TunerOf(other).Follow(garbage), absl::OkStatus());
  EXPECT_EQ(TunerOf(other).refused(), 2);
}

TEST_F(ProductTunerTest, WhatIsKnownIsNotMeasured) {
  device_.products().times = Times({4, 3, 2});
  auto wide = Make(device_, kWide);
  Tune(device_);
  const ProductTable known = TunerOf(device_).table();
  EmulatedDevice later;
  later.products().times = Times({1, 2, 3});
  const auto same = Make(later, kWide);
  const auto tall = Make(later, kTall);
  const ProductTuner::Report report = Tune(later, known);
  EXPECT_EQ(report.known, 1);
  EXPECT_EQ(report.measured, 1);
  EXPECT_EQ(later.products().measurements, 3);
  EXPECT_EQ(BitsOf(later, *same, kWide), BitsOf(device_, *wide, kWide));
  // A choice that is followed already is kept as it is.
  later.products().times = Times({3, 2, 1});
  EXPECT_EQ(Tune(later).known, 2);
  EXPECT_EQ(later.products().measurements, 3);
}

TEST_F(ProductTunerTest, WithoutTimeOrMemoryTheFirstChoiceIsTold) {
  device_.products().times = Times({4, 3});
  const auto wide = Make(device_, kWide);
  ProductTuner::Report report =
      Tune(device_, {}, {.time_max = absl::ZeroDuration()});
  EXPECT_EQ(report.unmeasured.size(), 1u);
  EXPECT_EQ(device_.products().measurements, 0);
  // Others follow it all the same.
  EXPECT_EQ(TunerOf(device_).table().algorithms().begin()->second,
            "algorithm 0");
  EmulatedDevice small(1, /*memory_bytes=*/100);
  small.products().times = Times({4, 3});
  const auto there = Make(small, kWide);
  report = Tune(small);
  EXPECT_EQ(report.unmeasured.size(), 1u);
  EXPECT_EQ(small.products().measurements, 0);
}

TEST_F(ProductTunerTest, OfManyAlgorithmsSomeAreMeasured) {
  device_.products().times = Times({9, 8, 7, 6, 5, 4});
  const auto wide = Make(device_, kWide);
  Tune(device_, {}, {.algorithms_max = 3});
  EXPECT_EQ(device_.products().measurements, 3);
  BitsOf(device_, *wide, kWide);
  EXPECT_EQ(device_.products().runs[2], 1);
}

TEST_F(ProductTunerTest, AnErrorInBetweenEndsIt) {
  device_.products().times = Times({4, 3});
  const auto wide = Make(device_, kWide);
  const auto stopped = TunerOf(device_).Tune(
      device_, {}, {.go_on = [] { return absl::CancelledError("stop"); }});
  EXPECT_TRUE(absl::IsCancelled(stopped.status()));
  BitsOf(device_, *wide, kWide);
  EXPECT_EQ(device_.products().runs[0], 1);
  device_.Report("the device was lost");
  const auto lost = TunerOf(device_).Tune(device_, {}, {});
  EXPECT_TRUE(absl::IsInternal(lost.status())) << lost.status();
}

TEST_F(ProductTunerTest, AProductThatIsGoneIsForgotten) {
  device_.products().times = Times({4, 3});
  Make(device_, kWide);
  EXPECT_EQ(Tune(device_).measured, 0);
  EXPECT_TRUE(TunerOf(device_).table().algorithms().empty());
}

}  // namespace
}  // namespace syncline
