// Goal: a step's gradients are the derivative of its loss, whatever the graph,
// and on_gradient comes exactly when its contract says. Method: small graphs
// (fan-out, shared and frozen weights, views, dropout, dead branches) with each
// parameter's gradient against central differences of the whole step's loss;
// parameters overwritten with NaN inside on_gradient, which nothing may notice.

#include "worker/compute/executor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "tests/testing/thread_folds.h"
#include "tests/testing/training_model.h"

namespace syncline::worker {
namespace {

using testing::MakeTrainingModel;
using testing::ThreadFolds;
using testing::TrainingModel;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void Ignore(int) {}

// An executor over a model, with seeded parameters and batches.
class Trainer {
 public:
  Trainer(const TrainingModel& m, LossSpec::Kind loss, int64_t batch_size,
          int64_t micro_batches = 1, int recompute_segments = 1,
          int threads = 1, StatisticsExchange* statistics = nullptr)
      : model_(m), loss_(loss) {
    Executor::Options options;
    options.loss.set_kind(loss);
    options.batch_size = batch_size;
    options.micro_batches = micro_batches;
    options.recompute_segments = recompute_segments;
    options.eval_batch_size = batch_size + 3;
    options.seed = 17;
    options.threads = threads;
    options.folds_statistics = statistics != nullptr;
    auto executor = Executor::Create(m.model, m.training, options);
    EXPECT_TRUE(executor.ok()) << executor.status();
    if (!executor.ok()) return;
    executor_ = *std::move(executor);
    executor_->UseStatistics(statistics);
    Random random(5);
    for (int i = 0; i < count(); ++i) {
      for (float& v : executor_->parameter(i)) {
        v = static_cast<float>(random.Uniform() - 0.5);
      }
    }
  }

  Executor& executor() { return *executor_; }
  int count() const { return model_.training.parameters.size(); }
  const std::string& name(int i) const {
    return model_.training.parameters[i].name;
  }

  Batch MakeBatch(int64_t size, uint64_t seed = 9) const {
    Batch batch;
    batch.size = size;
    Random random(seed);
    const auto shapes = model_.model->InferShapes(size);
    EXPECT_TRUE(shapes.ok()) << shapes.status();
    for (ValueId v : model_.training.feeds) {
      batch.feeds.emplace_back(ElementCount((*shapes)[v]));
      for (float& x : batch.feeds.back()) {
        x = static_cast<float>(random.Uniform() * 2 - 1);
      }
    }
    const int64_t width =
        ElementCount((*shapes)[model_.training.loss_output]) / size;
    const int64_t classes = (*shapes)[model_.training.loss_output].back();
    batch.label_width = loss_ == LossSpec::MEAN_SQUARED_ERROR ? width
                        : loss_ == LossSpec::SIGMOID_CROSS_ENTROPY
                            ? 1
                            : width / classes;
    for (int64_t i = 0; i < size * batch.label_width; ++i) {
      switch (loss_) {
        case LossSpec::SOFTMAX_CROSS_ENTROPY:
          batch.labels.push_back(random.Below(classes));
          break;
        case LossSpec::SIGMOID_CROSS_ENTROPY:
          batch.labels.push_back(random.Below(2));
          break;
        default:
          batch.labels.push_back(random.Uniform());
      }
    }
    return batch;
  }

  double Step(const Batch& batch, int64_t clock = 3) {
    const auto result = executor_->TrainStep(batch, clock, 0, Ignore);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->loss_sum : kNan;
  }

  std::vector<std::vector<float>> Gradients() const {
    std::vector<std::vector<float>> all;
    for (int i = 0; i < count(); ++i) {
      const auto g = executor_->gradient(i);
      all.emplace_back(g.begin(), g.end());
    }
    return all;
  }

  void ExpectGradientsAreDerivatives(int64_t size) {
    const Batch batch = MakeBatch(size);
    Step(batch);
    const auto gradients = Gradients();
    // Wide enough that float32 rounding of the loss, about 1e-6, vanishes.
    constexpr float kStep = 4e-3f;
    for (int i = 0; i < count(); ++i) {
      if (model_.training.parameters[i].momentum.has_value()) continue;
      for (size_t j = 0; j < gradients[i].size(); ++j) {
        float& w = executor_->parameter(i)[j];
        const float at = w;
        w = at + kStep;
        const double above = Step(batch);
        w = at - kStep;
        const double below = Step(batch);
        w = at;
        const double want = (above - below) / (2 * kStep);
        ASSERT_NEAR(gradients[i][j], want,
                    2e-3 * std::max(1.0, std::fabs(want)))
            << name(i) << "[" << j << "]";
      }
    }
  }

 private:
  const TrainingModel model_;
  const LossSpec::Kind loss_;
  std::unique_ptr<Executor> executor_;
};

TrainingModel Mlp() {
  return MakeTrainingModel(
      "(float[N,4] x, float[4,5] w_a, float[5] w_b, float[5,3] w_c, "
      "float[3] w_d) => (float[N,3] y)",
      "",
      "h = Gemm(x, w_a, w_b)\n"
      "r = Tanh(h)\n"
      "y = Gemm(r, w_c, w_d)");
}

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
  Trainer trainer(model, c.loss, 4);
  trainer.ExpectGradientsAreDerivatives(4);
  trainer.ExpectGradientsAreDerivatives(1);  // the short last batch
}

// Seven samples in three parts are 2, 2 and 3; two are 1 and 1.
TEST_P(ExecutorGraphTest, GradientsOfPartsAreTheDerivativeOfTheirLoss) {
  const GraphCase& c = GetParam();
  const TrainingModel model =
      MakeTrainingModel(c.signature, c.initializers, c.body, 17);
  ASSERT_NE(model.model, nullptr);
  Trainer trainer(model, c.loss, 7, /*micro_batches=*/3);
  trainer.ExpectGradientsAreDerivatives(7);
  trainer.ExpectGradientsAreDerivatives(2);
}

TEST_P(ExecutorGraphTest, PartsAddUpToTheWhole) {
  const GraphCase& c = GetParam();
  if (c.name == "Dropout" || c.name == "BatchNormalization" ||
      c.name == "Residual") {
    GTEST_SKIP() << "each part has masks and statistics of its own";
  }
  const TrainingModel model =
      MakeTrainingModel(c.signature, c.initializers, c.body, 17);
  ASSERT_NE(model.model, nullptr);
  Trainer whole(model, c.loss, 7);
  Trainer parts(model, c.loss, 7, /*micro_batches=*/3);
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
    Trainer plain(model, c.loss, 5, parts);
    const Batch batch = plain.MakeBatch(5);
    const double loss = plain.Step(batch);
    for (const int segments : {2, 3, 20}) {
      Trainer recomputed(model, c.loss, 5, parts, segments);
      EXPECT_EQ(recomputed.Step(batch), loss);
      EXPECT_EQ(recomputed.Gradients(), plain.Gradients()) << segments;
    }
  }
}

