// Goal: on_gradient comes in the order and at the time that its contract says,
// and a step's bits depend on the clock and the rank, not on threads or on an
// earlier step. Method: small perceptrons, the order of the calls, and the bits
// of steps that are repeated. The parts beside: executor_gradient_test.cc
// (derivatives), executor_memory_test.cc, executor_length_test.cc (batches of
// several lengths), executor_statistics_test.cc (batch normalization),
// executor_refusal_test.cc (errors), executor_table_test.cc (embedding rows).

#include "worker/compute/executor.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/poisoned_device.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/executor_fixture.h"

namespace syncline::worker {
namespace {

using testing::MakeTrainingModel;
using testing::TrainingModel;

TEST(ExecutorTest, LastLayersGradientsComeFirst) {
  SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  std::vector<std::string> order;
  const auto result = trainer.executor().TrainStep(
      trainer.MakeBatch(4), 0,
      [&](int i) { order.push_back(trainer.name(i)); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(order, (std::vector<std::string>{"w_c", "w_d", "w_a", "w_b"}));
}

// The last layer's gradient must travel while the first one's is computed.
TEST(ExecutorTest, AGradientIsReportedBeforeTheNextIsComputed) {
  SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
  // All of them when the last layer's is reported.
  std::vector<std::vector<float>> then;
  const auto result =
      trainer.executor().TrainStep(trainer.MakeBatch(4), 0, [&](int i) {
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

// A device that is behind the host: what is recorded is done once somebody
// waits for it.
class LateDevice : public testing::PoisonedDevice {
 public:
  absl::StatusOr<std::unique_ptr<Event>> MakeEvent() override {
    return std::make_unique<LateEvent>();
  }

 private:
  class LateEvent : public Event {
   public:
    void Record(Stream& stream) override { is_done_ = false; }
    bool IsDone() override { return is_done_; }
    absl::Status Wait() override {
      is_done_ = true;
      return absl::OkStatus();
    }

   private:
    bool is_done_ = true;
  };
};

// A log of gradients that are queued and ready, in order.
class GradientLog : public GradientListener {
 public:
  GradientLog(SeededExecutor& trainer, Device& device)
      : trainer_(trainer), stream_(*device.MakeStream()) {
    trainer_.executor().UseGradientListener(this);
  }
  ~GradientLog() override { trainer_.executor().UseGradientListener(nullptr); }

  void OnGradientQueued(int i, const float* values, Event& done) override {
    events.push_back(
        absl::StrCat(done.IsDone() ? "done " : "queued ", trainer_.name(i)));
    stream_->Wait(done);
    on_device.resize(trainer_.count());
    on_device[i].resize(trainer_.executor().gradient(i).size());
    stream_->CopyToHost(on_device[i].data(), values,
                        on_device[i].size() * sizeof(float));
  }
  void OnGradient(int i) {
    events.push_back(absl::StrCat("ready ", trainer_.name(i)));
  }

  std::vector<std::string> events;
  std::vector<std::vector<float>> on_device;  // by parameter

 private:
  SeededExecutor& trainer_;
  const std::unique_ptr<Stream> stream_;
};

TEST(ExecutorTest, AGradientIsHeardOfWithItsEventBeforeItIsOnTheHost) {
  LateDevice device;
  for (const int64_t parts : {1, 2}) {
    SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4, parts,
                           /*recompute_segments=*/1, /*threads=*/1,
                           /*statistics=*/nullptr, &device);
    GradientLog log(trainer, device);
    const auto result = trainer.executor().TrainStep(
        trainer.MakeBatch(4), 0, [&](int i) { log.OnGradient(i); });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(log.events,
              (std::vector<std::string>{
                  "queued w_c", "queued w_d", "queued w_a", "queued w_b",
                  "ready w_c", "ready w_d", "ready w_a", "ready w_b"}));
    EXPECT_EQ(log.on_device, trainer.Gradients());
  }
}

TEST(ExecutorTest, AParameterWithoutAPathToTheLossHasAZeroGradient) {
  SeededExecutor trainer(
      MakeTrainingModel(
          "(float[N,3] x, float[3,2] w_a, float[2] w_unused) => (float[N,2] y)",
          "", "z = Mul(w_unused, w_unused)\n y = MatMul(x, w_a)"),
      LossSpec::MEAN_SQUARED_ERROR, 2);
  trainer.Step(trainer.MakeBatch(2));
  EXPECT_EQ(trainer.Gradients()[1], (std::vector<float>{0, 0}));
}

TEST(ExecutorTest, ParametersAndGradientsAreAlignedAndStay) {
  SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 4);
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
  SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 8);
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
  SeededExecutor one(model, LossSpec::MEAN_SQUARED_ERROR, 16);
  SeededExecutor three(model, LossSpec::MEAN_SQUARED_ERROR, 16,
                       /*micro_batches=*/1,
                       /*recompute_segments=*/1, /*threads=*/3);
  const Batch batch = one.MakeBatch(16);
  EXPECT_EQ(one.Step(batch), three.Step(batch));
  EXPECT_EQ(one.Gradients(), three.Gradients());
}

TEST(ExecutorTest, GradientsOfPartsAddUpToThoseOfTheWhole) {
  SeededExecutor trainer(Mlp(), LossSpec::SOFTMAX_CROSS_ENTROPY, 6);
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

// The samples of a batch from `first` on, as another worker or part has them.
Batch Share(const Batch& batch, int64_t first, int64_t count, int64_t width) {
  Batch share = batch;
  share.size = count;
  share.first_in_step = batch.first_in_step + first;
  for (std::vector<float>* values : {&share.feeds[0], &share.labels}) {
    const auto begin = values->begin() + first * width;
    *values = std::vector<float>(begin, begin + count * width);
  }
  return share;
}

TEST(ExecutorTest,
     ASampleHasItsDropoutMaskOnWhicheverWorkerAndInWhicheverPart) {
  constexpr int64_t kWidth = 51;  // samples begin within blocks of Philox
  const TrainingModel model =
      MakeTrainingModel("(float[N,51] x, float[51] w_a) => (float[N,51] y)", "",
                        "a = Mul(x, w_a)\n y = Dropout(a)");
  SeededExecutor whole(model, LossSpec::MEAN_SQUARED_ERROR, 6);
  const Batch batch = whole.MakeBatch(6);
  const double loss = whole.Step(batch);
  for (const int parts : {2, 3, 5}) {
    SeededExecutor in_parts(model, LossSpec::MEAN_SQUARED_ERROR, 6, parts);
    EXPECT_NEAR(in_parts.Step(batch), loss, 1e-6 * loss) << parts;
  }
  SeededExecutor worker(model, LossSpec::MEAN_SQUARED_ERROR, 2);
  double sum = 0;
  for (const int64_t first : {0, 2, 4}) {
    sum += worker.Step(Share(batch, first, 2, kWidth));
  }
  EXPECT_NEAR(sum, loss, 1e-6 * loss);
}

TEST(ExecutorTest, ALargerBatchThanUsualIsRunInMoreParts) {
  const TrainingModel model = Mlp();
  SeededExecutor whole(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 9);
  SeededExecutor usual(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 3);
  SeededExecutor grows(model, LossSpec::SOFTMAX_CROSS_ENTROPY, 3,
                       /*micro_batches=*/1, /*recompute_segments=*/1,
                       /*threads=*/1, /*statistics=*/nullptr,
                       /*device=*/nullptr, DType::kFloat32, /*batch_max=*/9);
  for (const int64_t size : {3, 2}) {
    const Batch batch = whole.MakeBatch(size);
    EXPECT_EQ(grows.Step(batch), usual.Step(batch)) << "in one part";
    EXPECT_EQ(grows.Gradients(), usual.Gradients());
  }
  for (const int64_t size : {9, 5, 4}) {
    const Batch batch = whole.MakeBatch(size);
    const double loss = whole.Step(batch);
    EXPECT_NEAR(grows.Step(batch), loss, 1e-6 * loss);
    const auto want = whole.Gradients();
    const auto got = grows.Gradients();
    for (size_t i = 0; i < want.size(); ++i) {
      for (size_t j = 0; j < want[i].size(); ++j) {
        EXPECT_NEAR(got[i][j], want[i][j], 1e-5);
      }
    }
  }
  EXPECT_FALSE(grows.executor().TrainStep(whole.MakeBatch(10), 0, Ignore).ok());
}

TEST(ExecutorTest, DropoutDependsOnClockAndPlaceInTheStepAndNothingElse) {
  SeededExecutor trainer(
      MakeTrainingModel("(float[N,50] x, float[50] w_a) => (float[N,50] y)", "",
                        "a = Mul(x, w_a)\n y = Dropout(a)"),
      LossSpec::MEAN_SQUARED_ERROR, 2);
  Batch batch = trainer.MakeBatch(2);
  const auto loss = [&](int64_t clock, int64_t first_in_step) {
    batch.first_in_step = first_in_step;
    return trainer.executor().TrainStep(batch, clock, Ignore)->loss_sum;
  };
  const double first = loss(1, 0);
  EXPECT_NE(loss(2, 0), first);
  EXPECT_NE(loss(1, 2), first);
  EXPECT_EQ(loss(1, 0), first);
}

TEST(ExecutorTest, EvaluationIsTheForwardPassWithoutDropout) {
  SeededExecutor trainer(
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

}  // namespace
}  // namespace syncline::worker
