// Goal: an element gathers from all places that repeat it, in their order, and
// looks at no others. Method: pads of many repetitions in each mode, against
// the bits of this machine, on an emulated device; and a long axis.

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/device/padding_kernels.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/same_kernels.h"

namespace syncline {
namespace {

using testing::ExpectSameKernels;
using testing::KernelRun;

constexpr PadMode kModes[] = {PadMode::kConstant, PadMode::kEdge,
                              PadMode::kReflect, PadMode::kWrap};

void ExpectSameGradient(const Padding& p, bool accumulate) {
  int64_t results = 1;
  for (const Padding::Axis& axis : p.axes) results *= axis.count;
  const std::vector<float> dy =
      testing::ToFloats(testing::RandomArray({results}, 1).values);
  ExpectSameKernels([&](KernelRun& run) {
    auto* const dx =
        static_cast<float*>(run.Result(p.input_count * sizeof(float)));
    if (accumulate) run.stream().Clear(dx, p.input_count * sizeof(float));
    run.kernels().padding->backward(run.stream(), p, run.Put(dy), accumulate,
                                    dx);
  });
}

TEST(CudaPaddingTest, GathersAllRepetitionsInOrder) {
  for (const PadMode mode : kModes) {
    for (const int64_t n : {1, 2, 3, 5}) {
      for (const int64_t begin : {0, 1, 4, 13}) {
        for (const int64_t end : {0, 2, 11}) {
          SCOPED_TRACE(absl::StrCat("mode ", static_cast<int>(mode), ", ",
                                    begin, " + ", n, " + ", end));
          Padding p;
          p.mode = mode;
          p.axes.push_back(
              {.left = n, .begin = begin, .count = begin + n + end});
          p.input_count = n;
          ExpectSameGradient(p, /*accumulate=*/begin == 4);
        }
      }
    }
  }
}

// Pads that take away, and more than one axis.
TEST(CudaPaddingTest, GathersFromWhatIsLeft) {
  for (const PadMode mode : kModes) {
    SCOPED_TRACE(absl::StrCat("mode ", static_cast<int>(mode)));
    Padding p;
    p.mode = mode;
    p.axes.push_back(
        {.first = 1, .left = 2, .stride = 20, .begin = 3, .count = 9});
    p.axes.push_back(
        {.first = 0, .left = 3, .stride = 5, .begin = 0, .count = 3});
    p.axes.push_back(
        {.first = 2, .left = 3, .stride = 1, .begin = 7, .count = 12});
    p.input_count = 4 * 20;
    ExpectSameGradient(p, /*accumulate=*/false);
  }
}

// Half a minute, if each element looked at all places.
TEST(CudaPaddingTest, ALongAxisTakesALinearTime) {
  constexpr int64_t kLength = 100'000;
  for (const PadMode mode :
       {PadMode::kEdge, PadMode::kReflect, PadMode::kWrap}) {
    Padding p;
    p.mode = mode;
    p.axes.push_back({.left = kLength, .begin = 10, .count = kLength + 20});
    p.input_count = kLength;
    testing::EmulatedDevice device;
    KernelRun run(&device);
    auto* const dx = static_cast<float*>(run.Result(kLength * sizeof(float)));
    run.kernels().padding->backward(
        run.stream(), p, run.Put(std::vector<float>(kLength + 20, 1.0f)),
        /*accumulate=*/false, dx);
    std::vector<float> got(kLength);
    run.stream().CopyToHost(got.data(), dx, kLength * sizeof(float));
    ASSERT_EQ(run.stream().Synchronize(), absl::OkStatus());
    EXPECT_EQ(got[kLength / 2], 1.0f);
    EXPECT_EQ(got[5], mode == PadMode::kEdge ? 1.0f : 2.0f);
    EXPECT_EQ(got[0], mode == PadMode::kEdge      ? 11.0f
                      : mode == PadMode::kReflect ? 1.0f
                                                  : 2.0f);
  }
}

}  // namespace
}  // namespace syncline