// The strongest reading of the contract: what is written to a parameter inside
// on_gradient is never seen by the rest of the step, and what gradient(i) holds
// then is final.
void ExpectNotReadAfterOnGradient(Trainer& trainer) {
  const Batch batch = trainer.MakeBatch(4);
  trainer.Step(batch);
  const auto want = trainer.Gradients();

  std::vector<std::vector<float>> seen(trainer.count());
  std::multiset<int> calls;
  const auto result = trainer.executor().TrainStep(batch, 3, 0, [&](int i) {
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
  Trainer whole(model, c.loss, 4);
  ExpectNotReadAfterOnGradient(whole);
  Trainer parts(model, c.loss, 4, /*micro_batches=*/3);
  ExpectNotReadAfterOnGradient(parts);
  Trainer recomputed(model, c.loss, 4, /*micro_batches=*/1,
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
  Trainer trainer(model, LossSpec::MEAN_SQUARED_ERROR, 5);
  trainer.ExpectGradientsAreDerivatives(5);
  trainer.ExpectGradientsAreDerivatives(2);
}

TEST(ExecutorTest, LastLayersGradientsComeFirst) {
  Trainer trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  std::vector<std::string> order;
  const auto result = trainer.executor().TrainStep(
      trainer.MakeBatch(4), 0, 0,
      [&](int i) { order.push_back(trainer.name(i)); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(order, (std::vector<std::string>{"w_c", "w_d", "w_a", "w_b"}));
}

// So that the last layer's gradient travels while the first one's is computed.
TEST(ExecutorTest, AGradientIsReportedBeforeTheNextIsComputed) {
  Trainer trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  // All of them when the last layer's is reported.
  std::vector<std::vector<float>> then;
  const auto result =
      trainer.executor().TrainStep(trainer.MakeBatch(4), 0, 0, [&](int i) {
        if (trainer.name(i) == "w_c") then = trainer.Gradients();
      });
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_FALSE(then.empty());
  const auto in_the_end = trainer.Gradients();
  for (int i = 0; i < trainer.count(); ++i) {
    if (trainer.name(i) == "w_c") {
      EXPECT_EQ(then[i], in_the_end[i]);
    } else if (trainer.name(i) == "w_a") {
      EXPECT_NE(then[i], in_the_end[i]) << "the step was over already";
    }
  }
}

TEST(ExecutorTest, AParameterWithoutAPathToTheLossHasAZeroGradient) {
  Trainer trainer(
      MakeTrainingModel(
          "(float[N,3] x, float[3,2] w_a, float[2] w_unused) => (float[N,2] y)",
          "", "z = Mul(w_unused, w_unused)\n y = MatMul(x, w_a)"),
      LossSpec::MEAN_SQUARED_ERROR, 2);
  trainer.Step(trainer.MakeBatch(2));
  EXPECT_EQ(trainer.Gradients()[1], (std::vector<float>{0, 0}));
}

TEST(ExecutorTest, ParametersAndGradientsAreAlignedAndStay) {
  Trainer trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  std::vector<const void*> before;
  const auto addresses = [&] {
    std::vector<const void*> all;
    for (int i = 0; i < trainer.count(); ++i) {
      all.push_back(trainer.executor().parameter(i).data());
      all.push_back(trainer.executor().gradient(i).data());
    }
    return all;
  };
  before = addresses();
  for (const void* p : before) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
  }
  trainer.Step(trainer.MakeBatch(4));
  trainer.Step(trainer.MakeBatch(2));
  ASSERT_TRUE(trainer.executor().Evaluate(trainer.MakeBatch(7)).ok());
  EXPECT_EQ(addresses(), before);
}

TEST(ExecutorTest, ParametersStartWithTheFilesValues) {
  const TrainingModel model =
      MakeTrainingModel("(float[N,2] x) => (float[N,2] y)",
                        "float[2] w_a = {1.5, -2.5}", "y = Mul(x, w_a)");
  Executor::Options options;
  options.loss.set_kind(LossSpec::MEAN_SQUARED_ERROR);
  options.batch_size = 1;
  auto executor = Executor::Create(model.model, model.training, options);
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_EQ((*executor)->parameter(0)[0], 1.5f);
  EXPECT_EQ((*executor)->parameter(0)[1], -2.5f);
}

TEST(ExecutorTest, TheSameStepGivesTheSameBits) {
  Trainer trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 8);
  const Batch batch = trainer.MakeBatch(8);
  trainer.Step(batch);
  const auto first = trainer.Gradients();
  trainer.Step(trainer.MakeBatch(5, 77));
  trainer.Step(batch);
  EXPECT_EQ(trainer.Gradients(), first);
}

// Large enough that loops are shared; without matrix products, which promise
// less.
TEST(ExecutorTest, TheNumberOfThreadsDoesNotChangeABit) {
  const TrainingModel model = MakeTrainingModel(
      "(float[N,4,64,96] x, float[96] w_a, float[4,1,1] w_b, "
      "float[4,64,96] w_c) => (float[N,4] y)",
      "int64[2] plane = {2, 3}, float zero = {0}", R"(
    scaled = Mul (x, w_a)
    shifted = Add (scaled, w_b)
    weighed = Mul (shifted, w_c)
    bent = Elu (weighed)
    active = Sigmoid (bent)
    turned = Transpose <perm = [0, 1, 3, 2]> (active)
    left, right = Split <axis = 3> (turned)
    ratio = Div (left, right)
    is_low = Less (ratio, shifted_mean)
    kept = Where (is_low, ratio, left)
    shifted_mean = ReduceMean <keepdims = 1, axes = [1, 2, 3]> (ratio)
    weights = Softmax <axis = 3> (kept)
    mixed = Mul (weights, right)
    pooled = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (mixed)
    y = ReduceSum <keepdims = 0> (pooled, plane)
  )",
      17);
  Trainer one(model, LossSpec::MEAN_SQUARED_ERROR, 16);
  Trainer three(model, LossSpec::MEAN_SQUARED_ERROR, 16, /*micro_batches=*/1,
                /*recompute_segments=*/1, /*threads=*/3);
  const Batch batch = one.MakeBatch(16);
  EXPECT_EQ(one.Step(batch), three.Step(batch));
  EXPECT_EQ(one.Gradients(), three.Gradients());
}

TEST(ExecutorTest, GradientsOfPartsAddUpToThoseOfTheWhole) {
  Trainer trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 6);
  const Batch whole = trainer.MakeBatch(6);
  const double loss = trainer.Step(whole);
  const auto want = trainer.Gradients();
  const auto part = [&](int64_t begin, int64_t end) {
    Batch b;
    b.size = end - begin;
    b.feeds = {
        {whole.feeds[0].begin() + begin * 4, whole.feeds[0].begin() + end * 4}};
    b.labels.assign(whole.labels.begin() + begin, whole.labels.begin() + end);
    return b;
  };
  const double first_loss = trainer.Step(part(0, 4));
  const auto first = trainer.Gradients();
  EXPECT_NEAR(first_loss + trainer.Step(part(4, 6)), loss, 1e-5);
  const auto second = trainer.Gradients();
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t j = 0; j < want[i].size(); ++j) {
      EXPECT_NEAR(first[i][j] + second[i][j], want[i][j], 1e-5);
    }
  }
}

