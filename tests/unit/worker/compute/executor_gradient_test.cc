// Goal: a step's gradients are the derivative of its loss, whatever the graph,
// the number of parts of the batch and the segments that are recomputed.
// Method: small graphs (fan-out, shared and frozen weights, views, dropout,
// dead branches) with each parameter's gradient against central differences of
// the whole step's loss; parameters overwritten with NaN inside on_gradient,
// which must change nothing.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/poisoned_device.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"

namespace syncline::worker {
namespace {

using testing::MakeTrainingModel;
using testing::TrainingModel;

// `count` names: "p0, p1, ...".
std::string Numbered(const std::string& stem, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ", ", stem, i);
  }
  return list;
}

// More inputs or outputs than a machine word has bits.
constexpr int kMany = 70;

// `kMany` inputs: the first and the last are `ends`, between them are "a" and
// "b" in turn.
std::string ManyInputs(const std::string& ends) {
  std::string list = ends;
  for (int i = 1; i < kMany - 1; ++i) {
    absl::StrAppend(&list, ", ", i % 2 == 0 ? "a" : "b");
  }
  return absl::StrCat(list, ", ", ends);
}

struct GraphCase {
  std::string name;
  LossSpec::Kind loss;
  std::string signature;
  std::string initializers;
  std::string body;
};

// Each value and the parameter w_b are several of the inputs, and read later:
// the gradients of all but a few inputs are added to what is there.
GraphCase ManyCombined(const std::string& op_type) {
  return {
      op_type + "OfMany", LossSpec::MEAN_SQUARED_ERROR,
      "(float[N,3] x, float[3] w_a, float[3] w_b) => (float[N,3] y)", "",
      absl::StrCat("a = Mul(x, w_a)\n b = Tanh(a)\n c = ", op_type, "(",
                   ManyInputs("w_b"), ")\n d = Mul(b, w_b)\n y = Add(c, d)")};
}

