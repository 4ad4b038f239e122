// Goal: the optimizers compute what their header states, whatever the range and
// its cutting.
// Method: many steps against plain references in double; the ONNX training
// operators' own test vectors; bitwise comparison of cut and whole ranges.

#include "kernels/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

// One element in double, written from the papers, without any sharing of code.
struct Reference {
  double value = 0;
  double a = 0;
  double b = 0;
  double c = 0;

  void Step(const OptimizerParams& p, const OptimizerStep& s, double gradient) {
    double g = gradient * s.gradient_scale;
    if (p.clip_value > 0) {
      g = std::clamp<double>(g, -p.clip_value, p.clip_value);
    }
    const double rate = s.learning_rate;
    if (p.kind == OptimizerKind::kAdamW) {
      value *= 1 - rate * p.weight_decay;
    } else {
      g += p.weight_decay * value;
    }
    switch (p.kind) {
      case OptimizerKind::kSgd:
        value -= rate * g;
        break;
      case OptimizerKind::kMomentum:
        a = p.momentum * a + g;
        value -= rate * a;
        break;
      case OptimizerKind::kNesterov:
        a = p.momentum * a + g;
        value -= rate * (g + p.momentum * a);
        break;
      case OptimizerKind::kAdagrad:
        a += g * g;
        value -= rate * g / (std::sqrt(a) + p.epsilon);
        break;
      case OptimizerKind::kAdam:
      case OptimizerKind::kAdamW:
        if (s.frozen_t > 0) {
          const double root =
              std::sqrt(b / (1 - std::pow(p.beta2, s.frozen_t))) + p.epsilon;
          a = g * root;
          value -= rate * g / (1 - std::pow(p.beta1, s.t));
          break;
        }
        a = p.beta1 * a + (1 - double{p.beta1}) * g;
        b = p.beta2 * b + (1 - double{p.beta2}) * g * g;
        value -= rate * (a / (1 - std::pow(p.beta1, s.t))) /
                 (std::sqrt(b / (1 - std::pow(p.beta2, s.t))) + p.epsilon);
        break;
      case OptimizerKind::kRmsProp: {
        a = p.decay * a + (1 - double{p.decay}) * g * g;
        b = p.decay * b + (1 - double{p.decay}) * g;
        const double spread = p.centered ? a - b * b : a;
        c = p.momentum * c + g / (std::sqrt(spread) + p.epsilon);
        value -= rate * c;
        break;
      }
      case OptimizerKind::kFtrl: {
        const double before = std::pow(a, -p.learning_rate_power);
        a += g * g;
        const double after = std::pow(a, -p.learning_rate_power);
        b += g - (after - before) / rate * value;
        value = std::abs(b) <= p.l1
                    ? 0
                    : (std::copysign(p.l1, b) - b) / (after / rate + p.l2);
        break;
      }
      case OptimizerKind::kLamb:
      case OptimizerKind::kRowWiseAdagrad:
        FAIL() << "has a test of its own";
    }
  }
};

// Values and state of a range.
struct State {
  State(const OptimizerParams& params, size_t count) : value(count) {
    for (int slot = 0; slot < OptimizerSlots(params); ++slot) {
      slots.emplace_back(count, InitialSlotValue(params, slot));
    }
  }
  std::vector<float> value;
  std::vector<std::vector<float>> slots;

  void Apply(const OptimizerParams& params, const OptimizerStep& step,
             const std::vector<float>& gradient, size_t begin, size_t end) {
    std::vector<float*> at;
    for (std::vector<float>& slot : slots) at.push_back(slot.data() + begin);
    ApplyOptimizer(params, step, gradient.data() + begin, value.data() + begin,
                   at.data(), end - begin);
  }
};

std::vector<float> RandomFloats(Random* random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random->Normal());
  return values;
}

OptimizerParams Params(OptimizerKind kind) {
  OptimizerParams params;
  params.kind = kind;
  params.epsilon = 1e-6f;
  if (kind == OptimizerKind::kAdagrad) params.initial_accumulator = 0.1f;
  if (kind == OptimizerKind::kFtrl) {
    params.initial_accumulator = 0.1f;
    params.l1 = 0.2f;
    params.l2 = 0.5f;
  }
  return params;
}

