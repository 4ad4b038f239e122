// Goal: local steps on a GPU are those of this machine's processors, bit for
// bit, but for a norm to clip by; a gradient that is not finite is named alike;
// and the memory that they take is what was planned. Method: rounds of both, on
// an emulated device.

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "worker/compute/local_updater.h"

namespace syncline::worker {
namespace {

using Numbers = std::vector<float>;

// Tensors, the third of which is a running mean, here and on a device.
class LocalUpdaterCudaTest : public ::testing::Test {
 protected:
  static constexpr int64_t kCounts[] = {kTensorChunkMax + 5, 7, 300};
  static constexpr int64_t kLine = kCacheLineBytes / sizeof(float);

  void SetUp() override {
    int64_t end = 0;
    for (const int64_t count : kCounts) {
      offsets_.push_back(end);
      end += (count + kLine - 1) / kLine * kLine;
    }
    memory_ = *device_.Allocate(2 * end * sizeof(float));
    stream_->Clear(memory_.data(), memory_.bytes());
    on_device_ = {.stream = stream_.get(),
                  .values = memory_.as<float>(),
                  .gradients = memory_.as<float>() + end};
    for (const int64_t count : kCounts) {
      gradients_.emplace_back(count, 0.0f);
      for (auto* values : {&here_values_, &there_values_}) {
        Random random(3);
        values->emplace_back(count);
        for (float& v : values->back()) v = static_cast<float>(random.Normal());
      }
    }
  }
  std::unique_ptr<LocalUpdater> Make(OptimizerKind kind, double clip_norm,
                                     bool on_device) {
    OptimizerParams optimizer;
    optimizer.kind = kind;
    optimizer.weight_decay = 0.01f;
    StepRule rule;
    rule.learning_rate.base = 0.1;
    rule.clip_norm = clip_norm;
    std::vector<LocalUpdater::Tensor> tensors;
    std::vector<Numbers>& values = on_device ? there_values_ : here_values_;
    for (size_t i = 0; i < values.size(); ++i) {
      tensors.push_back({.name = absl::StrCat("w", i),
                         .value = absl::MakeSpan(values[i]),
                         .gradient = gradients_[i]});
    }
    tensors[2].momentum = 0.75f;
    auto updater = std::make_unique<LocalUpdater>(
        optimizer, rule, std::move(tensors),
        on_device ? on_device_ : LocalUpdater::OnDevice());
    EXPECT_EQ(updater->MakeResident(nullptr), absl::OkStatus());
    return updater;
  }
  // For both.
  void DrawGradients(uint64_t seed) {
    Random random(seed);
    for (Numbers& gradient : gradients_) {
      for (float& g : gradient) g = static_cast<float>(random.Normal());
    }
    CopyGradients();
  }
  void CopyGradients() {
    for (size_t i = 0; i < gradients_.size(); ++i) {
      stream_->CopyToDevice(
          const_cast<float*>(on_device_.gradients) + offsets_[i],
          gradients_[i].data(), gradients_[i].size() * sizeof(float));
    }
  }

  testing::EmulatedDevice device_;
  const std::unique_ptr<Stream> stream_ = *device_.MakeStream();
  DeviceMemory memory_;
  LocalUpdater::OnDevice on_device_;
  std::vector<int64_t> offsets_;
  std::vector<Numbers> gradients_;
  std::vector<Numbers> here_values_;
  std::vector<Numbers> there_values_;
};

TEST_F(LocalUpdaterCudaTest, RoundsAreThoseOfThisMachine) {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdam,
        OptimizerKind::kAdamW}) {
    for (const double clip_norm : {0.0, 1.0}) {
      SCOPED_TRACE(
          absl::StrCat(static_cast<int>(kind), " clipped at ", clip_norm));
      ASSERT_TRUE(LocalUpdater::RunsOn(device_, kind));
      const auto here = Make(kind, clip_norm, /*on_device=*/false);
      const auto there = Make(kind, clip_norm, /*on_device=*/true);
      for (int64_t round = 0; round < 2; ++round) {
        here->Begin();
        there->Begin();
        for (uint64_t k = 0; k < 2; ++k) {
          DrawGradients(10 + k);
          ASSERT_EQ(here->Step(round, 8 + k), absl::OkStatus());
          ASSERT_EQ(there->Step(round, 8 + k), absl::OkStatus());
        }
        ASSERT_EQ(here->End(17), absl::OkStatus());
        ASSERT_EQ(there->End(17), absl::OkStatus());
        for (size_t i = 0; i < gradients_.size(); ++i) {
          const auto want = here->change(i);
          const auto got = there->change(i);
          for (size_t e = 0; e < want.size(); ++e) {
            const double tolerance =
                clip_norm > 0 ? 1e-5 * (1 + std::fabs(want[e])) : 0;
            ASSERT_NEAR(got[e], want[e], tolerance) << i << " " << e;
          }
        }
        // Both begin from the ps' values again.
        there_values_ = here_values_;
      }
    }
  }
}

TEST_F(LocalUpdaterCudaTest, AGradientThatIsNotFiniteIsNamedAlike) {
  for (const auto& [tensor, element] :
       {std::pair<size_t, size_t>{0, kTensorChunkMax + 2}, {1, 6}, {2, 299}}) {
    const auto here = Make(OptimizerKind::kSgd, 0, /*on_device=*/false);
    const auto there = Make(OptimizerKind::kSgd, 0, /*on_device=*/true);
    DrawGradients(1);
    gradients_[tensor][element] = -std::numeric_limits<float>::infinity();
    gradients_[2][299] = -std::numeric_limits<float>::infinity();
    CopyGradients();
    here->Begin();
    there->Begin();
    const absl::Status want = here->Step(0, 8);
    EXPECT_EQ(want.message(),
              absl::StrCat("element ", element, " of the gradient of 'w",
                           tensor, "' is -inf"));
    EXPECT_EQ(there->Step(0, 8), want);
  }
}

TEST_F(LocalUpdaterCudaTest, TakesTheMemoryThatIsPlanned) {
  const uint64_t before = device_.FreeBytes();
  const auto updater = Make(OptimizerKind::kAdam, 0, /*on_device=*/true);
  OptimizerParams adam;
  adam.kind = OptimizerKind::kAdam;
  const LocalUpdater::Memory planned =
      LocalUpdater::MemoryOf(adam, kCounts, /*on_device=*/true);
  EXPECT_EQ(before - device_.FreeBytes(), planned.device_bytes);
  EXPECT_EQ(planned.slot_bytes, 0u);
  EXPECT_EQ(
      LocalUpdater::MemoryOf(adam, kCounts, /*on_device=*/false).device_bytes,
      0u);
}

TEST_F(LocalUpdaterCudaTest, ADeviceThatFailsIsSaid) {
  const auto updater = Make(OptimizerKind::kSgd, 0, /*on_device=*/true);
  DrawGradients(1);
  // Marks of four, and launches of the last three.
  device_.FailAt(device_.launches() + 7);
  updater->Begin();
  ASSERT_EQ(updater->Step(0, 8), absl::OkStatus());
  const absl::Status failed = updater->End(8);
  EXPECT_TRUE(absl::IsInternal(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()),
              ::testing::HasSubstr("running: the change of a round"));
}

}  // namespace
}  // namespace syncline::worker