TEST(ExecutorTest, PartsOfABatchHaveDropoutMasksOfTheirOwn) {
  const TrainingModel model =
      MakeTrainingModel("(float[N,50] x, float[50] w_a) => (float[N,50] y)", "",
                        "a = Mul(x, w_a)\n y = Dropout(a)");
  Trainer trainer(model, LossSpec::MEAN_SQUARED_ERROR, 2, /*micro_batches=*/2);
  Trainer first(model, LossSpec::MEAN_SQUARED_ERROR, 1);
  Batch batch = trainer.MakeBatch(2);
  // The same sample twice.
  std::copy_n(batch.feeds[0].begin(), 50, batch.feeds[0].begin() + 50);
  std::copy_n(batch.labels.begin(), 50, batch.labels.begin() + 50);
  Batch half = batch;
  half.size = 1;
  half.feeds[0].resize(50);
  half.labels.resize(50);
  const double loss = first.Step(half);
  EXPECT_GT(std::fabs(trainer.Step(batch) - 2 * loss), 1e-3 * loss);
  EXPECT_EQ(trainer.Step(batch), trainer.Step(batch));
}

TEST(ExecutorTest, DropoutDependsOnClockAndRankAndNothingElse) {
  Trainer trainer(
      MakeTrainingModel("(float[N,50] x, float[50] w_a) => (float[N,50] y)", "",
                        "a = Mul(x, w_a)\n y = Dropout(a)"),
      LossSpec::MEAN_SQUARED_ERROR, 2);
  const Batch batch = trainer.MakeBatch(2);
  const auto loss = [&](int64_t clock, uint32_t rank) {
    return trainer.executor().TrainStep(batch, clock, rank, Ignore)->loss_sum;
  };
  const double first = loss(1, 0);
  EXPECT_NE(loss(2, 0), first);
  EXPECT_NE(loss(1, 1), first);
  EXPECT_EQ(loss(1, 0), first);
}

TEST(ExecutorTest, EvaluationIsTheForwardPassWithoutDropout) {
  Trainer trainer(
      MakeTrainingModel("(float[N,3] x, float[3] w_a) => (float[N,3] y)", "",
                        "a = Mul(x, w_a)\n y = Dropout(a)"),
      LossSpec::MEAN_SQUARED_ERROR, 2);
  const Batch batch = trainer.MakeBatch(5);  // evaluation takes more samples
  const auto result = trainer.executor().Evaluate(batch);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->width, 3);
  ASSERT_EQ(result->scores.size(), 15u);
  double loss = 0;
  for (int i = 0; i < 15; ++i) {
    const float want =
        batch.feeds[0][i] * trainer.executor().parameter(0)[i % 3];
    EXPECT_EQ(result->scores[i], want);
    loss += (want - batch.labels[i]) * (want - batch.labels[i]) / 3;
  }
  EXPECT_NEAR(result->loss_sum, loss, 1e-5);
}

TEST(ExecutorTest, TheArenaHoldsLessThanEverythingAtOnce) {
  // Ten layers of 64 x 256 floats would be ten times 64 KiB each way.
  std::string body;
  std::string before = "x";
  for (int i = 0; i < 10; ++i) {
    const std::string after = i == 9 ? "y" : absl::StrCat("h", i);
    absl::StrAppend(&body, after, " = Add(", before, ", w_a)\n");
    before = after;
  }
  Trainer trainer(
      MakeTrainingModel("(float[N,256] x, float[256] w_a) => (float[N,256] y)",
                        "", body),
      LossSpec::MEAN_SQUARED_ERROR, 64);
  const int64_t one = 64 * 256 * sizeof(float);
  EXPECT_GE(trainer.executor().arena_bytes(), 2 * one);
  EXPECT_LE(trainer.executor().arena_bytes(), 3 * one);
}

TEST(ExecutorTest, TheMemoryOfGradientsIsLentUntilTheyAreWritten) {
  Trainer trainer(MakeTrainingModel("(float[N,64] x, float[64,64] w_a, "
                                    "float[64,64] w_b, float[64,8] w_c) => "
                                    "(float[N,8] y)",
                                    "",
                                    "a = MatMul(x, w_a)  h = Tanh(a)  "
                                    "b = MatMul(h, w_b)  i = Tanh(b)  "
                                    "y = MatMul(i, w_c)"),
                  LossSpec::SOFTMAX_CROSS_ENTROPY, 16);
  // Of h, i and their gradients only that of h is there when the first layer's
  // gradient, which the others may lie in, is written.
  const int64_t hidden = 16 * 64 * sizeof(float);
  EXPECT_LE(trainer.executor().arena_bytes(), hidden);

  const Batch batch = trainer.MakeBatch(16);
  std::vector<std::vector<float>> reported(trainer.count());
  const auto step = [&](int64_t clock) {
    const auto result =
        trainer.executor().TrainStep(batch, clock, 0, [&](int i) {
          const auto g = trainer.executor().gradient(i);
          reported[i].assign(g.begin(), g.end());
        });
    ASSERT_TRUE(result.ok()) << result.status();
  };
  step(0);
  const auto first = trainer.Gradients();
  EXPECT_EQ(first, reported);
  ASSERT_TRUE(trainer.executor().Evaluate(batch).ok());
  step(1);
  EXPECT_EQ(trainer.Gradients(), first);
  EXPECT_EQ(reported, first);
}

TEST(ExecutorTest, TheArenaIsThatOfAPart) {
  const auto arena = [](int64_t batch_size, int64_t micro_batches) {
    return Trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, batch_size,
                   micro_batches)
        .executor()
        .arena_bytes();
  };
  EXPECT_EQ(arena(1024, 4), arena(256, 1));
  EXPECT_EQ(arena(1024, 3), arena(342, 1));  // the largest part
  EXPECT_LT(arena(256, 1), arena(1024, 1) / 3);
}

TEST(ExecutorTest, APlanIsWhatIsTaken) {
  const TrainingModel model = Mlp();
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 30;
  for (const int64_t evaluated : {0, 7, 500}) {
    options.eval_batch_size = evaluated;
    options.micro_batches = 1 + evaluated % 5;
    const auto plan = Executor::Plan(model.model, model.training, options);
    const auto executor =
        Executor::Create(model.model, model.training, options);
    ASSERT_TRUE(plan.ok() && executor.ok()) << plan.status();
    EXPECT_EQ(plan->parameters, 20 + 5 + 15 + 3);
    EXPECT_EQ(plan->gradient_bytes, 128 + 64 + 64 + 64);  // in cache lines
    EXPECT_EQ(plan->training_arena_bytes, (*executor)->arena_bytes());
    EXPECT_EQ(plan->memory_bytes(), (*executor)->memory_bytes());
    EXPECT_EQ(plan->evaluation_arena_bytes > plan->training_arena_bytes,
              evaluated == 500);
    // Whatever the parts, a step computes the batch.
    EXPECT_NEAR(plan->operators[0].forward_flops, 30 * (2 * (20 + 15) + 5 + 3),
                1e-6);
  }
}