std::vector<GraphCase> GraphCases() {
  constexpr auto kSoftmax = LossSpec::SOFTMAX_CROSS_ENTROPY;
  constexpr auto kSigmoid = LossSpec::SIGMOID_CROSS_ENTROPY;
  constexpr auto kSquare = LossSpec::MEAN_SQUARED_ERROR;
  return {
      {"Mlp", kSoftmax,
       "(float[N,4] x, float[4,5] w_a, float[5] w_b, float[5,3] w_c) "
       "=> (float[N,3] y)",
       "", "h = Gemm(x, w_a, w_b)\n r = Tanh(h)\n y = MatMul(r, w_c)"},
      {"FanOut", kSoftmax,
       "(float[N,4] x, float[4,4] w_a, float[4] w_b) => (float[N,4] y)", "",
       "h = MatMul(x, w_a)\n t = Tanh(h)\n s = Sigmoid(h)\n p = Mul(t, s)\n"
       "q = Add(p, h)\n y = Add(q, w_b)"},
      {"SharedWeights", kSquare,
       "(float[N,3] x, float[3,3] w_a, float[3] w_b) => (float[N,3] y)", "",
       "a = Gemm(x, w_a, w_b)\n b = Tanh(a)\n c = Gemm<transB = 1>(b, w_a, w_b)"
       "\n d = Sigmoid(c)\n y = MatMul(d, w_a)"},
      {"Frozen", kSquare,
       "(float[N,2] x, float[2,2] w_a, float[2] w_b) => (float[N,2] y)",
       "float[2,2] frozen_m = {0.5, -1.0, 2.0, 0.25}, "
       "float[2] frozen_d = {2.0, -4.0}",
       "a = MatMul(x, w_a)\n b = MatMul(a, frozen_m)\n c = Add(b, w_b)\n"
       "y = Div(c, frozen_d)"},
      {"SameInputTwice", kSquare,
       "(float[N,3] x, float[3,3] w_a) => (float[N,3] y)", "",
       "a = MatMul(x, w_a)\n b = Mul(a, a)\n c = Add(b, b)\n y = Sub(c, a)"},
      {"Views", kSoftmax,
       "(float[N,2,3] x, float[3,8] w_a, float[4] w_b) => (float[N,4] y)",
       "int64[2] shape = {6, 4}",
       "f = Flatten(x)\n w = Reshape(w_a, shape)\n v = Identity(w)\n"
       "t = Gemm(f, v, w_b)\n y = Identity(t)"},
      {"ViewsOfFannedOutValues", kSquare,
       "(float[N,4] x, float[4,4] w_a) => (float[N,4] y)", "",
       "a = MatMul(x, w_a)\n i = Identity(a)\n j = Identity(i)\n"
       "r = Tanh(i)\n s = Mul(j, r)\n y = Add(s, a)"},
      {"Broadcasts", kSquare,
       "(float[N,3] x, float[3] w_a, float[1] w_b, float[N,1] z) "
       "=> (float[N,3] y)",
       "", "a = Mul(x, w_a)\n b = Sub(w_b, a)\n c = Mul(b, z)\n y = Tanh(c)"},
      {"Logistic", kSigmoid,
       "(float[N,6] x, float[6,1] w_a, float[1] w_b) => (float[N,1] y)", "",
       "y = Gemm(x, w_a, w_b)"},
      {"SoftmaxInside", kSquare,
       "(float[N,3] x, float[3,4] w_a, float[4,3] w_b) => (float[N,3] y)", "",
       "a = MatMul(x, w_a)\n p = Softmax(a)\n l = LogSoftmax(a)\n"
       "q = Mul(p, l)\n y = MatMul(q, w_b)"},
      {"Dropout", kSquare,
       "(float[N,5] x, float[5,5] w_a, float[5,2] w_b) => (float[N,2] y)",
       "float ratio = {0.4}",
       "a = MatMul(x, w_a)\n t = Tanh(a)\n d, m = Dropout(t, ratio)\n"
       "e = Add(d, a)\n y = MatMul(e, w_b)"},
      {"BatchedMatMul", kSquare,
       "(float[N,2,3] x, float[3,2] w_a, float[2,2,2] w_b) => (float[N,8] y)",
       "int64[4] split = {-1, 1, 2, 2}",
       "a = MatMul(x, w_a)\n b = Reshape(a, split)\n c = MatMul(b, w_b)\n"
       "y = Flatten(c)"},
      // A block as exporters write it: a Split with a part that is read twice,
      // shapes that are computed from the input's, a mask made of a comparison.
      {"Attention", kSoftmax,
       "(float[N,3,4] x, float[4,12] w_qkv, float[4,4] w_out, float[4] w_s, "
       "float[4] w_b) => (float[N,3,4] y)",
       "int64[4] heads_last = {0, 2, 3, 2}, int64[1] first = {0}, "
       "int64[2] square = {3, 3}, int64[3] rest = {3, 2, 2}, int64 one = {1}",
       R"(n = LayerNormalization(x, w_s, w_b)
       qkv = MatMul(n, w_qkv)
       q, k, v = Split <axis=-1> (qkv)
       shape = Shape(x)
       size = Gather(shape, first)
       heads = Concat <axis=0> (size, rest)
       qh = Reshape(q, heads)
       kh = Reshape(k, heads)
       vh = Reshape(v, heads)
       qt = Transpose <perm=[0,2,1,3]> (qh)
       kt = Transpose <perm=[0,2,3,1]> (kh)
       vt = Transpose <perm=[0,2,1,3]> (vh)
       width = Constant <value_float=2.0> ()
       root = Sqrt(width)
       qk = MatMul(qt, kt)
       scaled = Div(qk, root)
       ones = ConstantOfShape(square)
       zero = Constant <value_float=0.0> ()
       unit = Constant <value_float=1.0> ()
       lots = Add(ones, unit)
       above = Trilu(lots, one)
       hidden = Greater(above, zero)
       never = Constant <value_float=-1000.0> ()
       masked = Where(hidden, never, scaled)
       p = Softmax(masked)
       mix = MatMul(p, vt)
       back = Transpose <perm=[0,2,1,3]> (mix)
       xs = Shape(x)
       joined = Reshape(back, xs)
       o = MatMul(joined, w_out)
       o2 = Add(o, v)
       y = Add(o2, x))"},
      {"SplitWithoutItsMiddle", kSquare,
       "(float[N,6] x, float[6] w_a, float[2] w_b) => (float[N,2] y)", "",
       "a = Mul(x, w_a)\n p, q, r = Split <axis=1> (a)\n s = Mul(p, r)\n"
       "y = Mul(s, w_b)"},
      // The loss is on parts from both ends and beyond the words' ends.
      {"SplitIntoMany", kSquare,
       absl::StrCat("(float[N,", kMany, "] x, float[", kMany,
                    "] w_a) => (float[N,1] y)"),
       "",
       absl::StrCat("a = Mul(x, w_a)\n", Numbered("p", kMany),
                    " = Split <axis = 1> (a)\n"
                    "b = Mul(p0, p31)\n c = Mul(p32, p33)\n"
                    "d = Mul(p64, p69)\n y = Sum(b, c, d)")},
      {"ConcatOfMany", kSquare,
       absl::StrCat("(float[N,1] x, float[1] w_a, float[", kMany,
                    ",1] w_b) => (float[N,1] y)"),
       "",
       absl::StrCat("a = Mul(x, w_a)\n b = Tanh(a)\n"
                    "c = Concat <axis = 1> (",
                    ManyInputs("b"), ")\n d = MatMul(c, w_b)\n y = Add(d, b)")},
      ManyCombined("Sum"),
      ManyCombined("Mean"),
      ManyCombined("Max"),
      ManyCombined("Min"),
      {"BatchNormalization", kSquare,
       "(float[N,2,3] x, float[2] w_s, float[2] w_b, float[2] w_running_mean, "
       "float[2] w_running_variance, float[6,2] w_a) => (float[N,2] y)",
       "float[2] frozen_m = {0.5, -1.0}, float[2] frozen_v = {2.0, 0.25}",
       "n = BatchNormalization(x, w_s, w_b, w_running_mean, "
       "w_running_variance)\n r = Tanh(n)\n"
       "f = BatchNormalization(r, w_s, w_b, frozen_m, frozen_v)\n"
       "p = Flatten(f)\n y = MatMul(p, w_a)"},
      {"Lstm", kSquare,
       "(float[N,3,2] x, float[1,8,2] w_x, float[1,8,2] w_h, float[1,16] w_b, "
       "float[2,2] w_a) => (float[N,2] y)",
       "int64[1] first = {0}",
       "t = Transpose <perm = [1, 0, 2]> (x)\n"
       "all, last = LSTM <hidden_size = 2> (t, w_x, w_h, w_b)\n"
       "sum = ReduceMean <axes = [0], keepdims = 0> (all)\n"
       "joined = Add(sum, last)\n h = Squeeze(joined, first)\n"
       "y = MatMul(h, w_a)"},
      {"StackedGruBothWays", kSquare,
       "(float[N,3,2] x, float[2,6,2] w_x, float[2,6,2] w_h, "
       "float[1,3,4] w_y, float[1,3,1] w_z) => (float[N,1] y)",
       "int64[3] wide = {3, -1, 4}, int64[1] first = {0}",
       "t = Transpose <perm = [1, 0, 2]> (x)\n"
       "a = GRU <hidden_size = 2, direction = \"bidirectional\", "
       "linear_before_reset = 1> (t, w_x, w_h)\n"
       "b = Transpose <perm = [0, 2, 1, 3]> (a)\n c = Reshape(b, wide)\n"
       "all, d = GRU <hidden_size = 1> (c, w_y, w_z)\n y = Squeeze(d, first)"},
      {"ConvolutionAndPooling", kSoftmax,
       "(float[N,1,6,6] x, float[2,1,3,3] w_k, float[2] w_b, float[8,3] w_a) "
       "=> (float[N,3] y)",
       "",
       "c = Conv(x, w_k, w_b)\n r = Tanh(c)\n"
       "m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)\n"
       "f = Flatten(m)\n y = MatMul(f, w_a)"},
      // Fused, with weights that are kept, and computed again.
      {"AttentionWrittenOut", kSquare,
       "(float[N,3,4] x, float[4,12] w_a, float[3,3] w_m) => (float[N,3,4] y)",
       "int64[4] by_head = {0, 3, 2, 2}, int64[3] joined = {0, 3, 4}, "
       "int64[3] parts = {4, 4, 4}",
       "scale = Constant <value_float = 0.7> ()\n h = MatMul(x, w_a)\n"
       "a, b, c = Split <axis = 2> (h, parts)\n"
       "d = Reshape(a, by_head)\n e = Reshape(b, by_head)\n"
       "f = Reshape(c, by_head)\n q = Transpose <perm = [0, 2, 1, 3]> (d)\n"
       "k = Transpose <perm = [0, 2, 3, 1]> (e)\n"
       "v = Transpose <perm = [0, 2, 1, 3]> (f)\n s = MatMul(q, k)\n"
       "t = Mul(s, scale)\n m = Add(t, w_m)\n p = Softmax(m)\n"
       "o = MatMul(p, v)\n z = Transpose <perm = [0, 2, 1, 3]> (o)\n"
       "y = Reshape(z, joined)"},
      {"LongAttentionWrittenOut", kSquare,
       "(float[N,9,2] x, float[2,2] w_a) => (float[N,9,2] y)",
       "bool[9,9] hides = {" +
           std::string(
               "1,1,1,1,1,1,1,1,1,0,0,1,1,1,1,1,1,1,0,0,0,1,1,1,1,1,1,") +
           "0,0,0,0,1,1,1,1,1,0,0,0,0,0,1,1,1,1,0,0,0,0,0,0,1,1,1," +
           "0,0,0,0,0,0,0,1,1,0,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0}, " +
           "int64[4] by_head = {0, 9, 2, 1}, int64[3] joined = {0, 9, 2}",
       "never = Constant <value_float = -1.0> ()\n h = MatMul(x, w_a)\n"
       "d = Reshape(h, by_head)\n q = Transpose <perm = [0, 2, 1, 3]> (d)\n"
       "k = Transpose <perm = [0, 2, 3, 1]> (d)\n s = MatMul(q, k)\n"
       "m = Where(hides, never, s)\n p = Softmax(m)\n o = MatMul(p, q)\n"
       "z = Transpose <perm = [0, 2, 1, 3]> (o)\n y = Reshape(z, joined)"},
      // A hidden score has a weight, but no gradient.
      {"AttentionWithHiddenScores", kSquare,
       "(float[N,2,4] x, float[4,4] w_a, float[4,4] w_b) => (float[N,2,4] y)",
       "bool[2,2] seen = {0, 0, 1, 0}, int64[4] by_head = {0, 2, 2, 2}, "
       "int64[3] joined = {0, 2, 4}",
       "never = Constant <value_float = -0.5> ()\n a = MatMul(x, w_a)\n"
       "b = MatMul(x, w_b)\n d = Reshape(a, by_head)\n"
       "e = Reshape(b, by_head)\n q = Transpose <perm = [0, 2, 1, 3]> (d)\n"
       "k = Transpose <perm = [0, 2, 3, 1]> (e)\n"
       "v = Transpose <perm = [0, 2, 1, 3]> (e)\n s = MatMul(q, k)\n"
       "m = Where(seen, s, never)\n p = Softmax(m)\n o = MatMul(p, v)\n"
       "z = Transpose <perm = [0, 2, 1, 3]> (o)\n y = Reshape(z, joined)"},
      // Between the first convolution and the pool channels lie in blocks.
      {"Residual", kSquare,
       "(float[N,1,5,4] x, float[16,1,2,1] w_k, float[16] w_s, float[16] w_b, "
       "float[16] w_running_m, float[16] w_running_v, float[16,1,1,1] w_g, "
       "float[16,1] w_a) => (float[N,1] y)",
       "",
       "c = Conv(x, w_k)\n t = Tanh(c)\n"
       "n = BatchNormalization(t, w_s, w_b, w_running_m, w_running_v)\n"
       "m = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (n)\n"
       "g = Conv <group = 16> (m, w_g)\n s = Add(g, m)\n"
       "p = GlobalAveragePool(s)\n f = Flatten(p)\n y = MatMul(f, w_a)"},
      {"Scatter", kSquare,
       "(float[N,3] x, float[3,4] w_a, float[4] w_b, float[2] w_c) "
       "=> (float[N,4] y)",
       "int64[2,1] places = {3, 1}, int64[1,2] columns = {2, 0}, "
       "int64[2] shape = {1, 2}, int64[1] first = {0}",
       "h = MatMul(x, w_a)\n bias = ScatterND(w_b, places, w_c)\n"
       "row = Reshape(w_c, shape)\n grid = Unsqueeze(bias, first)\n"
       "moved = ScatterElements <axis = 1> (grid, columns, row)\n"
       "t = Tanh(h)\n y = Add(t, moved)"},
      {"Extremes", kSquare,
       "(float[N,4] x, float[4,4] w_a, float[4] w_b) => (float[N,1] y)", "",
       "h = MatMul(x, w_a)\n m = Max(h, w_b)\n"
       "top = ReduceMax <axes = [1]> (m)\n all = ReduceProd <axes = [1]> (h)\n"
       "y = Sub(top, all)"},
      {"DeadBranch", kSquare,
       "(float[N,3] x, float[3,2] w_a, float[3,2] w_dead) => (float[N,2] y)",
       "",
       "dead = MatMul(x, w_dead)\n worse = Div(dead, dead)\n"
       "y = MatMul(x, w_a)"},
  };
}

