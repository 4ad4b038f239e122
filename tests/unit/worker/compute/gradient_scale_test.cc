// Goal: a scale leaves gradients with the bits that they had, and finds the
// first array whose numbers are not finite. Method: small arrays on this
// machine's device.

#include "worker/compute/gradient_scale.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/kernel_table.h"

namespace syncline::worker {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class GradientScaleTest : public ::testing::Test {
 protected:
  GradientScaleTest() : stream_(*ThisMachine().MakeStream()) {
    EXPECT_EQ(GradientScale::RequireKernel(ThisMachine()), absl::OkStatus());
    EXPECT_EQ(scale_.Allocate(ThisMachine(), *stream_), absl::OkStatus());
  }
  void Unscale(std::vector<float>* values, int32_t array) {
    scale_.Unscale(*stream_, static_cast<int64_t>(values->size()),
                   values->data(), array);
  }
  std::optional<GradientScale::Overflow> Read() {
    scale_.Copy(*stream_);
    return scale_.Read(*stream_);
  }

  const std::unique_ptr<Stream> stream_;
  GradientScale scale_;
};

TEST_F(GradientScaleTest, ScalesAndBack) {
  const std::vector<float> want = {1.1f, -3e-7f, 0, 12345.678f};
  for (const float factor : {1.0f, 512.0f, 0.25f}) {
    std::vector<float> values = want;
    scale_.Use(*stream_, factor);
    scale_.Scale(*stream_, 4, values.data());
    EXPECT_EQ(values[0], 1.1f * factor);
    Unscale(&values, 0);
    EXPECT_EQ(values, want);
  }
  EXPECT_FALSE(Read().has_value());
}

TEST_F(GradientScaleTest, NotesTheFirstThatIsNotFiniteOnce) {
  std::vector<float> good = {1, 2};
  std::vector<float> bad = {0, 1, kInfinity, kInfinity};
  std::vector<float> worse = {std::numeric_limits<float>::quiet_NaN()};
  Unscale(&good, 0);
  Unscale(&bad, 4);
  Unscale(&worse, 2);
  const auto found = Read();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->array, 4);
  EXPECT_EQ(found->position, 2);
  EXPECT_FALSE(Read().has_value());
}

TEST_F(GradientScaleTest, ForgetsAStepThatFailed) {
  std::vector<float> bad = {kInfinity};
  Unscale(&bad, 0);
  scale_.Forget(*stream_);
  EXPECT_FALSE(Read().has_value());
}

class DeviceWithoutKernels : public CpuDevice {
 public:
  const KernelTable& kernels() const override { return none_; }

 private:
  const KernelTable none_ = {};
};

TEST_F(GradientScaleTest, ADeviceWithoutTheKernelIsRefused) {
  const absl::Status refused =
      GradientScale::RequireKernel(DeviceWithoutKernels());
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              ::testing::HasSubstr("use BFLOAT16 or FLOAT32"));
}

}  // namespace
}  // namespace syncline::worker