TEST(ExecutorTest, WhatOnlyEvaluatesHasNoGradients) {
  const TrainingModel model = Mlp();
  Trainer trainer(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 5);
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 5;
  options.eval_batch_size = 8;
  const auto trained = Executor::Plan(model.model, model.training, options);
  options.trains = false;
  const auto plan = Executor::Plan(model.model, model.training, options);
  const auto executor = Executor::Create(model.model, model.training, options);
  ASSERT_TRUE(trained.ok() && plan.ok() && executor.ok()) << plan.status();
  EXPECT_EQ(plan->gradient_bytes, 0);
  EXPECT_EQ(plan->training_arena_bytes, 0);
  EXPECT_EQ((*executor)->memory_bytes(), plan->memory_bytes());
  EXPECT_LT(plan->memory_bytes(), trained->memory_bytes());
  ASSERT_TRUE((*executor)->MakeResident(nullptr).ok());
  for (int i = 0; i < trainer.count(); ++i) {
    EXPECT_TRUE((*executor)->gradient(i).empty());
    const absl::Span<const float> values = trainer.executor().parameter(i);
    std::copy(values.begin(), values.end(), (*executor)->parameter(i).begin());
  }
  const Batch batch = trainer.MakeBatch(8);
  const auto want = trainer.executor().Evaluate(batch);
  const auto got = (*executor)->Evaluate(batch);
  ASSERT_TRUE(want.ok() && got.ok()) << got.status();
  EXPECT_EQ(got->loss_sum, want->loss_sum);
  EXPECT_EQ(got->scores, want->scores);
}

TEST(ExecutorTest, APlanNamesTensorsAndOperators) {
  const TrainingModel model = Mlp();
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 8;
  const auto plan = Executor::Plan(model.model, model.training, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_GE(plan->tensors.size(), 3u);
  EXPECT_EQ(plan->tensors[0].name, "h");
  EXPECT_EQ(plan->tensors[0].what, "activation");
  EXPECT_EQ(plan->tensors[0].dims, (Dims{8, 5}));
  EXPECT_EQ(plan->tensors[0].bytes, 160);
  ASSERT_EQ(plan->operators.size(), 2u);
  EXPECT_EQ(plan->operators[0].op_type, "Gemm");
  EXPECT_EQ(plan->operators[0].nodes, 2);
  // The first layer's input has no gradient.
  EXPECT_EQ(plan->operators[0].backward_flops,
            8 * (2 * 20 + 5 + 2 * (2 * 15) + 3));
  EXPECT_EQ(plan->operators[1].op_type, "Tanh");
  EXPECT_EQ(plan->operators[1].forward_flops, 40);
}

// ---- Batches of several lengths ----

// Positions share weights, and a sample's state depends on all of them.
TrainingModel OfLength(const std::string& dim, int64_t longest = 0) {
  return MakeTrainingModel(
      absl::StrCat("(float[N,", dim,
                   ",2] x, float[1,12,2] w_in, float[1,12,3] w_state, "
                   "float[3,4] w_out) => (float[N,",
                   dim, ",4] y)"),
      "", R"(
      t = Transpose <perm = [1, 0, 2]> (x)
      states = LSTM <hidden_size = 3> (t, w_in, w_state)
      one = Constant <value_ints = [1]> ()
      s = Squeeze(states, one)
      by_sample = Transpose <perm = [1, 0, 2]> (s)
      y = MatMul(by_sample, w_out))",
      13, {longest > 0 ? dim : "", longest});
}

Executor::Options OfLengths(const std::vector<int64_t>& lengths) {
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 6;
  options.micro_batches = 2;
  options.recompute_segments = 2;
  options.eval_batch_size = 8;
  options.lengths = lengths;
  return options;
}

std::unique_ptr<Executor> Seeded(const TrainingModel& model,
                                 const Executor::Options& options) {
  auto executor = Executor::Create(model.model, model.training, options);
  EXPECT_TRUE(executor.ok()) << executor.status();
  Random random(5);
  for (size_t i = 0; i < model.training.parameters.size(); ++i) {
    for (float& v : (*executor)->parameter(static_cast<int>(i))) {
      v = static_cast<float>(random.Uniform() - 0.5);
    }
  }
  return *std::move(executor);
}

Batch BatchOfLength(int64_t size, int64_t length) {
  Batch batch;
  batch.size = size;
  batch.label_width = length;
  batch.feeds.emplace_back();
  Random random(static_cast<uint64_t>(length));
  for (int64_t i = 0; i < size * length * 2; ++i) {
    batch.feeds[0].push_back(static_cast<float>(random.Uniform()));
  }
  for (int64_t i = 0; i < size * length; ++i) {
    batch.labels.push_back(static_cast<float>(random.Below(4)));
  }
  return batch;
}

TEST(ExecutorTest, EachLengthIsComputedAsByAModelOfThatLength) {
  const std::vector<int64_t> lengths = {1, 3, 7};
  const TrainingModel all = OfLength("sequence", lengths.back());
  const auto executor = Seeded(all, OfLengths(lengths));
  // Back and forth, and with short batches.
  for (const auto& [length, size] :
       {std::pair<int64_t, int64_t>{7, 6}, {1, 6}, {3, 5}, {7, 1}, {3, 6}}) {
    SCOPED_TRACE(absl::StrCat("length ", length, ", ", size, " samples"));
    const TrainingModel fixed = OfLength(absl::StrCat(length));
    const auto alone = Seeded(fixed, OfLengths({}));
    Batch batch = BatchOfLength(size, length);
    const auto want = alone->TrainStep(batch, 3, 0, Ignore);
    const auto want_scores = alone->Evaluate(batch);
    batch.length = length;
    const auto got = executor->TrainStep(batch, 3, 0, Ignore);
    ASSERT_TRUE(want.ok() && got.ok()) << got.status();
    EXPECT_EQ(got->loss_sum, want->loss_sum);
    for (size_t i = 0; i < all.training.parameters.size(); ++i) {
      EXPECT_EQ(executor->gradient(static_cast<int>(i)),
                alone->gradient(static_cast<int>(i)));
    }
    const auto scores = executor->Evaluate(batch);
    ASSERT_TRUE(scores.ok() && want_scores.ok()) << scores.status();
    EXPECT_EQ(scores->positions, length);
    EXPECT_EQ(scores->scores, want_scores->scores);
  }
}

TEST(ExecutorTest, LengthsShareTheMemoryOfTheLongest) {
  const TrainingModel all = OfLength("sequence", 7);
  const TrainingModel longest = OfLength("7");
  const auto plan =
      Executor::Plan(all.model, all.training, OfLengths({1, 3, 7}));
  const auto alone =
      Executor::Plan(longest.model, longest.training, OfLengths({}));
  ASSERT_TRUE(plan.ok() && alone.ok()) << plan.status();
  EXPECT_EQ(plan->memory_bytes(), alone->memory_bytes());
  ASSERT_EQ(plan->lengths.size(), 3u);
  EXPECT_EQ(plan->lengths[2].length, 7);
  EXPECT_EQ(plan->lengths[2].arena_bytes, alone->training_arena_bytes);
  EXPECT_LT(plan->lengths[0].flops, plan->lengths[1].flops);
  EXPECT_TRUE(alone->lengths.empty());
  EXPECT_EQ(Seeded(all, OfLengths({1, 3, 7}))->memory_bytes(),
            alone->memory_bytes());
}

