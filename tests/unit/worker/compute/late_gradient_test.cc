// Goal: a late gradient is scaled by how late it is, or corrected for what the
// values have changed since, as the papers have it. Method: small tensors, the
// formulas in double precision; on a quadratic loss the corrected gradient with
// lambda 1 / g is that of the later values.

#include "worker/compute/late_gradient.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

struct Tensors {
  std::vector<float> value = {1, 2, 3};
  std::vector<float> gradient = {8, -4, 0};
  std::vector<float> mean = {5};
  std::vector<float> batch_mean = {40};

  std::vector<LateGradient::Tensor> all() {
    return {{absl::MakeSpan(value), absl::MakeSpan(gradient), false},
            {absl::MakeSpan(mean), absl::MakeSpan(batch_mean), true}};
  }
};

TEST(LateGradientTest, IsScaledByHowLateItIs) {
  Tensors tensors;
  LateGradient late(std::nullopt, tensors.all());
  EXPECT_OK(late.MakeResident(nullptr));
  late.BeginStep();
  EXPECT_FALSE(late.is_kept());
  late.Keep(10, 8, 2.5);
  ASSERT_TRUE(late.is_kept());
  const LateGradient::Late taken = late.Take(13);
  EXPECT_EQ(taken.clock, 10);
  EXPECT_EQ(taken.samples, 8u);
  EXPECT_EQ(taken.loss_sum, 2.5);
  EXPECT_FALSE(late.is_kept());
  EXPECT_THAT(tensors.gradient, ElementsAre(2, -1, 0)) << "a quarter";
  EXPECT_THAT(tensors.batch_mean, ElementsAre(40)) << "not a gradient";
}

TEST(LateGradientTest, IsCorrectedForWhatHasChanged) {
  Tensors tensors;
  LateGradient late(0.5f, tensors.all());
  EXPECT_OK(late.MakeResident(nullptr));
  late.BeginStep();
  tensors.value = {1.5, 1, 7};
  tensors.mean = {6};
  late.Keep(10, 4, 0);
  late.Take(11);
  // 8 + 0.5 / 4 * 64 * 0.5, -4 + 0.5 / 4 * 16 * -1.
  EXPECT_THAT(tensors.gradient, ElementsAre(12, -6, 0));
  EXPECT_THAT(tensors.batch_mean, ElementsAre(40));
}

// With the mean loss (w - a)^2 / 2 the gradient is w - a and the second
// derivative 1, which lambda * g * g is where lambda is 1 / g^2.
TEST(LateGradientTest, CorrectedItIsThatOfTheLaterValues) {
  const float a = 3;
  std::vector<float> value = {5};
  std::vector<float> gradient = {(value[0] - a) * 16};  // of 16 samples
  LateGradient late(1 / ((5 - a) * (5 - a)),
                    {{absl::MakeSpan(value), absl::MakeSpan(gradient), false}});
  late.BeginStep();
  value[0] = 4.25f;
  late.Keep(0, 16, 0);
  late.Take(1);
  EXPECT_THAT(gradient, ElementsAre(FloatNear((4.25f - a) * 16, 1e-4f)));
}

TEST(LateGradientTest, WhatHasNotChangedIsNotCorrected) {
  std::vector<float> value = {1};
  std::vector<float> gradient = {1e30f};  // whose square is infinite
  LateGradient late(0.04f,
                    {{absl::MakeSpan(value), absl::MakeSpan(gradient), false}});
  late.BeginStep();
  late.Keep(0, 1, 0);
  late.Take(1);
  EXPECT_THAT(gradient, ElementsAre(1e30f));
}

TEST(LateGradientTest, RowsAreScaledWithIt) {
  Tensors tensors;
  LateGradient late(std::nullopt, tensors.all());
  EXPECT_FALSE(late.compensates());
  std::vector<float> one = {4, 8, -12};
  std::vector<float> other = {1};
  late.BeginStep();
  late.Keep(10, 8, 0);
  late.Take(11, {{.gradient = absl::MakeSpan(one)},
                 {.gradient = absl::Span<float>()},
                 {.gradient = absl::MakeSpan(other)}});
  EXPECT_THAT(tensors.gradient, ElementsAre(4, -2, 0));
  EXPECT_THAT(one, ElementsAre(2, 4, -6)) << "half";
  EXPECT_THAT(other, ElementsAre(0.5f));
}

TEST(LateGradientTest, RowsAreCorrectedByTheirOwnValues) {
  Tensors tensors;
  LateGradient late(0.5f, tensors.all());
  EXPECT_TRUE(late.compensates());
  std::vector<float> gradient = {8, -4, 6};
  const std::vector<float> before = {1, 2, 3};
  const std::vector<float> value = {1.5, 1, 3};
  late.BeginStep();
  late.Keep(10, 4, 0);
  late.Take(12, {{.gradient = absl::MakeSpan(gradient),
                  .before = before,
                  .value = value}});
  EXPECT_THAT(gradient, ElementsAre(12, -6, 6));
  EXPECT_THAT(tensors.gradient, ElementsAre(8, -4, 0)) << "as their values";
}

TEST(LateGradientTest, ANewStepForgetsIt) {
  Tensors tensors;
  LateGradient late(std::nullopt, tensors.all());
  late.BeginStep();
  late.Keep(1, 8, 0);
  late.BeginStep();
  EXPECT_FALSE(late.is_kept());
  late.Keep(2, 8, 0);
  late.Forget();
  EXPECT_FALSE(late.is_kept());
}

TEST(LateGradientTest, BytesAreThoseOfTheValues) {
  EXPECT_EQ(LateGradient::BytesOf({10, 100}), 440u);
}

}  // namespace
}  // namespace syncline::worker
