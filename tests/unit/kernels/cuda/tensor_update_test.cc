// Goal: tensors of odd sizes are updated together with the bits of one after
// the other on this machine; their gradients' squares have the same sum in any
// order of threads, and the first number that is not finite is found. Method:
// an emulated device against kernels/optimizer.

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/tensor_update_kernels.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;
using Numbers = std::vector<float>;

// Chunks of three tensors with gaps between them: less than a block, one more
// than a block, and several rounds of it; the second one is a running mean.
const std::vector<TensorChunk> kOddChunks = {
    {.begin = 0, .count = 7},
    {.begin = 16, .count = 257, .momentum = 0.75f},
    {.begin = 288, .count = 1001},
    {.begin = 1289, .count = 1}};
constexpr size_t kElements = 1300;
constexpr float kMeanScale = 1.0f / 12;

Numbers DrawNumbers(uint64_t seed) {
  Random random(seed);
  Numbers values(kElements);
  for (float& v : values) v = static_cast<float>(random.Normal());
  return values;
}

class TensorUpdateTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  float* Put(const Numbers& values) {
    memory_.push_back(*Upload(device_, absl::Span<const float>(values)));
    return memory_.back().as<float>();
  }
  template <typename T>
  std::vector<T> Get(const void* from, size_t count) {
    std::vector<T> values(count);
    stream_->CopyToHost(values.data(), from, count * sizeof(T));
    EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
    return values;
  }
  const TensorUpdateKernels& kernels() {
    return *device_.kernels().tensor_update;
  }
  std::vector<ChunkCheck> Check(const Numbers& gradient) {
    const DeviceMemory found =
        *device_.Allocate(kOddChunks.size() * sizeof(ChunkCheck));
    kernels().check(*stream_, count(), chunks_.as<TensorChunk>(), Put(gradient),
                    kMeanScale, found.as<ChunkCheck>());
    return Get<ChunkCheck>(found.data(), kOddChunks.size());
  }
  static int64_t count() { return static_cast<int64_t>(kOddChunks.size()); }

  EmulatedDevice device_{GetParam()};
  const std::unique_ptr<Stream> stream_ = *device_.MakeStream();
  const DeviceMemory chunks_ =
      *Upload(device_, absl::Span<const TensorChunk>(kOddChunks));
  std::vector<DeviceMemory> memory_;
};

TEST_P(TensorUpdateTest, UpdatesAreThoseOfThisMachine) {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdam,
        OptimizerKind::kAdamW}) {
    for (const float clip_value : {0.0f, 0.05f}) {
      SCOPED_TRACE(absl::StrCat("optimizer ", static_cast<int>(kind),
                                " clipped at ", clip_value));
      ASSERT_TRUE(kernels().has(kind));
      OptimizerParams params;
      params.kind = kind;
      params.weight_decay = 0.01f;
      params.clip_value = clip_value;
      std::vector<Numbers> here = {DrawNumbers(1), DrawNumbers(2),
                                   DrawNumbers(3)};
      for (float& second : here[2]) second = std::fabs(second);
      float* const value = Put(here[0]);
      float* const slots[] = {Put(here[1]), Put(here[2])};
      for (int64_t t = 1; t <= 3; ++t) {
        const OptimizerStep step = {
            .learning_rate = 0.1f, .gradient_scale = 0.7f * kMeanScale, .t = t};
        const Numbers gradient = DrawNumbers(10 + static_cast<uint64_t>(t));
        kernels().update(*stream_, params, step, kMeanScale, count(),
                         chunks_.as<TensorChunk>(), Put(gradient), value,
                         slots);
        for (const TensorChunk& chunk : kOddChunks) {
          float* const own[] = {here[1].data() + chunk.begin,
                                here[2].data() + chunk.begin};
          float* const at = here[0].data() + chunk.begin;
          const auto n = static_cast<size_t>(chunk.count);
          if (chunk.momentum >= 0) {
            AverageIn(chunk.momentum, kMeanScale, gradient.data() + chunk.begin,
                      at, n);
          } else {
            ApplyOptimizer(params, step, gradient.data() + chunk.begin, at, own,
                           n);
          }
        }
      }
      // Elements between the tensors are not touched.
      const void* const there[] = {value, slots[0], slots[1]};
      for (int k = 0; k < 3; ++k) {
        const Numbers got = Get<float>(there[k], kElements);
        EXPECT_EQ(std::memcmp(got.data(), here[k].data(), 4 * kElements), 0)
            << k;
      }
    }
  }
  EXPECT_FALSE(kernels().has(OptimizerKind::kNesterov));
  EXPECT_FALSE(kernels().has(OptimizerKind::kLamb));
}