OptimizerParams RmsProp(bool centered, float momentum) {
  OptimizerParams params = Params(OptimizerKind::kRmsProp);
  params.decay = 0.9f;
  params.centered = centered;
  params.momentum = momentum;
  return params;
}

// Every loop that there is.
std::vector<OptimizerParams> All() {
  return {Params(OptimizerKind::kSgd),
          Params(OptimizerKind::kMomentum),
          Params(OptimizerKind::kNesterov),
          Params(OptimizerKind::kAdagrad),
          Params(OptimizerKind::kAdam),
          Params(OptimizerKind::kAdamW),
          RmsProp(false, 0),
          RmsProp(true, 0),
          RmsProp(false, 0.8f),
          RmsProp(true, 0.8f),
          Params(OptimizerKind::kFtrl)};
}

std::string NameOf(const OptimizerParams& params) {
  return absl::StrCat("kind=", static_cast<int>(params.kind),
                      " centered=", params.centered,
                      " momentum=", params.momentum);
}

void ExpectFollowsReference(const OptimizerParams& params,
                            int64_t frozen_t = 0) {
  SCOPED_TRACE(NameOf(params));
  constexpr size_t kCount = 37;  // not a multiple of any vector
  Random random(7);
  State state(params, kCount);
  state.value = RandomFloats(&random, kCount);
  std::vector<Reference> references(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    references[i].value = state.value[i];
    references[i].a = state.slots.empty() ? 0 : state.slots[0][i];
  }
  for (int t = 1; t <= 50; ++t) {
    const std::vector<float> gradient = RandomFloats(&random, kCount);
    const OptimizerStep step = {.learning_rate = 0.05f,
                                .gradient_scale = 0.25f,
                                .t = t,
                                .frozen_t = t > frozen_t ? frozen_t : 0};
    state.Apply(params, step, gradient, 0, kCount);
    for (size_t i = 0; i < kCount; ++i) {
      references[i].Step(params, step, gradient[i]);
      ASSERT_NEAR(state.value[i], references[i].value, 2e-5)
          << "t=" << t << " i=" << i;
    }
  }
}

TEST(OptimizerTest, FollowsTheReference) {
  for (const OptimizerParams& params : All()) ExpectFollowsReference(params);
}

