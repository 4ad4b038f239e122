// Goal: kernels along lines have the same results for every form of groups.
// Method: softmax and gradients of repeated operands over lines that are short,
// long, adjacent and alone, against this machine, on an emulated device.

#include "kernels/cuda/walk/lines.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/binary_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/softmax_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;

std::vector<float> Drawn(int64_t count, uint64_t seed) {
  return testing::ToFloats(testing::RandomArray({count}, seed).values);
}

// Arrays on a device, and one result.
class Arrays {
 public:
  explicit Arrays(Device* device)
      : device_(*device), stream_(*device->MakeStream()) {}

  float* Put(const std::vector<float>& values) {
    memory_.push_back(*Upload(device_, absl::Span<const float>(values)));
    return memory_.back().as<float>();
  }
  std::vector<float> Get(const float* from, int64_t count) {
    std::vector<float> values(count);
    stream_->CopyToHost(values.data(), from, count * sizeof(float));
    EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
    return values;
  }
  Stream& stream() { return *stream_; }

 private:
  Device& device_;
  std::vector<DeviceMemory> memory_;
  const std::unique_ptr<Stream> stream_;
};

void ExpectSame(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << "element " << i;
    } else {
      ASSERT_NEAR(got[i], want[i], 1e-5 * std::max(1.0f, std::fabs(want[i])))
          << "element " << i;
    }
  }
}

TEST(CudaLinesTest, SoftmaxOfLinesOfAllForms) {
  const SoftmaxShape shapes[] = {{.outer = 1, .n = 1},
                                 {.outer = 70, .n = 33},
                                 {.outer = 3, .n = 1500},
                                 {.outer = 2, .n = 5, .inner = 40},
                                 {.outer = 1, .n = 1300, .inner = 3},
                                 {.outer = 0, .n = 4},
                                 {.outer = 2, .n = 1024}};
  for (const SoftmaxShape& s : shapes) {
    SCOPED_TRACE(absl::StrCat(s.outer, " x ", s.n, " x ", s.inner));
    const int64_t count = s.outer * s.n * s.inner;
    std::vector<float> x = Drawn(count, 1);
    if (count > 7) x[7] = std::numeric_limits<float>::quiet_NaN();
    const auto run = [&](Device& device, bool log, bool accumulate) {
      Arrays arrays(&device);
      const auto& pair = log ? device.kernels().softmax->log_softmax
                             : device.kernels().softmax->softmax;
      float* const y = arrays.Put(std::vector<float>(count));
      float* const dx = arrays.Put(Drawn(count, 3));
      pair.forward(arrays.stream(), s, arrays.Put(x), y);
      pair.backward(arrays.stream(), s, y, arrays.Put(Drawn(count, 2)),
                    accumulate, dx);
      std::vector<float> both = arrays.Get(y, count);
      for (const float d : arrays.Get(dx, count)) both.push_back(d);
      return both;
    };
    for (const bool log : {false, true}) {
      EmulatedDevice device;
      ExpectSame(run(device, log, log), run(ThisMachine(), log, log));
    }
  }
}

TEST(CudaLinesTest, GradientsOfRepeatedOperands) {
  const std::vector<std::vector<std::vector<int64_t>>> shapes = {
      {{70, 33}, {33}},           // a bias: columns
      {{1500, 3}, {3}},           // long columns
      {{5, 1300}, {5, 1}},        // long lines
      {{40, 20}, {40, 1}},        // short lines
      {{2000}, {1}},              // one sum
      {{4, 6, 5, 7}, {6, 1, 7}},  // loops between
      {{3, 1, 5}, {1, 4, 1}},     // both are repeated
  };
  for (const auto& shape : shapes) {
    SCOPED_TRACE(absl::StrCat("[", absl::StrJoin(shape[0], ","), "] and [",
                              absl::StrJoin(shape[1], ","), "]"));
    const Broadcast s = *MakeBroadcast(shape[0], shape[1]);
    const auto run = [&](Device& device, Side side, bool accumulate) {
      Arrays arrays(&device);
      const auto& multiply =
          (*device.kernels().binary)[BinaryFunction::kMultiply];
      const int64_t count = side == Side::kA ? s.a_count : s.b_count;
      float* const dx = arrays.Put(Drawn(count, 4));
      (side == Side::kA ? multiply.backward_a : multiply.backward_b)(
          arrays.stream(), s, arrays.Put(Drawn(s.a_count, 1)),
          arrays.Put(Drawn(s.b_count, 2)), /*y=*/nullptr,
          arrays.Put(Drawn(s.count, 3)), accumulate, dx);
      return arrays.Get(dx, count);
    };
    for (const Side side : {Side::kA, Side::kB}) {
      for (const bool accumulate : {false, true}) {
        EmulatedDevice device;
        ExpectSame(run(device, side, accumulate),
                   run(ThisMachine(), side, accumulate));
      }
    }
  }
}

}  // namespace
}  // namespace syncline
