// Goal: Dropout drops the stated share, scales the rest, lets gradients through
// where it let values through, and is repeatable by seed. Method: properties of
// its output over many elements; ratio 0 and inference against the identity.

#include <cmath>
#include <limits>

#include "common/base/random.h"
#include "kernels/device/dropout_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/elementwise/philox.h"
#include "tests/testing/arrays.h"
#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

constexpr int64_t kCount = 100003;  // no whole block of Philox

class DropoutTest : public ::testing::Test {
 protected:
  DropoutTest() {
    node_.name = "drop";
    node_.op_type = "Dropout";
    node_.since_version = 13;
    spec_.node = &node_;
    spec_.training = true;
    spec_.wants_gradient = {true};
    spec_.inputs = {{.present = true, .dims = {kCount}},
                    {.present = true, .dims = {}, .constant = &ratio_}};
    spec_.outputs = {
        {.present = true, .dims = {kCount}},
        {.present = true, .dtype = DType::kBool, .dims = {kCount}}};
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = 1.0f + i;
  }

  void SetTrainingMode(bool mode) {
    training_mode_ = mode;
    spec_.inputs.push_back({.present = true,
                            .dtype = DType::kBool,
                            .dims = {},
                            .constant = &training_mode_});
  }

  void Create() {
    auto op = CreateOp(spec_);
    ASSERT_TRUE(op.ok()) << op.status();
    op_ = *std::move(op);
    workspace_.assign(op_->traits().workspace_bytes, 0);
  }

  void Forward(uint64_t seed) {
    ASSERT_TRUE(testing::RunForward(*op_, Tensors(seed)).ok());
  }

  void Backward() {
    const std::vector<const float*> dy = {x_.data()};
    const std::vector<float*> dx = {dx_.data()};
    ASSERT_TRUE(
        testing::RunBackward(*op_, Tensors(0),
                             {.outputs = dy, .inputs = dx, .accumulates = {}})
            .ok());
  }

  // Elements from `first` on of the mask of ratio 0.3.
  std::vector<uint8_t> Drawn(int64_t first, int64_t count) {
    std::vector<uint8_t> mask(count);
    const Device& device = *spec_.device;
    const std::unique_ptr<Stream> stream = *spec_.device->MakeStream();
    const StepNumbers numbers = {.seed = 7, .first_sample = first};
    device.kernels().dropout->draw(*stream, count,
                                   {.numbers = &numbers, .node = 3, .seed = 5},
                                   0.3, mask.data());
    return mask;
  }

  Op::Tensors Tensors(uint64_t seed) {
    inputs_ = {x_.data(), &ratio_, &training_mode_};
    outputs_ = {y_.data(), mask_.data()};
    numbers_ = {.seed = seed};
    return {.inputs = inputs_,
            .outputs = outputs_,
            .workspace = workspace_.data(),
            .numbers = &numbers_};
  }

  float ratio_ = 0.3f;
  bool training_mode_ = true;
  Node node_;
  OpSpec spec_ = testing::HostSpec();
  std::unique_ptr<Op> op_;
  std::vector<float> x_ = std::vector<float>(kCount);
  std::vector<float> y_ = std::vector<float>(kCount);
  std::vector<float> dx_ = std::vector<float>(kCount);
  std::vector<uint8_t> mask_ = std::vector<uint8_t>(kCount, 7);
  std::vector<char> workspace_;
  StepNumbers numbers_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

TEST_F(DropoutTest, DropsTheShareAndScalesTheRest) {
  for (float ratio : {0.1f, 0.5f, 0.9f}) {
    ratio_ = ratio;
    Create();
    Forward(1);
    int64_t kept = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(mask_[i] == 0 || mask_[i] == 1);
      kept += mask_[i];
      ASSERT_FLOAT_EQ(y_[i], mask_[i] ? x_[i] / (1 - ratio) : 0.0f);
    }
    // Six standard deviations of a binomial count.
    const double expected = kCount * (1.0 - ratio);
    EXPECT_NEAR(kept, expected, 6 * std::sqrt(expected * ratio));
  }
}

TEST_F(DropoutTest, GradientsPassWhereValuesPassed) {
  Create();
  Forward(1);
  Backward();
  EXPECT_EQ(dx_, y_);  // dy is x
}

