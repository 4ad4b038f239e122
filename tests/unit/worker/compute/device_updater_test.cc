// Goal: updates on a GPU are those of DenseUpdater, bit for bit, by one launch
// where blocks have one step, and the memory that they take is what was
// planned. Method: both, on an emulated device, with tensors that are several
// blocks and one that is a running mean.

#include "worker/compute/device_updater.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/random.h"
#include "common/update/dense_updater.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline::worker {
namespace {

using UpdateNumbers = std::vector<float>;

class NumbersSource final : public FloatSource {
 public:
  explicit NumbersSource(const UpdateNumbers* numbers) : numbers_(*numbers) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    std::copy_n(numbers_.data() + first, count, out);
  }

 private:
  const UpdateNumbers& numbers_;
};

class DeviceUpdaterTest : public ::testing::Test {
 protected:
  static constexpr int64_t kCounts[] = {kTensorChunkMax + 905, 7, 300};
  static constexpr float kMomentum = 0.75f;

  DeviceUpdaterTest() {
    for (uint32_t tensor = 0; tensor < 3; ++tensor) {
      const auto count = static_cast<size_t>(kCounts[tensor]);
      const std::optional<float> momentum =
          tensor == 2 ? std::optional<float>(kMomentum) : std::nullopt;
      for (size_t at = 0; at < count; at += kTensorChunkMax + 100) {
        blocks_.push_back(
            {.tensor = tensor,
             .offset = at,
             .count = std::min<size_t>(kTensorChunkMax + 100, count - at),
             .momentum = momentum});
      }
      sums_.emplace_back(count, 0.0f);
      values_.emplace_back(count, 0.0f);
    }
    constexpr size_t kLine = kCacheLineBytes / sizeof(float);
    for (const int64_t count : kCounts) {
      floats_ += (static_cast<size_t>(count) + kLine - 1) / kLine * kLine;
    }
    memory_ = *device_.Allocate(2 * floats_ * sizeof(float));
    stream_->Clear(memory_.data(), memory_.bytes());
  }

  void Make(OptimizerKind kind) {
    options_.optimizer.kind = kind;
    options_.optimizer.weight_decay = 0.01f;
    options_.rule.learning_rate.base = 0.1;
    options_.rule.clip_norm = 1;
    std::vector<size_t> counts;
    for (const auto& block : blocks_) counts.push_back(block.count);
    here_.emplace(options_, counts);
    DeviceTensors tensors = {
        .stream = stream_.get(),
        .values = memory_.as<float>(),
        .gradients = memory_.as<float>() + floats_,
        .sums = {},
        .take_values = [this](bool takes) { takes_values_ = takes; }};
    for (UpdateNumbers& sum : sums_) {
      tensors.sums.push_back(absl::MakeSpan(sum));
    }
    there_ = std::make_unique<DeviceUpdater>(options_.optimizer, tensors,
                                             kCounts, blocks_);
    ASSERT_EQ(there_->Allocate(), absl::OkStatus());
    Random random(5);
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      if (blocks_[b].momentum.has_value()) {
        here_->MakeRunningMean(b, kMomentum);
      }
      for (int array = 0; array < here_->arrays(); ++array) {
        for (float& v : here_->mutable_array(b, array)) {
          const auto normal = static_cast<float>(random.Normal());
          v = array == 2 ? normal * normal : normal;  // of squares
        }
      }
    }
    ASSERT_EQ(there_->LoadState([this](uint32_t block, int array) {
      return here_->array(block, array);
    }),
              absl::OkStatus());
  }

  // A step of both; `samples` by block, 0: it has no sum.
  void Step(int64_t clock, const std::vector<uint64_t>& samples) {
    Random random(20 + clock);
    for (UpdateNumbers& sum : sums_) {
      for (float& g : sum) g = static_cast<float>(random.Normal());
    }
    std::vector<DeviceUpdater::BlockStep> steps;
    DenseUpdater::Scratch scratch;
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      if (samples[b] == 0) continue;
      here_->BufferGradient(
          b, 0, std::make_shared<NumbersSource>(&sums_[blocks_[b].tensor]),
          blocks_[b].offset, samples[b]);
      here_->Apply(b, clock, samples[b], /*squared_norm=*/9, &scratch);
      there_->CopySum(b, absl::MakeConstSpan(sums_[blocks_[b].tensor])
                             .subspan(blocks_[b].offset, blocks_[b].count));
      DeviceUpdater::BlockStep step = {
          .block = b,
          .step = std::nullopt,
          .scale_of_mean = options_.rule.GradientScale(samples[b], -1)};
      if (!blocks_[b].momentum.has_value()) {
        step.step = options_.rule.StepAt(clock, samples[b], 9);
        step.step->t = here_->updates(b);
      }
      steps.push_back(step);
    }
    there_->Update(steps);
    awaited_ = there_->AwaitCopies();
  }

  void ExpectTheSame() {
    EXPECT_EQ(awaited_, absl::OkStatus());
    std::vector<std::vector<UpdateNumbers>> arrays(blocks_.size());
    ASSERT_EQ(there_->ReadState([&](uint32_t block, int /*array*/) {
      return absl::MakeSpan(
          arrays[block].emplace_back(blocks_[block].count, 0.0f));
    }),
              absl::OkStatus());
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      for (int array = 0; array < here_->arrays(); ++array) {
        const auto want = here_->array(b, array);
        ASSERT_EQ(std::memcmp(arrays[b][array].data(), want.data(),
                              want.size() * sizeof(float)),
                  0)
            << "block " << b << " array " << array;
      }
    }
    std::vector<absl::Span<float>> to;
    for (UpdateNumbers& values : values_) to.push_back(absl::MakeSpan(values));
    ASSERT_EQ(there_->ReadValues(to), absl::OkStatus());
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      const auto want = here_->values(b);
      EXPECT_EQ(
          std::memcmp(values_[blocks_[b].tensor].data() + blocks_[b].offset,
                      want.data(), want.size() * sizeof(float)),
          0);
    }
  }

  testing::EmulatedDevice device_;
  const std::unique_ptr<Stream> stream_ = *device_.MakeStream();
  DeviceMemory memory_;
  size_t floats_ = 0;
  std::vector<DeviceUpdater::Block> blocks_;
  std::vector<UpdateNumbers> sums_;
  std::vector<UpdateNumbers> values_;
  DenseUpdater::Options options_;
  std::optional<DenseUpdater> here_;
  std::unique_ptr<DeviceUpdater> there_;
  bool takes_values_ = false;
  absl::Status awaited_;  // of the latest step
};