// 1-bit Adam behind its warm-up.
TEST(OptimizerTest, AdamTakesAMomentThatIsGiven) {
  for (const OptimizerKind kind :
       {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    OptimizerParams params = Params(kind);
    if (kind == OptimizerKind::kAdamW) params.weight_decay = 0.1f;
    ExpectFollowsReference(params, /*frozen_t=*/20);
  }
  OptimizerParams params = Params(OptimizerKind::kAdam);
  params.beta2 = 0.75f;
  params.epsilon = 0;
  State state(params, 3);
  state.slots[1] = {1, 4, 9};
  state.Apply(
      params,
      {.learning_rate = 1, .gradient_scale = 0.5f, .t = 9, .frozen_t = 1},
      {2, 4, 6}, 0, 3);
  // Roots are 2, 4 and 6.
  EXPECT_EQ(state.slots[0], (std::vector<float>{2, 8, 18}));
  EXPECT_EQ(state.slots[1], (std::vector<float>{1, 4, 9})) << "it changed";
}

// What a worker sends of 1-bit Adam.
TEST(OptimizerTest, AGradientCountsNoMoreThanInAdam) {
  OptimizerParams params = Params(OptimizerKind::kAdam);
  params.beta1 = 0.5f;
  params.beta2 = 0.75f;
  params.epsilon = 0.125f;
  const FrozenAdam adam(params, 1, /*workers=*/1);
  EXPECT_EQ(adam.Root(4), 4 + 0.125f);
  EXPECT_EQ(adam.Root(0), 0.125f);
  EXPECT_EQ(adam.NextOverRoot(3, 1, 4), 0.5f);
  EXPECT_EQ(adam.NextOverRoot(0, 7, 4), 0.875f);
  EXPECT_EQ(adam.NextOverRoot(0, 1e6, 4), 1) << "two roots at most";
  EXPECT_EQ(adam.NextOverRoot(0, -1e6, 4), -1);
  EXPECT_EQ(FrozenAdam(params, 1, /*workers=*/4).NextOverRoot(0, 1e6, 4), 2);
}

TEST(OptimizerTest, FollowsTheReferenceWithWeightDecay) {
  for (OptimizerParams params : All()) {
    params.weight_decay = 0.1f;
    ExpectFollowsReference(params);
  }
}

TEST(OptimizerTest, FollowsTheReferenceWithClipping) {
  for (OptimizerParams params : All()) {
    params.clip_value = 0.1f;  // the mean's deviation is 0.25
    params.weight_decay = 0.01f;
    ExpectFollowsReference(params);
  }
}

TEST(OptimizerTest, RmsPropsStateIsWhatItReads) {
  EXPECT_EQ(OptimizerSlots(RmsProp(false, 0)), 1);
  EXPECT_EQ(OptimizerSlots(RmsProp(true, 0)), 2);
  EXPECT_EQ(OptimizerSlots(RmsProp(false, 0.9f)), 2);
  EXPECT_EQ(OptimizerSlots(RmsProp(true, 0.9f)), 3);
}

// Its variance is 0 but for rounding, which must not make a root of it.
TEST(OptimizerTest, CenteredRmsPropTakesAConstantGradient) {
  const OptimizerParams params = RmsProp(true, 0);
  State state(params, 8);
  const std::vector<float> gradient = {1.1f,  3.3f, 1e-5f,  7e5f,
                                       -1.7f, 0.1f, -9e-3f, 12345.678f};
  for (int t = 1; t <= 2000; ++t) {
    state.Apply(params, {.learning_rate = 1e-3f, .t = t}, gradient, 0, 8);
  }
  for (const float value : state.value) EXPECT_FALSE(std::isnan(value));
}

TEST(OptimizerTest, FtrlFollowsTheReferenceAtAnyPower) {
  for (const float power : {0.0f, -0.3f, -1.0f}) {
    OptimizerParams params = Params(OptimizerKind::kFtrl);
    params.learning_rate_power = power;
    ExpectFollowsReference(params);
  }
}

TEST(OptimizerTest, FtrlKeepsValuesThatL1HoldsAtZero) {
  OptimizerParams params = {.kind = OptimizerKind::kFtrl, .l1 = 1};
  State state(params, 2);
  state.Apply(params, {.learning_rate = 0.5f}, {0.5f, -3}, 0, 2);
  EXPECT_EQ(state.value[0], 0.0f);
  EXPECT_NEAR(state.value[1], (3 - 1) / (3 / 0.5), 1e-6);
}

TEST(OptimizerTest, FtrlWaitsForALearningRate) {
  const OptimizerParams params = Params(OptimizerKind::kFtrl);
  State state(params, 2);
  state.value = {1, 2};
  state.Apply(params, {.learning_rate = 0}, {1, 1}, 0, 2);
  EXPECT_EQ(state.value, (std::vector<float>{1, 2}));
}

TEST(OptimizerTest, ClippingIsOfTheMeanAndBeforeDecay) {
  OptimizerParams params = Params(OptimizerKind::kSgd);
  params.clip_value = 1;
  params.weight_decay = 0.5f;
  State state(params, 4);
  state.value = {2, 2, 2, 2};
  // Means: 4, -4, 0.5, -0.5.
  state.Apply(params, {.learning_rate = 1, .gradient_scale = 0.5f},
              {8, -8, 1, -1}, 0, 4);
  EXPECT_EQ(state.value, (std::vector<float>{0, 2, 0.5f, 1.5f}));
}

TEST(OptimizerTest, AdamsFirstStepIsTheLearningRate) {
  const OptimizerParams params = {.kind = OptimizerKind::kAdam,
                                  .epsilon = 1e-8f};
  State state(params, 3);
  state.Apply(params, {.learning_rate = 0.1f, .t = 1}, {1e-3f, 5, -700}, 0, 3);
  EXPECT_NEAR(state.value[0], -0.1, 1e-5);
  EXPECT_NEAR(state.value[1], -0.1, 1e-6);
  EXPECT_NEAR(state.value[2], 0.1, 1e-6);
}

TEST(OptimizerTest, CuttingARangeDoesNotChangeABit) {
  constexpr size_t kCount = 1003;
  for (OptimizerParams params : All()) {
    SCOPED_TRACE(NameOf(params));
    params.weight_decay = 0.01f;
    Random random(11);
    State whole(params, kCount);
    whole.value = RandomFloats(&random, kCount);
    State cut = whole;
    for (int t = 1; t <= 20; ++t) {
      const std::vector<float> gradient = RandomFloats(&random, kCount);
      const OptimizerStep step = {
          .learning_rate = 0.01f, .gradient_scale = 1.0f / 96, .t = t};
      whole.Apply(params, step, gradient, 0, kCount);
      for (size_t begin = 0; begin < kCount;) {
        const size_t end = std::min(kCount, begin + 1 + random.Below(100));
        cut.Apply(params, step, gradient, begin, end);
        begin = end;
      }
    }
    EXPECT_EQ(std::memcmp(whole.value.data(), cut.value.data(), kCount * 4), 0);
    for (size_t slot = 0; slot < whole.slots.size(); ++slot) {
      EXPECT_EQ(std::memcmp(whole.slots[slot].data(), cut.slots[slot].data(),
                            kCount * 4),
                0);
    }
  }
}

TEST(OptimizerTest, ZeroGradientWithoutStateChangesNothing) {
  for (const OptimizerParams& with_state : All()) {
    OptimizerParams params = with_state;
    params.epsilon = 1e-10f;
    params.initial_accumulator = 0;
    params.l1 = params.l2 = 0;
    State state(params, 9);
    state.value.assign(9, 1.5f);
    state.Apply(params, {.learning_rate = 0.5f}, std::vector<float>(9), 0, 9);
    EXPECT_EQ(state.value, std::vector<float>(9, 1.5f));
  }
}

TEST(OptimizerTest, NanStaysVisibleThroughClipping) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (OptimizerParams params : All()) {
    SCOPED_TRACE(NameOf(params));
    params.clip_value = 1;
    State state(params, 9);
    std::vector<float> gradient(9, 1.0f);
    gradient[3] = kNan;
    state.Apply(params, {.learning_rate = 0.5f}, gradient, 0, 9);
    for (size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(std::isnan(state.value[i]), i == 3);
    }
  }
}