TEST_F(DropoutTest, SameSeedSameMaskAndOtherSeedOtherMask) {
  Create();
  Forward(1);
  const std::vector<uint8_t> first = mask_;
  Forward(2);
  EXPECT_NE(mask_, first);
  Forward(1);
  EXPECT_EQ(mask_, first);
  node_.attributes["seed"] = int64_t{5};
  Create();
  Forward(1);
  EXPECT_NE(mask_, first);
}

TEST_F(DropoutTest, AMaskIsTheSameInParts) {
  const std::vector<uint8_t> whole = Drawn(0, 1000);
  for (const int64_t first : {1, 3, 4, 63, 64, 65, 500}) {
    const std::vector<uint8_t> part = Drawn(first, 300);
    EXPECT_EQ(part, std::vector<uint8_t>(whole.begin() + first,
                                         whole.begin() + first + 300))
        << first;
  }
}

TEST_F(DropoutTest, AMaskIsThatOfPhilox) {
  constexpr int64_t kFirst = (int64_t{1} << 34) - 6;  // over 32 bits of blocks
  const std::vector<uint8_t> mask = Drawn(kFirst, 200);
  for (int64_t i = 0; i < 200; ++i) {
    const uint64_t word = kFirst + i;
    const PhiloxBlock block =
        PhiloxBlockOf(SeedFor(SeedFor(7, 3), 5), word / 4);
    ASSERT_EQ(mask[i], block.words[word % 4] >= 0.3 * 0x1p32) << i;
  }
}

TEST_F(DropoutTest, NeighboursAreIndependent) {
  ratio_ = 0.5f;
  Create();
  Forward(1);
  for (int64_t distance : {1, 2, 3}) {
    int64_t both = 0;
    for (int64_t i = 0; i + distance < kCount; ++i) {
      both += mask_[i] & mask_[i + distance];
    }
    EXPECT_NEAR(both, kCount / 4.0, 6 * std::sqrt(kCount * 3.0 / 16));
  }
}

TEST_F(DropoutTest, DroppedInfinityIsZero) {
  Create();
  x_.assign(kCount, std::numeric_limits<float>::infinity());
  Forward(1);
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(y_[i], mask_[i] ? x_[i] : 0.0f);
  }
}

// Everything that does not drop is the identity with a mask of ones.
void ExpectIdentity(const std::vector<float>& x, const std::vector<float>& y,
                    const std::vector<uint8_t>& mask) {
  EXPECT_EQ(x, y);
  EXPECT_EQ(mask, std::vector<uint8_t>(mask.size(), 1));
}

TEST_F(DropoutTest, InferenceKeepsAll) {
  spec_.training = false;
  Create();
  Forward(1);
  ExpectIdentity(x_, y_, mask_);
}

TEST_F(DropoutTest, RatioZeroKeepsAll) {
  ratio_ = 0;
  Create();
  Forward(1);
  ExpectIdentity(x_, y_, mask_);
  Backward();
  EXPECT_EQ(dx_, x_);
}

TEST_F(DropoutTest, TrainingModeFalseKeepsAll) {
  SetTrainingMode(false);
  Create();
  Forward(1);
  ExpectIdentity(x_, y_, mask_);
}

TEST_F(DropoutTest, TrainingModeTrueDrops) {
  SetTrainingMode(true);
  Create();
  Forward(1);
  EXPECT_NE(y_, x_);
}

TEST_F(DropoutTest, RatioAsAnAttribute) {
  node_.since_version = 10;
  node_.attributes["ratio"] = 0.75f;
  spec_.inputs.resize(1);
  Create();
  Forward(1);
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(y_[i], mask_[i] ? 4 * x_[i] : 0.0f);
  }
}

TEST_F(DropoutTest, BadRatiosAreRefused) {
  for (float ratio : {-0.1f, 1.0f, std::nanf("")}) {
    ratio_ = ratio;
    const auto op = CreateOp(spec_);
    ASSERT_FALSE(op.ok());
    EXPECT_EQ(op.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(op.status().message().find("must be in [0, 1)"),
              absl::string_view::npos)
        << op.status();
  }
  spec_.inputs[1].constant = nullptr;
  EXPECT_EQ(CreateOp(spec_).status().message(),
            "node \"drop\" (Dropout): ratio must be a float32 constant");
}

}  // namespace
}  // namespace syncline::worker