TEST_F(DeviceUpdaterTest, UpdatesHaveTheBitsOfThisMachineByOneLaunchEach) {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdam,
        OptimizerKind::kAdamW}) {
    SCOPED_TRACE(static_cast<int>(kind));
    Make(kind);
    for (int64_t clock = 0; clock < 3; ++clock) {
      Step(clock, std::vector<uint64_t>(blocks_.size(), 16 + clock));
    }
    EXPECT_EQ(there_->launches(), 3);
    ExpectTheSame();
    // The values that a step computes with.
    there_->ShowValues();
    UpdateNumbers shown(floats_);
    stream_->CopyToHost(shown.data(), memory_.data(), floats_ * sizeof(float));
    ASSERT_EQ(stream_->Synchronize(), absl::OkStatus());
    EXPECT_EQ(std::memcmp(shown.data(), values_[0].data(),
                          values_[0].size() * sizeof(float)),
              0);
  }
}

// A block that is left out, or whose samples are others, has a step of its own
// from then on.
TEST_F(DeviceUpdaterTest, BlocksHaveStepsOfTheirOwn) {
  Make(OptimizerKind::kAdam);
  Step(0, {16, 0, 16, 16});
  EXPECT_EQ(there_->launches(), 2);
  ExpectTheSame();
  Step(1, {16, 16, 8, 8});
  EXPECT_EQ(there_->launches(), 5);
  ExpectTheSame();
  Step(2, {0, 0, 0, 4});  // the running mean alone
  EXPECT_EQ(there_->launches(), 6);
  ExpectTheSame();
}

TEST_F(DeviceUpdaterTest, TakesTheMemoryThatIsPlanned) {
  Make(OptimizerKind::kSgd);  // the stream has its marks then
  there_.reset();
  const uint64_t before = device_.FreeBytes();
  Make(OptimizerKind::kAdam);
  EXPECT_EQ(before - device_.FreeBytes(),
            DeviceUpdater::DeviceBytes(options_.optimizer, kCounts, blocks_));
}

TEST_F(DeviceUpdaterTest, MemoryThatTheDeviceHasNotIsRefused) {
  testing::EmulatedDevice small(1, kMemoryKeptFreeBytes + 1000);
  const auto stream = *small.MakeStream();
  DeviceUpdater updater(OptimizerParams(), {.stream = stream.get()}, kCounts,
                        blocks_);
  const absl::Status refused = updater.Allocate();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(
      std::string(refused.message()),
      ::testing::HasSubstr("values and the optimizer's state on emulated"));
}

TEST_F(DeviceUpdaterTest, LeavesTheValuesOfStepsToTheHostAtItsEnd) {
  Make(OptimizerKind::kSgd);
  there_->TakeValues(true);
  EXPECT_TRUE(takes_values_);
  there_.reset();
  EXPECT_FALSE(takes_values_);
}

TEST_F(DeviceUpdaterTest, ADeviceThatFailsIsSaid) {
  std::vector<absl::Span<float>> to;
  for (UpdateNumbers& values : values_) to.push_back(absl::MakeSpan(values));
  Make(OptimizerKind::kSgd);
  const int64_t before = device_.launches();
  Step(0, std::vector<uint64_t>(blocks_.size(), 16));
  // The next step's last launch is its update.
  device_.FailAt(2 * device_.launches() - before);
  Step(1, std::vector<uint64_t>(blocks_.size(), 16));
  const absl::Status failed = there_->ReadValues(to);
  EXPECT_TRUE(absl::IsInternal(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()),
              ::testing::HasSubstr("running: the update"));
}

}  // namespace
}  // namespace syncline::worker