TEST(OptimizerTest, SumOfSquaresIsInElementOrder) {
  Random random(3);
  const std::vector<float> gradient = RandomFloats(&random, 1000);
  double expected = 0.5;
  for (const float g : gradient) {
    const double mean = g * 0.125f;
    expected += mean * mean;
  }
  const double whole = AddSquares(0.5, gradient.data(), 0.125f, 1000);
  const double front = AddSquares(0.5, gradient.data(), 0.125f, 333);
  const double cut = AddSquares(front, gradient.data() + 333, 0.125f, 667);
  EXPECT_EQ(whole, expected);
  EXPECT_EQ(cut, expected);
}

TEST(OptimizerTest, SumOfSquaresDoesNotOverflowFloat) {
  const float large[] = {3e30f, 4e30f};
  EXPECT_NEAR(std::sqrt(AddSquares(0, large, 1, 2)) / 5e30, 1, 1e-6);
}

TEST(OptimizerTest, ARunningMeanTakesItsShare) {
  const std::vector<float> sum = {8, -4, 0, 4, 16, 2, 6, 10, 12};
  std::vector<float> value = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  AverageIn(0.75f, /*scale=*/0.5f, sum.data(), value.data(), value.size());
  EXPECT_EQ(value, std::vector<float>(
                       {1.75, 1, 2.25, 3.5, 5.75, 4.75, 6, 7.25, 8.25}));
  AverageIn(0, 1, sum.data(), value.data(), value.size());
  EXPECT_EQ(value, sum);
}

TEST(OptimizerTest, AddToAdds) {
  std::vector<float> sum = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<float> addend = {9, 8, 7, 6, 5, 4, 3, 2, 1};
  AddTo(addend.data(), sum.data(), sum.size());
  EXPECT_EQ(sum, std::vector<float>(9, 10));
}

// --- ONNX's vectors for its training operators -------------------------------

// A serialised message of any type, by field number: enough of ONNX's format to
// read these tests without linking its library.
class Wire {
 public:
  explicit Wire(const std::string& bytes) {
    EXPECT_TRUE(fields_.ParseFromString(bytes));
  }
  std::vector<std::string> Bytes(int field) const {
    std::vector<std::string> all;
    for (int i = 0; i < fields_.field_count(); ++i) {
      if (fields_.field(i).number() != field) continue;
      all.push_back(fields_.field(i).length_delimited());
    }
    return all;
  }
  float Fixed(int field) const {
    float value = 0;
    for (int i = 0; i < fields_.field_count(); ++i) {
      if (fields_.field(i).number() != field) continue;
      const uint32_t bits = fields_.field(i).fixed32();
      std::memcpy(&value, &bits, sizeof(value));
    }
    return value;
  }