TEST(ExecutorTest, ALengthThatWasNotPlannedIsRefused) {
  const TrainingModel all = OfLength("sequence", 7);
  const auto executor = Seeded(all, OfLengths({3, 7}));
  Batch batch = BatchOfLength(2, 3);
  batch.length = 4;
  EXPECT_EQ(executor->TrainStep(batch, 0, 0, Ignore).status().message(),
            "a batch of length 4; this executor has plans for 3, 7");
}

// ---- What is refused, and how it is said ----

template <typename T>
void ExpectError(const absl::StatusOr<T>& result, absl::StatusCode code,
                 const std::string& message) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code);
  EXPECT_EQ(result.status().message(), message);
}

TrainingModel NormalizedColumn() {
  return MakeTrainingModel(
      "(float[N,1] x, float[1] w_s, float[1] w_b, float[1] w_running_mean, "
      "float[1] w_running_variance) => (float[N,1] y)",
      "",
      "y = BatchNormalization <epsilon = 0.0> (x, w_s, w_b, w_running_mean, "
      "w_running_variance)");
}

// The batch's mean and variance, times its samples, are handed out; evaluation
// reads what is stored.
TEST(ExecutorTest, RunningStatisticsFollowTheBatches) {
  Trainer t(NormalizedColumn(), LossSpec::MEAN_SQUARED_ERROR, 4);
  const float values[] = {3, 1, 10, 4};  // scale, bias, mean, variance
  for (int i = 0; i < 4; ++i) t.executor().parameter(i)[0] = values[i];
  Batch batch = t.MakeBatch(4);
  batch.feeds[0] = {1, 3, 5, 7};
  t.Step(batch);
  EXPECT_FLOAT_EQ(t.executor().gradient(2)[0], 4 * 4);
  EXPECT_FLOAT_EQ(t.executor().gradient(3)[0], 4 * 5);
  const auto evaluation = t.executor().Evaluate(batch);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  for (int i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(evaluation->scores[i],
                    (batch.feeds[0][i] - 10) / 2 * 3 + 1);
  }
}

// A batch of one sample hands out the running statistics themselves, and its
// scores are those of an evaluation.
TEST(ExecutorTest, ALastBatchOfOneSampleLeavesRunningStatisticsAsTheyAre) {
  Trainer t(NormalizedColumn(), LossSpec::MEAN_SQUARED_ERROR, 4);
  const float values[] = {3, 1, 10, 4};  // scale, bias, mean, variance
  for (int i = 0; i < 4; ++i) t.executor().parameter(i)[0] = values[i];
  Batch one = t.MakeBatch(1);
  one.feeds[0] = {7};
  EXPECT_EQ(t.Step(one), t.executor().Evaluate(one)->loss_sum);
  EXPECT_FLOAT_EQ(t.executor().gradient(2)[0], 10);
  EXPECT_FLOAT_EQ(t.executor().gradient(3)[0], 4);
  t.ExpectGradientsAreDerivatives(1);
}

TEST(ExecutorTest, BatchesWithoutAVarianceAreRefused) {
  const TrainingModel m = NormalizedColumn();
  Executor::Options options;
  options.loss.set_kind(LossSpec::MEAN_SQUARED_ERROR);
  options.batch_size = options.micro_batches = 4;
  // With 3 the parts have 1, 1 and 2 samples: those of 1 are no short batch.
  for (const int64_t parts : {4, 3}) {
    SCOPED_TRACE(parts);
    options.micro_batches = parts;
    const std::string refusal =
        "node \"BatchNormalization#0\" (BatchNormalization): a channel has 1 "
        "element in a training step, and so no variance; raise batch_size or "
        "lower micro_batches, or freeze the running mean and variance";
    ExpectError(Executor::Plan(m.model, m.training, options),
                absl::StatusCode::kInvalidArgument, refusal);
    ExpectError(Executor::Create(m.model, m.training, options),
                absl::StatusCode::kInvalidArgument, refusal);
  }
  options.micro_batches = 2;
  EXPECT_TRUE(Executor::Plan(m.model, m.training, options).ok());
}

// Parts have statistics of their own; their mean over all samples is handed
// out, whatever runs again.
TEST(ExecutorTest, StatisticsOfPartsAreWeighedByTheirSamples) {
  for (const int segments : {1, 2}) {
    const TrainingModel m = MakeTrainingModel(
        "(float[N,1] x, float[1] w_s, float[1] w_b, float[1] w_running_mean, "
        "float[1] w_running_variance, float[1] w_a) => (float[N,1] y)",
        "",
        "t = Mul(x, w_a)\n u = Tanh(t)\n"
        "n = BatchNormalization (x, w_s, w_b, w_running_mean, "
        "w_running_variance)\n s = Sigmoid(n)\n v = Mul(s, w_a)\n"
        "y = Add(u, v)");
    Trainer t(m, LossSpec::MEAN_SQUARED_ERROR, 5, /*micro_batches=*/2,
              segments);
    Batch batch = t.MakeBatch(5);
    batch.feeds[0] = {1, 3, 4, 8, 6};  // parts {1, 3} and {4, 8, 6}
    t.Step(batch);
    EXPECT_FLOAT_EQ(t.executor().gradient(2)[0], 2 * 2 + 3 * 6);
    EXPECT_FLOAT_EQ(t.executor().gradient(3)[0], 2 * 1 + 3 * (8.0f / 3));
  }
}

// 10 samples in 4 parts have 2, 3, 2 and 3: each has a variance of its own. A
// last batch of 5 has 1, 1, 1 and 2: those of one sample have none, and keep
// the running ones as they are.
TEST(ExecutorTest, UnevenPartsOfAFullBatchAreNoShortOnes) {
  Trainer t(NormalizedColumn(), LossSpec::MEAN_SQUARED_ERROR, 10,
            /*micro_batches=*/4);
  const float values[] = {3, 1, 10, 4};  // scale, bias, mean, variance
  for (int i = 0; i < 4; ++i) t.executor().parameter(i)[0] = values[i];
  Batch full = t.MakeBatch(10);
  full.feeds[0] = {1, 3, 1, 1, 4, 5, 9, 2, 2, 5};
  t.Step(full);
  EXPECT_FLOAT_EQ(t.executor().gradient(2)[0], 2 * 2 + 3 * 2 + 2 * 7 + 3 * 3);
  EXPECT_FLOAT_EQ(t.executor().gradient(3)[0], 2 * 1 + 3 * 2 + 2 * 4 + 3 * 2);
  Batch last = t.MakeBatch(5);
  last.feeds[0] = {1, 3, 1, 2, 6};
  t.Step(last);
  EXPECT_FLOAT_EQ(t.executor().gradient(2)[0], 3 * 10 + 2 * 4);
  EXPECT_FLOAT_EQ(t.executor().gradient(3)[0], 3 * 4 + 2 * 4);
}

