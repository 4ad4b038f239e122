#ifndef SYNCLINE_TESTS_UNIT_WORKER_COMPUTE_EXECUTOR_FIXTURE_H_
#define SYNCLINE_TESTS_UNIT_WORKER_COMPUTE_EXECUTOR_FIXTURE_H_

// The parts of executor_test share an executor with seeded parameters and
// batches, a small perceptron, and the check of an error's text.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tests/testing/training_model.h"
#include "worker/compute/executor.h"

namespace syncline::worker {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// For TrainStep's on_gradient.
inline void Ignore(int) {}

// An executor over a model, with seeded parameters and batches.
class SeededExecutor {
 public:
  SeededExecutor(const testing::TrainingModel& m, LossSpec::Kind loss,
                 int64_t batch_size, int64_t micro_batches = 1,
                 int recompute_segments = 1, int threads = 1,
                 StatisticsExchange* statistics = nullptr,
                 Device* device = nullptr, DType precision = DType::kFloat32,
                 int64_t batch_max = 0, bool takes_tf32 = false,
                 bool fuses = true)
      : model_(m), loss_(loss) {
    Executor::Options options;
    options.device = device;
    options.precision = precision;
    options.takes_tf32 = takes_tf32;
    options.fuses = fuses;
    options.loss.set_kind(loss);
    options.batch_size = batch_size;
    options.micro_batches = micro_batches;
    options.batch_max = batch_max;
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
    const auto result = executor_->TrainStep(batch, clock, Ignore);
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
  const testing::TrainingModel model_;
  const LossSpec::Kind loss_;
  std::unique_ptr<Executor> executor_;
};

inline testing::TrainingModel Mlp() {
  return testing::MakeTrainingModel(
      "(float[N,4] x, float[4,5] w_a, float[5] w_b, float[5,3] w_c, "
      "float[3] w_d) => (float[N,3] y)",
      "",
      "h = Gemm(x, w_a, w_b)\n"
      "r = Tanh(h)\n"
      "y = Gemm(r, w_c, w_d)");
}

// The result is exactly this error.
template <typename T>
void ExpectError(const absl::StatusOr<T>& result, absl::StatusCode code,
                 const std::string& message) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code);
  EXPECT_EQ(result.status().message(), message);
}

}  // namespace syncline::worker

#endif  // SYNCLINE_TESTS_UNIT_WORKER_COMPUTE_EXECUTOR_FIXTURE_H_