 private:
  google::protobuf::UnknownFieldSet fields_;
};

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<float> ReadTensor(const std::filesystem::path& path) {
  const std::string raw = Wire(ReadFile(path)).Bytes(9).at(0);
  std::vector<float> values(raw.size() / sizeof(float));
  std::memcpy(values.data(), raw.data(), values.size() * sizeof(float));
  return values;
}

std::map<std::string, float> ReadAttributes(const std::filesystem::path& file) {
  const Wire graph(Wire(ReadFile(file)).Bytes(7).at(0));
  const Wire node(graph.Bytes(1).at(0));
  std::map<std::string, float> attributes;
  for (const std::string& bytes : node.Bytes(5)) {
    const Wire attribute(bytes);
    attributes[attribute.Bytes(1).at(0)] = attribute.Fixed(2);
  }
  return attributes;
}

std::filesystem::path NodeTests() {
  const char* data = std::getenv("SYNCLINE_TEST_DATA");
  return std::filesystem::path(data != nullptr ? data : "../shared/data") /
         "onnx" / "node";
}

// `name` updates `tensors` tensors at once: inputs are R, T, then each of
// (value, gradient, state...) for all tensors; outputs (value, state...).
void ExpectOnnx(const std::string& name, OptimizerKind kind, int tensors) {
  SCOPED_TRACE(name);
  const std::filesystem::path folder = NodeTests() / name;
  const std::filesystem::path set = folder / "test_data_set_0";
  const auto in = [&](int i) {
    return ReadTensor(set / absl::StrCat("input_", i, ".pb"));
  };
  const auto out = [&](int i) {
    return ReadTensor(set / absl::StrCat("output_", i, ".pb"));
  };
  std::map<std::string, float> attributes =
      ReadAttributes(folder / "model.onnx");
  const OptimizerParams params = {
      .kind = kind,
      .momentum = attributes["alpha"],
      .beta1 = attributes["alpha"],
      .beta2 = attributes["beta"],
      .epsilon = attributes["epsilon"],
      .weight_decay = attributes["norm_coefficient"]};
  // All have T = 0, which in ONNX means: no bias correction, no decay of the
  // rate. Ours is without correction when t is large.
  const OptimizerStep step = {.learning_rate = in(0).at(0), .t = 1 << 30};
  for (int i = 0; i < tensors; ++i) {
    State state(params, 0);
    state.value = in(2 + i);
    const std::vector<float> gradient = in(2 + tensors + i);
    state.slots[0] = in(2 + 2 * tensors + i);
    const bool two = OptimizerSlots(params) > 1;
    if (two) state.slots[1] = in(2 + 3 * tensors + i);
    state.Apply(params, step, gradient, 0, state.value.size());
    for (size_t e = 0; e < state.value.size(); ++e) {
      EXPECT_NEAR(state.value[e], out(i).at(e), 1e-6);
      EXPECT_NEAR(state.slots[0][e], out(tensors + i).at(e), 1e-6);
      if (two) {
        EXPECT_NEAR(state.slots[1][e], out(2 * tensors + i).at(e), 1e-6);
      }
    }
  }
}

TEST(OptimizerTest, OnnxNodeTests) {
  if (!std::filesystem::exists(NodeTests())) {
    GTEST_SKIP() << "no test data at " << NodeTests();
  }
  ExpectOnnx("test_adagrad_multiple", OptimizerKind::kAdagrad, 2);
  ExpectOnnx("test_adam", OptimizerKind::kAdam, 1);
  ExpectOnnx("test_adam_multiple", OptimizerKind::kAdam, 2);
  ExpectOnnx("test_momentum", OptimizerKind::kMomentum, 1);
  ExpectOnnx("test_momentum_multiple", OptimizerKind::kMomentum, 2);
  ExpectOnnx("test_nesterov_momentum", OptimizerKind::kNesterov, 1);
}

}  // namespace
}  // namespace syncline