TrainingModel TwiceNormalized() {
  return MakeTrainingModel(
      "(float[N,3] x, float[3,4] w_a, float[4] w_s, float[4] w_b, "
      "float[4] w_running_m, float[4] w_running_v, float[4,2] w_c, "
      "float[2] w_t, float[2] w_d, float[2] w_running_n, "
      "float[2] w_running_w) => (float[N,2] y)",
      "",
      "h = MatMul(x, w_a)\n"
      "n = BatchNormalization(h, w_s, w_b, w_running_m, w_running_v)\n"
      "r = Tanh(n)\n p = MatMul(r, w_c)\n"
      "q = BatchNormalization(p, w_t, w_d, w_running_n, w_running_w)\n"
      "y = Sigmoid(q)");
}

// Each of `samples` of `batch`, in this order.
Batch Pick(const Batch& batch, const std::vector<int64_t>& samples) {
  Batch picked;
  picked.size = static_cast<int64_t>(samples.size());
  picked.label_width = batch.label_width;
  picked.feeds.resize(batch.feeds.size());
  for (const int64_t sample : samples) {
    for (size_t f = 0; f < batch.feeds.size(); ++f) {
      const size_t width = batch.feeds[f].size() / batch.size;
      const auto first = batch.feeds[f].begin() + sample * width;
      picked.feeds[f].insert(picked.feeds[f].end(), first, first + width);
    }
    const auto first = batch.labels.begin() + sample * batch.label_width;
    picked.labels.insert(picked.labels.end(), first, first + batch.label_width);
  }
  return picked;
}

// Part k of the whole batch is part k of both halves; what runs again does not
// fold again.
TEST(ExecutorTest, FoldedStatisticsAreThoseOfTheWholeBatch) {
  const TrainingModel m = TwiceNormalized();
  constexpr auto kLoss = LossSpec::MEAN_SQUARED_ERROR;
  for (const int64_t parts : {1, 2}) {
    for (const int segments : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(parts, " parts, ", segments, " segments"));
      Trainer whole(m, kLoss, 8, parts);
      const Batch batch = whole.MakeBatch(8);
      const double loss = whole.Step(batch);
      ThreadFolds folds(2);
      Trainer even(m, kLoss, 4, parts, segments, 1, folds.of(0));
      Trainer odd(m, kLoss, 4, parts, segments, 1, folds.of(1));
      double even_loss = 0;
      std::thread other([&] {
        even_loss = even.Step(Pick(batch, {0, 1, 4, 5}));
      });
      const double odd_loss = odd.Step(Pick(batch, {2, 3, 6, 7}));
      other.join();
      EXPECT_NEAR(even_loss + odd_loss, loss, 1e-6 * loss);
      EXPECT_EQ(folds.count(), 4 * parts);
      const auto want = whole.Gradients();
      const auto a = even.Gradients();
      const auto b = odd.Gradients();
      for (int i = 0; i < whole.count(); ++i) {
        for (size_t j = 0; j < want[i].size(); ++j) {
          EXPECT_NEAR(a[i][j] + b[i][j], want[i][j],
                      2e-5 * std::max(1.0f, std::fabs(want[i][j])))
              << whole.name(i) << "[" << j << "]";
        }
      }
    }
  }
}

TEST(ExecutorTest, OnlyTheStepItselfFoldsStatistics) {
  ThreadFolds folds(1);
  Trainer t(TwiceNormalized(), LossSpec::MEAN_SQUARED_ERROR, 4, 1, 1, 1,
            folds.of(0));
  for (const int variance : {4, 9}) {
    for (float& v : t.executor().parameter(variance)) v = 1;
  }
  Batch batch = t.MakeBatch(4);
  ASSERT_TRUE(t.executor().Evaluate(batch).ok());
  EXPECT_EQ(folds.count(), 0);
  // The loss overflows, and the first node that is not finite is looked for.
  batch.labels[0] = std::numeric_limits<float>::max();
  ExpectError(t.executor().TrainStep(batch, 0, 0, Ignore),
              absl::StatusCode::kFailedPrecondition,
              "step at clock 0: the loss is inf: every node's output is "
              "finite, but the loss overflows");
  EXPECT_EQ(folds.count(), 2);
}

// The reduction of the statistics shows whether the other workers' parts have
// one element too.
TEST(ExecutorTest, PartsOfOneElementMayFoldTheirStatistics) {
  ThreadFolds folds(1);
  Trainer t(NormalizedColumn(), LossSpec::MEAN_SQUARED_ERROR, 4, 4, 1, 1,
            folds.of(0));
  t.executor().parameter(3)[0] = 1;  // the variance
  t.Step(t.MakeBatch(4));
  EXPECT_EQ(folds.count(), 4);
}

TEST(ExecutorTest, LabelsOutsideTheClassesAreNamed) {
  Trainer trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  for (const float bad : {3.0f, -1.0f, 0.5f, kNan}) {
    Batch batch = trainer.MakeBatch(4);
    batch.labels[2] = bad;
    const std::string message =
        absl::StrCat("label ", bad,
                     " of sample 2 in the batch is not one of the 3 classes 0 "
                     "to 2");
    ExpectError(trainer.executor().TrainStep(batch, 0, 0, Ignore),
                absl::StatusCode::kInvalidArgument, message);
    ExpectError(trainer.executor().Evaluate(batch),
                absl::StatusCode::kInvalidArgument, message);
  }
}

TEST(ExecutorTest, WhatAnOperatorCountsInAPartIsNamedWithThePart) {
  const TrainingModel m = MakeTrainingModel(
      "(float[N,2] x, int64[N,1] i, float[1] w_a) => (float[N,1] y)", "",
      "g = GatherElements <axis = 1> (x, i)\n y = Mul(g, w_a)");
  Batch batch;
  batch.size = 4;
  batch.feeds = {std::vector<float>(8, 1), {}};
  batch.int_feeds = {{}, {0, 1, 0, 2}};
  batch.labels.assign(4, 0);
  batch.label_width = 1;
  const std::string node = "node \"GatherElements#0\" (GatherElements)";
  const std::string problem = "is outside its dimension";
  Trainer whole(m, LossSpec::MEAN_SQUARED_ERROR, 4);
  ExpectError(whole.executor().TrainStep(batch, 0, 0, Ignore),
              absl::StatusCode::kInvalidArgument,
              absl::StrCat(node, ": index 2, number 3, ", problem));
  Trainer parts(m, LossSpec::MEAN_SQUARED_ERROR, 4, /*micro_batches=*/2);
  ExpectError(parts.executor().TrainStep(batch, 0, 0, Ignore),
              absl::StatusCode::kInvalidArgument,
              absl::StrCat(node, ", in the part of samples 2 to 3 of the batch",
                           ": index 2, number 1, ", problem));
}

