// Goal: the norm is of what the servers clip, and an element that is not finite
// is named. Method: small gradients with known squares, values at the edge of a
// narrow type.

#include "worker/exchange/gradient_norm.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class GradientNormTest : public ::testing::Test {
 protected:
  absl::StatusOr<double> Norm(OnNonFinite policy,
                              ElementType type = ElementType::kFloat32) {
    return SquaredNorm({.map = map_,
                        .gradients = spans_,
                        .names = names_,
                        .running_means = running_means_,
                        .rows = {},
                        .wire_type = type,
                        .clock = 8},
                       policy);
  }

  std::vector<float> weight_ = {1, 2, 3};
  std::vector<float> mean_ = {10};
  std::vector<absl::Span<const float>> spans_ = {weight_, mean_};
  std::vector<std::string> names_;
  std::vector<bool> running_means_;
  const BlockMap map_ = *BlockMap::Create({{"weight", 3}, {"mean", 1}}, 1);
};

TEST_F(GradientNormTest, SquaresOfAllTensorsAreAddedUp) {
  EXPECT_EQ(*Norm(OnNonFinite::kFailJob), 114);
}

TEST_F(GradientNormTest, RunningMeansAreNoPartOfIt) {
  running_means_ = {false, true};
  EXPECT_EQ(*Norm(OnNonFinite::kFailJob), 14);
}

TEST_F(GradientNormTest, TheFirstElementThatIsNotFiniteIsNamed) {
  weight_[1] = std::nanf("");
  weight_[2] = kInfinity;
  EXPECT_THAT(std::string(Norm(OnNonFinite::kFailJob).status().message()),
              AllOf(HasSubstr("clock 8"), HasSubstr("element 1 of tensor 0")));
  names_ = {"layer/w", "mean"};
  EXPECT_THAT(std::string(Norm(OnNonFinite::kFailJob).status().message()),
              HasSubstr("element 1 of layer/w"));
}

TEST_F(GradientNormTest, ARunningMeanThatIsNotFiniteFailsTheJobToo) {
  running_means_ = {false, true};
  mean_[0] = kInfinity;
  EXPECT_EQ(Norm(OnNonFinite::kFailJob).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(GradientNormTest, BlocksThatTheServersDropDoNotCount) {
  weight_[1] = kInfinity;
  EXPECT_EQ(*Norm(OnNonFinite::kDropBlock), 100);
}

TEST_F(GradientNormTest, AValueMustBeFiniteAfterItIsNarrowed) {
  weight_[0] = 1e5f;  // float16 ends at 65504
  EXPECT_TRUE(Norm(OnNonFinite::kFailJob, ElementType::kBfloat16).ok());
  EXPECT_FALSE(Norm(OnNonFinite::kFailJob, ElementType::kFloat16).ok());
}

}  // namespace
}  // namespace syncline::worker
