// Goal: both passes of LAMB compute what their header states, wherever a tensor
// is cut.
// Method: many steps against a reference in double, written from the paper;
// bitwise comparison of cut and whole ranges.

#include "kernels/optimizer/lamb.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

std::vector<float> RandomFloats(Random* random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random->Normal());
  return values;
}

OptimizerParams Params(float weight_decay, float clip_value) {
  return {.kind = OptimizerKind::kLamb,
          .epsilon = 1e-6f,
          .weight_decay = weight_decay,
          .clip_value = clip_value};
}

// A tensor, stepped through ranges that end at `cuts`.
struct Tensor {
  explicit Tensor(std::vector<float> values)
      : value(std::move(values)), first(value.size()), second(value.size()) {}
  std::vector<float> value, first, second;
  LambNorms norms;

  void Apply(const OptimizerParams& params, const OptimizerStep& step,
             const std::vector<float>& gradient, std::vector<size_t> cuts) {
    cuts.push_back(value.size());
    norms = {};
    size_t begin = 0;
    for (const size_t end : cuts) {
      AdvanceLamb(params, step, gradient.data() + begin, value.data() + begin,
                  first.data() + begin, second.data() + begin, end - begin,
                  &norms);
      begin = end;
    }
    begin = 0;
    for (const size_t end : cuts) {
      ApplyLamb(params, step, LambTrustRatio(norms), value.data() + begin,
                first.data() + begin, second.data() + begin, end - begin);
      begin = end;
    }
  }
};

struct Reference {
  explicit Reference(const std::vector<float>& values)
      : value(values.begin(), values.end()),
        first(values.size()),
        second(values.size()) {}
  std::vector<double> value, first, second;

  void Step(const OptimizerParams& p, const OptimizerStep& s,
            const std::vector<float>& gradient) {
    std::vector<double> update(value.size());
    double values = 0;
    double updates = 0;
    for (size_t i = 0; i < value.size(); ++i) {
      double g = double{gradient[i]} * s.gradient_scale;
      if (p.clip_value > 0) {
        g = std::clamp<double>(g, -p.clip_value, p.clip_value);
      }
      first[i] = p.beta1 * first[i] + (1 - double{p.beta1}) * g;
      second[i] = p.beta2 * second[i] + (1 - double{p.beta2}) * g * g;
      update[i] = first[i] / (1 - std::pow(p.beta1, s.t)) /
                      (std::sqrt(second[i] / (1 - std::pow(p.beta2, s.t))) +
                       p.epsilon) +
                  p.weight_decay * value[i];
      values += value[i] * value[i];
      updates += update[i] * update[i];
    }
    const double ratio =
        values > 0 && updates > 0 ? std::sqrt(values / updates) : 1;
    for (size_t i = 0; i < value.size(); ++i) {
      value[i] -= s.learning_rate * ratio * update[i];
    }
  }
};

TEST(LambTest, FollowsTheReference) {
  constexpr size_t kCount = 1037;  // more than a piece, of no vector's length
  for (const OptimizerParams& params :
       {Params(0, 0), Params(0.1f, 0), Params(0.01f, 0.1f)}) {
    Random random(7);
    Tensor tensor(RandomFloats(&random, kCount));
    Reference reference(tensor.value);
    for (int t = 1; t <= 50; ++t) {
      const std::vector<float> gradient = RandomFloats(&random, kCount);
      const OptimizerStep step = {
          .learning_rate = 0.02f, .gradient_scale = 0.25f, .t = t};
      tensor.Apply(params, step, gradient, {});
      reference.Step(params, step, gradient);
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_NEAR(tensor.value[i], reference.value[i], 5e-5)
            << "t=" << t << " i=" << i;
      }
    }
  }
}

TEST(LambTest, CuttingATensorDoesNotChangeABit) {
  constexpr size_t kCount = 3001;
  const OptimizerParams params = Params(0.05f, 0);
  Random random(11);
  Tensor whole(RandomFloats(&random, kCount));
  Tensor cut = whole;
  for (int t = 1; t <= 10; ++t) {
    const std::vector<float> gradient = RandomFloats(&random, kCount);
    const OptimizerStep step = {
        .learning_rate = 0.01f, .gradient_scale = 1.0f / 96, .t = t};
    whole.Apply(params, step, gradient, {});
    std::vector<size_t> cuts;
    for (size_t at = 0; at < kCount; at += 1 + random.Below(700)) {
      cuts.push_back(at);
    }
    cut.Apply(params, step, gradient, cuts);
    EXPECT_EQ(whole.norms.value, cut.norms.value);
    EXPECT_EQ(whole.norms.update, cut.norms.update);
  }
  EXPECT_EQ(whole.value, cut.value);
  EXPECT_EQ(whole.first, cut.first);
  EXPECT_EQ(whole.second, cut.second);
}

// Twice the rate moves twice as far, and a step's length is the rate times the
// values' norm, whatever the gradient's.
TEST(LambTest, AStepIsAsLongAsTheTensorAndTheRateSay) {
  for (const float scale : {1e-4f, 1.0f, 1e4f}) {
    Random random(3);
    Tensor tensor(RandomFloats(&random, 500));
    const std::vector<float> before = tensor.value;
    std::vector<float> gradient = RandomFloats(&random, 500);
    for (float& g : gradient) g *= scale;
    tensor.Apply(Params(0, 0), {.learning_rate = 0.25f, .t = 1}, gradient, {});
    double length = 0;
    double moved = 0;
    for (size_t i = 0; i < 500; ++i) {
      length += double{before[i]} * before[i];
      moved += std::pow(double{tensor.value[i]} - before[i], 2);
    }
    EXPECT_NEAR(std::sqrt(moved / length), 0.25, 1e-5);
  }
}

TEST(LambTest, ATensorOfZerosMovesAsWithAdam) {
  Tensor tensor(std::vector<float>(8));
  tensor.Apply(Params(0, 0), {.learning_rate = 0.1f, .t = 1},
               std::vector<float>(8, 5), {});
  EXPECT_NEAR(tensor.value[7], -0.1, 1e-6);
  EXPECT_EQ(LambTrustRatio({0, 3}), 1);
  EXPECT_EQ(LambTrustRatio({3, 0}), 1);
  EXPECT_EQ(LambTrustRatio({9, 4}), 1.5);
  EXPECT_TRUE(std::isnan(
      LambTrustRatio({1, std::numeric_limits<double>::quiet_NaN()})));
}

}  // namespace
}  // namespace syncline