TEST_P(TensorUpdateTest, SquaresAreThoseOfTheMean) {
  const Numbers gradient = DrawNumbers(5);
  const std::vector<ChunkCheck> found = Check(gradient);
  for (size_t c = 0; c < kOddChunks.size(); ++c) {
    const TensorChunk& chunk = kOddChunks[c];
    EXPECT_EQ(found[c].first_non_finite, ChunkCheck::kAllFinite);
    const double want =
        chunk.momentum >= 0
            ? 0
            : AddSquares(0, gradient.data() + chunk.begin, kMeanScale,
                         static_cast<size_t>(chunk.count));
    EXPECT_NEAR(found[c].squares, want, 1e-12 * want);
  }
}

TEST_P(TensorUpdateTest, TheFirstThatIsNotFiniteIsFound) {
  Numbers gradient = DrawNumbers(5);
  gradient[7] = std::numeric_limits<float>::quiet_NaN();  // between tensors
  gradient[16 + 256] = std::numeric_limits<float>::quiet_NaN();
  gradient[288 + 400] = -std::numeric_limits<float>::infinity();
  gradient[288 + 401] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<ChunkCheck> found = Check(gradient);
  EXPECT_EQ(found[0].first_non_finite, ChunkCheck::kAllFinite);
  EXPECT_EQ(found[1].first_non_finite, 256);
  EXPECT_EQ(found[2].first_non_finite, 400);
  EXPECT_EQ(found[3].first_non_finite, ChunkCheck::kAllFinite);
}

TEST_P(TensorUpdateTest, ChangesAreWeighted) {
  const Numbers value = DrawNumbers(6);
  const Numbers begin = DrawNumbers(7);
  float* const change = Put(begin);
  kernels().change(*stream_, 12, count(), chunks_.as<TensorChunk>(), Put(value),
                   change);
  Numbers want = begin;
  for (const TensorChunk& chunk : kOddChunks) {
    for (int64_t i = chunk.begin; i < chunk.begin + chunk.count; ++i) {
      want[i] =
          chunk.momentum >= 0 ? value[i] * 12 : (begin[i] - value[i]) * 12;
    }
  }
  EXPECT_EQ(Get<float>(change, kElements), want);
}

INSTANTIATE_TEST_SUITE_P(OrdersOfThreads, TensorUpdateTest,
                         ::testing::Values(1, 2, 3));

TEST(TensorUpdateSumTest, SquaresHaveTheSameBitsInAnyOrderOfThreads) {
  std::vector<double> first;
  for (const uint64_t seed : {1, 2, 3}) {
    EmulatedDevice device(seed);
    const auto stream = *device.MakeStream();
    const DeviceMemory chunks =
        *Upload(device, absl::Span<const TensorChunk>(kOddChunks));
    const Numbers drawn = DrawNumbers(5);
    const DeviceMemory gradient =
        *Upload(device, absl::Span<const float>(drawn));
    const DeviceMemory found =
        *device.Allocate(kOddChunks.size() * sizeof(ChunkCheck));
    device.kernels().tensor_update->check(
        *stream, static_cast<int64_t>(kOddChunks.size()),
        chunks.as<TensorChunk>(), gradient.as<float>(), kMeanScale,
        found.as<ChunkCheck>());
    std::vector<ChunkCheck> got(kOddChunks.size());
    stream->CopyToHost(got.data(), found.data(), found.bytes());
    ASSERT_EQ(stream->Synchronize(), absl::OkStatus());
    std::vector<double> squares;
    for (const ChunkCheck& check : got) squares.push_back(check.squares);
    if (first.empty()) first = squares;
    EXPECT_EQ(squares, first);
  }
}

}  // namespace
}  // namespace syncline