class ExecutorGraphTest : public ::testing::TestWithParam<GraphCase> {};

TEST_P(ExecutorGraphTest, GradientsAreTheDerivativeOfTheLoss) {
  const GraphCase& c = GetParam();
  const TrainingModel model =
      MakeTrainingModel(c.signature, c.initializers, c.body, 17);
  ASSERT_NE(model.model, nullptr);
  SeededExecutor trainer(model, c.loss, 4);
  trainer.ExpectGradientsAreDerivatives(4);
  trainer.ExpectGradientsAreDerivatives(1);  // the short last batch
}

// Seven samples in three parts are 2, 2 and 3; two are 1 and 1.
TEST_P(ExecutorGraphTest, GradientsOfPartsAreTheDerivativeOfTheirLoss) {
  const GraphCase& c = GetParam();
  const TrainingModel model =
      MakeTrainingModel(c.signature, c.initializers, c.body, 17);
  ASSERT_NE(model.model, nullptr);
  SeededExecutor trainer(model, c.loss, 7, /*micro_batches=*/3);
  trainer.ExpectGradientsAreDerivatives(7);
  trainer.ExpectGradientsAreDerivatives(2);
}

TEST_P(ExecutorGraphTest, PartsAddUpToTheWhole) {
  const GraphCase& c = GetParam();
  if (c.name == "BatchNormalization" || c.name == "Residual") {
    GTEST_SKIP() << "each part has statistics of its own";
  }
  const TrainingModel model =
      MakeTrainingModel(c.signature, c.initializers, c.body, 17);
  ASSERT_NE(model.model, nullptr);
  SeededExecutor whole(model, c.loss, 7);
  SeededExecutor parts(model, c.loss, 7, /*micro_batches=*/3);
  for (const int64_t size : {7, 2, 1}) {
    const Batch batch = whole.MakeBatch(size);
    const double loss = whole.Step(batch);
    EXPECT_NEAR(parts.Step(batch), loss, 1e-6 * std::max(1.0, loss));
    const auto want = whole.Gradients();
    const auto got = parts.Gradients();
    for (size_t i = 0; i < want.size(); ++i) {
      for (size_t j = 0; j < want[i].size(); ++j) {
        ASSERT_NEAR(got[i][j], want[i][j],
                    1e-5 * std::max(1.0f, std::fabs(want[i][j])))
            << whole.name(i) << "[" << j << "] of " << size;
      }
    }
  }
}