TEST(ExecutorTest, BatchesThatDoNotFitAreRefused) {
  Trainer trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  const auto step = [&](const Batch& batch) {
    return trainer.executor().TrainStep(batch, 0, 0, Ignore);
  };
  ExpectError(step(trainer.MakeBatch(5)), absl::StatusCode::kInvalidArgument,
              "a batch of 5 samples; this executor takes 1 to 4");
  ExpectError(step(Batch()), absl::StatusCode::kInvalidArgument,
              "a batch of 0 samples; this executor takes 1 to 4");
  Batch batch = trainer.MakeBatch(2);
  batch.feeds[0].pop_back();
  ExpectError(step(batch), absl::StatusCode::kInvalidArgument,
              "graph input \"x\" takes 8 numbers for 2 samples, but is fed 7");
  batch = trainer.MakeBatch(2);
  batch.labels.push_back(0);
  ExpectError(step(batch), absl::StatusCode::kInvalidArgument,
              "a batch of 2 samples has 3 labels; the loss takes 1 a sample");
}

TEST(ExecutorTest, TheFirstNodeThatIsNotFiniteIsNamed) {
  Trainer trainer(
      MakeTrainingModel("(float[N,2] x, float[2] w_a) => (float[N,2] y)", "",
                        "a = Mul(x, w_a)\n b = Mul(a, a)\n"
                        "y = Add(b, b)"),
      LossSpec::MEAN_SQUARED_ERROR, 2);
  Batch batch = trainer.MakeBatch(2);
  batch.feeds[0] = {1, 1, 1, 1};
  trainer.executor().parameter(0)[1] = 1e30f;
  bool called = false;
  const auto result =
      trainer.executor().TrainStep(batch, 12, 0, [&](int) { called = true; });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(result.status().message(),
            "step at clock 12: the loss is inf: node \"Mul#1\" (Mul) output "
            "\"b\" is inf for sample 0 in the batch");
  EXPECT_FALSE(called);
}

TEST(ExecutorTest, SamplesOfPartsAreNamedAsThoseOfTheBatch) {
  Trainer trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 5,
                  /*micro_batches=*/2);
  Batch batch = trainer.MakeBatch(5);
  batch.feeds[0][4 * 4 + 1] = kNan;
  bool called = false;
  ExpectError(
      trainer.executor().TrainStep(batch, 0, 0, [&](int) { called = true; }),
      absl::StatusCode::kFailedPrecondition,
      "step at clock 0: the loss is nan: graph input \"x\" is nan for "
      "sample 4 in the batch");
  EXPECT_FALSE(called);
  batch.labels[3] = 9;
  ExpectError(trainer.executor().TrainStep(batch, 0, 0, Ignore),
              absl::StatusCode::kInvalidArgument,
              "label 9 of sample 3 in the batch is not one of the 3 classes 0 "
              "to 2");
}

TEST(ExecutorTest, NotANumberInTheDataIsNamedAsSuch) {
  Trainer trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  Batch batch = trainer.MakeBatch(4);
  batch.feeds[0][9] = kNan;
  ExpectError(trainer.executor().TrainStep(batch, 0, 0, Ignore),
              absl::StatusCode::kFailedPrecondition,
              "step at clock 0: the loss is nan: graph input \"x\" is nan for "
              "sample 2 in the batch");
  const auto evaluation = trainer.executor().Evaluate(batch);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_TRUE(std::isnan(evaluation->loss_sum));
  EXPECT_EQ(trainer.executor().WhyNotFinite(*evaluation),
            absl::FailedPreconditionError(
                "evaluation: the loss is nan: graph input \"x\" is nan for "
                "sample 2 in the batch"));
}

TEST(ExecutorTest, AParameterThatIsNotFiniteIsNamed) {
  Trainer trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  trainer.executor().parameter(1)[2] = kNan;
  ExpectError(trainer.executor().TrainStep(trainer.MakeBatch(4), 0, 0, Ignore),
              absl::StatusCode::kFailedPrecondition,
              "step at clock 0: the loss is nan: parameter \"w_b\" is nan");
}

TEST(ExecutorTest, ANodeThatCannotBeComputedIsNamedAtCreation) {
  const TrainingModel model = MakeTrainingModel(
      "(float[N,2] x, float[2] w_a) => (float[N,2] y)", "float ratio = {1.5}",
      "a = Mul(x, w_a)\n y = Dropout(a, ratio)");
  Executor::Options options;
  options.loss.set_kind(LossSpec::MEAN_SQUARED_ERROR);
  options.batch_size = 2;
  ExpectError(Executor::Create(model.model, model.training, options),
              absl::StatusCode::kInvalidArgument,
              "node \"Dropout#1\" (Dropout): ratio is 1.5; it must be in [0, "
              "1)");
}

TEST(ExecutorTest, AnInputThatNothingFeedsIsNamed) {
  TrainingModel model = Mlp();
  model.training.feeds = {};
  Executor::Options options;
  options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  options.batch_size = 2;
  ExpectError(Executor::Create(model.model, model.training, options),
              absl::StatusCode::kInvalidArgument,
              "\"x\" has no value: nothing feeds it");
}

// One model whose embedding is a dense parameter, or a table. `w_e` is read
// three times: twice with the same ids, once under another shape.
constexpr char kEmbeddings[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (int64[N,3] ids, float[N,2] x, int64[N] user, float[11,4] w_e, float[4,2] w_a)
  => (float[N,2] y)
<int64[1] one = {1}>
{
  a = Gather(w_e, ids)
  weights = Cast <to = 1> (ids)
  column = Unsqueeze(weights, two)
  b = Mul(a, column)
  c = ReduceSum <keepdims = 0> (b, one)
  again = Gather(w_e, ids)
  d = ReduceMean <axes = [1], keepdims = 0> (again)
  u = Unsqueeze(user, one)
  e = Gather(w_e, u)
  f = Squeeze(e, one)
  g1 = Add(c, d)
  g2 = Mul(g1, f)
  h = MatMul(g2, w_a)
  y = Add(h, x)
  two = Constant <value_ints = [2]> ()
})";

class TableTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBatch = 6;
  static constexpr int64_t kPadding = 0;

  // Feeds in the order ids, x, user.
  // `parts`: of a batch, and segments that are recomputed.
  std::unique_ptr<Executor> Create(bool table, int parts = 1) {
    std::vector<std::string> tables;
    if (table) tables.push_back("w_e");
    auto model = Model::Parse(kEmbeddings, "test", {"w_*"}, tables);
    EXPECT_TRUE(model.ok()) << model.status();
    const Graph& graph = (*model)->graph();
    TrainingGraph training;
    training.feeds = graph.inputs;
    training.loss_output = graph.outputs[0];
    for (const Initializer& initializer : graph.initializers) {
      const Value& value = graph.values[initializer.value];
      if (value.name[0] != 'w' || value.name[1] != '_') continue;
      if (table && value.name == "w_e") {
        TrainingTable found;
        found.value = initializer.value;
        found.name = value.name;
        found.dim = 4;
        for (size_t n = 0; n < graph.nodes.size(); ++n) {
          if (graph.nodes[n].op_type != "Gather") continue;
          found.lookups.push_back(
              {static_cast<int>(n), found.lookups.size() < 2 ? 0 : 2});
        }
        training.tables.push_back(found);
      } else {
        training.parameters.push_back({.value = initializer.value,
                                       .name = value.name,
                                       .dims = value.dims,
                                       .initializer = value.initializer});
      }
    }
    Executor::Options options;
    options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
    options.batch_size = kBatch;
    options.micro_batches = parts;
    options.recompute_segments = parts;
    options.eval_batch_size = kBatch;
    auto executor = Executor::Create(*model, training, options);
    EXPECT_TRUE(executor.ok()) << executor.status();
    return *std::move(executor);
  }

  static Batch MakeBatch(int64_t size, uint64_t seed) {
    Random random(seed);
    Batch batch;
    batch.size = size;
    batch.feeds.resize(3);
    batch.int_feeds.resize(3);
    for (int64_t i = 0; i < 3 * size; ++i) {
      batch.int_feeds[0].push_back(static_cast<int64_t>(random.Below(11)));
    }
    for (int64_t i = 0; i < 2 * size; ++i) {
      batch.feeds[1].push_back(static_cast<float>(random.Uniform()));
    }
    for (int64_t i = 0; i < size; ++i) {
      batch.int_feeds[2].push_back(static_cast<int64_t>(random.Below(11)));
      batch.labels.push_back(static_cast<float>(random.Below(2)));
    }
    return batch;
  }

  static std::unique_ptr<RowBatch> MakeRows(bool padded) {
    RowBatch::Options options;
    options.name = "w_e";
    options.dim = 4;
    options.samples_max = kBatch;
    options.lookups = {{.feed = 0, .ids_per_sample = 3},
                       {.feed = 0, .ids_per_sample = 3},
                       {.feed = 2, .ids_per_sample = 1}};
    if (padded) {
      for (auto& lookup : options.lookups) lookup.padding = kPadding;
    }
    options.with_gradients = true;
    return std::make_unique<RowBatch>(options, *TableMap::Create(256, 1));
  }

  static std::vector<float> Seeded(size_t count, uint64_t seed) {
    Random random(seed);
    std::vector<float> values(count);
    for (float& v : values) v = static_cast<float>(random.Uniform() - 0.5);
    return values;
  }
};

class TablePartsTest : public TableTest,
                       public ::testing::WithParamInterface<int> {};

TEST_P(TablePartsTest, RowsOfABatchAreTheDenseTablesBitForBit) {
  const auto dense = Create(false, GetParam());
  const auto sparse = Create(true, GetParam());
  const auto rows = MakeRows(/*padded=*/false);
  RowBatch* const tables[] = {rows.get()};
  sparse->UseTables(tables);
  const std::vector<float> values = Seeded(44, 1);
  const std::vector<float> a = Seeded(8, 2);
  std::copy(values.begin(), values.end(), dense->parameter(0).begin());
  std::copy(a.begin(), a.end(), dense->parameter(1).begin());
  std::copy(a.begin(), a.end(), sparse->parameter(0).begin());
  for (const int64_t size : {kBatch, int64_t{1}, kBatch, int64_t{4}}) {
    const Batch batch = MakeBatch(size, 7 + size);
    rows->Collect(batch);
    for (size_t i = 0; i < rows->keys().size(); ++i) {
      std::copy_n(values.begin() + 4 * rows->keys()[i], 4, rows->value(i));
    }
    const auto want = dense->TrainStep(batch, 0, 0, Ignore);
    const auto got = sparse->TrainStep(batch, 0, 0, Ignore);
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    EXPECT_EQ(got->loss_sum, want->loss_sum);
    EXPECT_EQ(sparse->gradient(0), dense->gradient(1));
    std::vector<float> table_gradient(44);
    for (size_t i = 0; i < rows->keys().size(); ++i) {
      std::copy_n(rows->gradient(i), 4,
                  table_gradient.begin() + 4 * rows->keys()[i]);
    }
    EXPECT_EQ(dense->gradient(0), absl::MakeConstSpan(table_gradient));
    const auto want_scores = dense->Evaluate(batch);
    const auto got_scores = sparse->Evaluate(batch);
    ASSERT_TRUE(want_scores.ok() && got_scores.ok());
    EXPECT_EQ(got_scores->scores, want_scores->scores);
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, TablePartsTest, ::testing::Values(1, 4));

TEST_F(TableTest, PaddingReadsZerosAndHasNoGradient) {
  const auto dense = Create(false);
  const auto sparse = Create(true);
  const auto rows = MakeRows(/*padded=*/true);
  RowBatch* const tables[] = {rows.get()};
  sparse->UseTables(tables);
  std::vector<float> values = Seeded(44, 1);
  std::fill_n(values.begin(), 4, 0.0f);  // key 0 is the padding
  const std::vector<float> a = Seeded(8, 2);
  std::copy(values.begin(), values.end(), dense->parameter(0).begin());
  std::copy(a.begin(), a.end(), dense->parameter(1).begin());
  std::copy(a.begin(), a.end(), sparse->parameter(0).begin());
  const Batch batch = MakeBatch(kBatch, 3);
  rows->Collect(batch);
  for (size_t i = 0; i < rows->keys().size(); ++i) {
    ASSERT_NE(rows->keys()[i], kPadding);
    std::copy_n(values.begin() + 4 * rows->keys()[i], 4, rows->value(i));
  }
  const auto want = dense->TrainStep(batch, 0, 0, Ignore);
  const auto got = sparse->TrainStep(batch, 0, 0, Ignore);
  ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
  EXPECT_EQ(got->loss_sum, want->loss_sum);
  EXPECT_EQ(sparse->gradient(0), dense->gradient(1));
}

TEST_F(TableTest, RowsOfAnotherBatchAreRefused) {
  const auto executor = Create(true);
  const Batch batch = MakeBatch(kBatch, 3);
  EXPECT_EQ(executor->TrainStep(batch, 0, 0, Ignore).status().message(),
            "table \"w_e\": its rows are not those of a batch of 6 samples");
  const auto rows = MakeRows(false);
  RowBatch* const tables[] = {rows.get()};
  executor->UseTables(tables);
  rows->Collect(MakeBatch(kBatch - 1, 3));
  EXPECT_EQ(executor->TrainStep(batch, 0, 0, Ignore).status().message(),
            "table \"w_e\": its rows are not those of a batch of 6 samples");
}

TEST_F(TableTest, ARowThatIsNotFiniteIsNamed) {
  const auto executor = Create(true);
  const auto rows = MakeRows(false);
  RowBatch* const tables[] = {rows.get()};
  executor->UseTables(tables);
  const Batch batch = MakeBatch(kBatch, 3);
  rows->Collect(batch);
  for (float& v : executor->parameter(0)) v = 1;
  rows->value(2)[3] = kNan;
  EXPECT_EQ(
      executor->TrainStep(batch, 5, 0, Ignore).status().message(),
      absl::StrCat("step at clock 5: the loss is nan: table \"w_e\" holds "
                   "NaN or infinity in the row of key ",
                   rows->keys()[2]));
}

}  // namespace
}  // namespace syncline::worker