TEST_P(ExecutorGraphTest, RecomputedSegmentsChangeNoBit) {
  const GraphCase& c = GetParam();
  const TrainingModel model =
      MakeTrainingModel(c.signature, c.initializers, c.body, 17);
  ASSERT_NE(model.model, nullptr);
  for (const int64_t parts : {1, 2}) {
    SeededExecutor plain(model, c.loss, 5, parts);
    const Batch batch = plain.MakeBatch(5);
    const double loss = plain.Step(batch);
    for (const int segments : {2, 3, 20}) {
      SeededExecutor recomputed(model, c.loss, 5, parts, segments);
      EXPECT_EQ(recomputed.Step(batch), loss);
      EXPECT_EQ(recomputed.Gradients(), plain.Gradients()) << segments;
    }
  }
}

template <typename T>
std::string BytesOf(absl::Span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

// On a device whose memory the host cannot touch: feeds, parameters, labels and
// constants get there, gradients, loss and scores come back.
TEST_P(ExecutorGraphTest, AnotherDeviceGivesTheSameBits) {
  const GraphCase& c = GetParam();
  const TrainingModel model =
      MakeTrainingModel(c.signature, c.initializers, c.body, 17);
  ASSERT_NE(model.model, nullptr);
  for (const int64_t parts : {1, 3}) {
    SeededExecutor host(model, c.loss, 5, parts);
    testing::PoisonedDevice device;
    SeededExecutor other(model, c.loss, 5, parts, /*recompute_segments=*/2,
                         /*threads=*/1, /*statistics=*/nullptr, &device);
    for (const int64_t size : {5, 2}) {
      const Batch batch = host.MakeBatch(size);
      EXPECT_EQ(other.Step(batch), host.Step(batch));
      EXPECT_EQ(other.Gradients(), host.Gradients());
      const auto want = host.executor().Evaluate(batch);
      const auto got = other.executor().Evaluate(batch);
      ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
      // Bits, because a variance that was drawn may be negative: NaN.
      EXPECT_EQ(BytesOf(absl::MakeConstSpan(&got->loss_sum, 1)),
                BytesOf(absl::MakeConstSpan(&want->loss_sum, 1)));
      EXPECT_EQ(BytesOf<float>(got->scores), BytesOf<float>(want->scores));
    }
    EXPECT_GT(device.launches(), 0);
  }
}

// In 16 bits, too, neither the device, nor views, places that are shared, parts
// or segments change a bit.
TEST_P(ExecutorGraphTest, InSixteenBitsMemoryAndDevicesChangeNoBit) {
  const GraphCase& c = GetParam();
  const TrainingModel model =
      MakeTrainingModel(c.signature, c.initializers, c.body, 17);
  ASSERT_NE(model.model, nullptr);
  for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
    for (const int64_t parts : {1, 3}) {
      const auto run = [&](int segments, Device* device) {
        return SeededExecutor(model, c.loss, 5, parts, segments, /*threads=*/1,
                              /*statistics=*/nullptr, device, type);
      };
      SeededExecutor plain = run(1, nullptr);
      const Batch batch = plain.MakeBatch(5);
      const double loss = plain.Step(batch);
      const auto gradients = plain.Gradients();
      const auto want = plain.executor().Evaluate(batch);
      for (const int segments : {1, 2, 20}) {
        testing::PoisonedDevice device;
        SeededExecutor other = run(segments, &device);
        EXPECT_EQ(other.Step(batch), loss);
        EXPECT_EQ(other.Gradients(), gradients) << segments;
        const auto got = other.executor().Evaluate(batch);
        ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
        EXPECT_EQ(BytesOf<float>(got->scores), BytesOf<float>(want->scores));
      }
    }
  }
}

// The strongest reading of the contract: what is written to a parameter inside
// on_gradient is never seen by the rest of the step, and what gradient(i) holds
// then is final.
void ExpectNotReadAfterOnGradient(SeededExecutor& trainer) {
  const Batch batch = trainer.MakeBatch(4);
  trainer.Step(batch);
  const auto want = trainer.Gradients();

  std::vector<std::vector<float>> seen(trainer.count());
  std::multiset<int> calls;
  const auto result = trainer.executor().TrainStep(batch, 3, [&](int i) {
    calls.insert(i);
    const auto g = trainer.executor().gradient(i);
    seen[i].assign(g.begin(), g.end());
    for (float& v : trainer.executor().parameter(i)) v = kNan;
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(seen, want);
  EXPECT_EQ(trainer.Gradients(), want);
  for (int i = 0; i < trainer.count(); ++i) EXPECT_EQ(calls.count(i), 1u);
}

TEST_P(ExecutorGraphTest, AfterOnGradientTheParameterIsNotReadAgain) {
  const GraphCase& c = GetParam();
  const TrainingModel model =
      MakeTrainingModel(c.signature, c.initializers, c.body, 17);
  ASSERT_NE(model.model, nullptr);
  SeededExecutor whole(model, c.loss, 4);
  ExpectNotReadAfterOnGradient(whole);
  SeededExecutor parts(model, c.loss, 4, /*micro_batches=*/3);
  ExpectNotReadAfterOnGradient(parts);
  for (const int segments : {1, 3}) {
    SeededExecutor narrow(model, c.loss, 4, /*micro_batches=*/1, segments,
                          /*threads=*/1, /*statistics=*/nullptr,
                          /*device=*/nullptr, DType::kBfloat16);
    ExpectNotReadAfterOnGradient(narrow);
  }
  SeededExecutor recomputed(model, c.loss, 4, /*micro_batches=*/1,
                            /*recompute_segments=*/3);
  ExpectNotReadAfterOnGradient(recomputed);
}

INSTANTIATE_TEST_SUITE_P(Graphs, ExecutorGraphTest,
                         ::testing::ValuesIn(GraphCases()),
                         [](const ::testing::TestParamInfo<GraphCase>& info) {
                           return info.param.name;
                         });

TEST(ExecutorTest, WhatIsKnownBeforeTrainingIsNotRun) {
  const TrainingModel model = MakeTrainingModel(
      "(float[N,2,3] x, float[6,2] w_a) => (float[N,2] y)", "",
      "s = Shape(x)\n zero = Constant <value_ints=[0]> ()\n"
      "n = Gather(s, zero)\n rest = Constant <value_ints=[-1]> ()\n"
      "shape = Concat <axis=0> (n, rest)\n f = Reshape(x, shape)\n"
      "y = MatMul(f, w_a)");
  ASSERT_NE(model.model, nullptr);
  const Graph& graph = model.model->graph();
  EXPECT_TRUE(graph.values[graph.FindValue("shape")].folded);
  EXPECT_FALSE(graph.values[graph.FindValue("f")].folded);
  const auto known = model.model->Infer(5);
  ASSERT_TRUE(known.ok()) << known.status();
  const auto& shape = known->constants[graph.FindValue("shape")];
  EXPECT_EQ(shape->ints(), (std::vector<int64_t>{5, -1}));
  EXPECT_EQ(known->dims[graph.FindValue("f")], (Dims{5, 6}));
  // Gather of the shape would read a constant that no Op wrote; only Reshape
  // and MatMul run.
  SeededExecutor trainer(model, LossSpec::MEAN_SQUARED_ERROR, 5);
  trainer.ExpectGradientsAreDerivatives(5);
  trainer.ExpectGradientsAreDerivatives(2);
}

}  // namespace
}  // namespace syncline::worker
