#ifndef SYNCLINE_TESTS_UNIT_WORKER_COMPUTE_DEVICE_STEPS_H_
#define SYNCLINE_TESTS_UNIT_WORKER_COMPUTE_DEVICE_STEPS_H_

// Whole training steps on another device than this machine's processors:
// executor_cuda_test has an emulated one, tests/gpu a GPU.

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"
#include "tests/testing/arrays.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"

namespace syncline::worker {

// The parts of a transformer's block, its attention as products and a softmax.
inline testing::TrainingModel Block() {
  return testing::MakeTrainingModel(
      "(float[N,4,6] x, float[6] w_s, float[6] w_b, float[6,6] w_q, "
      "float[6,6] w_k, float[6,6] w_v, float[6,12] w_u, float[12] w_c, "
      "float[12,6] w_d, float[24,3] w_o, float[3] w_p) => (float[N,3] y)",
      "float scale = {0.4}",
      "n = LayerNormalization <axis = -1> (x, w_s, w_b)\n"
      "q = MatMul(n, w_q)\n k = MatMul(n, w_k)\n v = MatMul(n, w_v)\n"
      "t = Transpose <perm = [0, 2, 1]> (k)\n p = MatMul(q, t)\n"
      "z = Mul(p, scale)\n a = Softmax(z)\n h = MatMul(a, v)\n"
      "r = Add(x, h)\n u = MatMul(r, w_u)\n c = Add(u, w_c)\n"
      "g = Gelu(c)\n d = MatMul(g, w_d)\n e = Add(r, d)\n"
      "f = Flatten <axis = 1> (e)\n y = Gemm(f, w_o, w_p)",
      20);
}

// Operators that a GPU computes together: a block whose sums are normalised at
// once, by either operator, and whose products have biases and both functions.
// Rows of `width` elements.
inline testing::TrainingModel FusedBlock(int width) {
  const std::string square = absl::StrCat("float[", width, ",", width, "] ");
  const std::string row = absl::StrCat("float[", width, "] ");
  return testing::MakeTrainingModel(
      absl::StrCat("(float[N,3,", width, "] x, ", square, "w_a, ", row, "w_b, ",
                   row, "w_s, ", row, "w_t, ", square, "w_u, ", row, "w_c, ",
                   square, "w_d, ", row, "w_e, ", row, "w_r, ", square, "w_f, ",
                   row, "w_g, ", square, "w_h, float[", 3 * width,
                   ",3] w_o, float[3] w_p) => (float[N,3] y)"),
      "",
      "m = MatMul(x, w_a)\n h = Add(m, w_b)\n s = Add(x, h)\n"
      "n = LayerNormalization(s, w_s, w_t)\n"
      "u = MatMul(n, w_u)\n c = Add(u, w_c)\n"
      "g = Gelu <approximate = \"tanh\"> (c)\n"
      "d = MatMul(g, w_d)\n e = Add(w_e, d)\n r = Add(s, e)\n"
      "o = RMSNormalization(r, w_r)\n"
      "f = MatMul(o, w_f)\n k = Add(f, w_g)\n l = Relu(k)\n"
      "q = MatMul(l, w_h)\n z = Add(r, q)\n"
      "v = Flatten <axis = 1> (z)\n y = Gemm(v, w_o, w_p)",
      23);
}

// A perceptron of Gemms, with a function after each but the last.
inline testing::TrainingModel Gemms(const std::string& function) {
  return testing::MakeTrainingModel(
      "(float[N,5] x, float[5,16] w_a, float[16] w_b, float[24,16] w_c, "
      "float[24] w_d, float[24,3] w_e, float[3] w_f) => (float[N,3] y)",
      "",
      absl::StrCat("h = Gemm(x, w_a, w_b)\n g = ", function,
                   "(h)\n i = Gemm <transB = 1> (g, w_c, w_d)\n j = ", function,
                   "(i)\n y = Gemm(j, w_e, w_f)"),
      20);
}

// Convolutions, the second one in groups, with batch normalisation and pooling.
inline testing::TrainingModel Convolutions() {
  return testing::MakeTrainingModel(
      "(float[N,2,7,6] x, float[6,2,3,3] w_a, float[6] w_b, float[6] w_s, "
      "float[6] w_t, float[6] w_running_m, float[6] w_running_v, "
      "float[6,3,3,3] w_c, "
      "float[6,3] w_o, float[3] w_p) => (float[N,3] y)",
      "",
      "a = Conv <pads = [1, 1, 1, 1], strides = [2, 1]> (x, w_a, w_b)\n"
      "b = BatchNormalization(a, w_s, w_t, w_running_m, "
      "w_running_v)\n"
      "r = Relu(b)\n p = MaxPool <kernel_shape = [2, 2]> (r)\n"
      "c = Conv <group = 2, pads = [1, 1, 1, 1]> (p, w_c)\n"
      "g = GlobalAveragePool(c)\n f = Flatten <axis = 1> (g)\n"
      "y = Gemm(f, w_o, w_p)",
      20);
}

// Two steps and evaluations of a seeded model on `device` are those of this
// machine; the second batch is smaller. `tolerance` is relative to 1 or more.
inline void ExpectSameStepsOn(Device* device, const testing::TrainingModel& m,
                              int64_t micro_batches, int segments, DType type,
                              double tolerance) {
  constexpr auto kLoss = LossSpec::SOFTMAX_CROSS_ENTROPY;
  SeededExecutor here(m, kLoss, 6, micro_batches, segments, 1, nullptr,
                      /*device=*/nullptr, type);
  SeededExecutor there(m, kLoss, 6, micro_batches, segments, 1, nullptr, device,
                       type);
  for (const int64_t size : {6, 4}) {
    const Batch batch = here.MakeBatch(size);
    const double loss = here.Step(batch);
    EXPECT_NEAR(there.Step(batch), loss, tolerance * loss);
    const auto want = here.Gradients();
    const auto got = there.Gradients();
    for (int i = 0; i < here.count(); ++i) {
      SCOPED_TRACE(here.name(i));
      testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, tolerance);
    }
    // Variances that were drawn may be negative: NaN is NaN on both.
    const auto want_loss = here.executor().Evaluate(batch);
    const auto evaluated = there.executor().Evaluate(batch);
    ASSERT_OK(want_loss.status());
    ASSERT_OK(evaluated.status());
    EXPECT_EQ(std::isnan(evaluated->loss_sum), std::isnan(want_loss->loss_sum));
    if (std::isnan(want_loss->loss_sum)) continue;
    EXPECT_NEAR(evaluated->loss_sum, want_loss->loss_sum, tolerance * loss);
  }
}

// Steps that `keeps` keeps as graphs have the bits of those whose calls
// `queues` gets one by one: losses and gradients, of batches that differ, with
// values that change.
inline void ExpectSameBitsAsQueued(Device* queues, Device* keeps,
                                   const testing::TrainingModel& m,
                                   int64_t micro_batches, DType type) {
  ASSERT_FALSE(queues->has_graphs());
  ASSERT_TRUE(keeps->has_graphs());
  constexpr auto kLoss = LossSpec::SOFTMAX_CROSS_ENTROPY;
  SeededExecutor queued(m, kLoss, 6, micro_batches, 1, 1, nullptr, queues,
                        type);
  SeededExecutor kept(m, kLoss, 6, micro_batches, 1, 1, nullptr, keeps, type);
  for (int clock = 0; clock < 9; ++clock) {
    SCOPED_TRACE(clock);
    const Batch batch = queued.MakeBatch(clock % 3 == 2 ? 4 : 6, clock);
    EXPECT_EQ(kept.Step(batch, clock), queued.Step(batch, clock));
    const auto gradients = queued.Gradients();
    EXPECT_EQ(kept.Gradients(), gradients);
    for (SeededExecutor* const executor : {&queued, &kept}) {
      for (int i = 0; i < executor->count(); ++i) {
        if (m.training.parameters[i].momentum.has_value()) continue;
        const auto value = executor->executor().parameter(i);
        for (size_t k = 0; k < value.size(); ++k) {
          value[k] -= gradients[i][k] / 64;
        }
      }
    }
  }
}

// A mask of each step.
inline testing::TrainingModel Masked() {
  return testing::MakeTrainingModel(
      "(float[N,4] x, float[4,37] w_a, float[37] w_b, float[37,3] w_c) "
      "=> (float[N,3] y)",
      "float ratio = {0.4}",
      "h = Gemm(x, w_a, w_b)\n d = Dropout(h, ratio)\n"
      "r = Tanh(d)\n e = Dropout(r, ratio)\n y = MatMul(e, w_c)");
}

}  // namespace syncline::worker

#endif  // SYNCLINE_TESTS_UNIT_WORKER_COMPUTE_DEVICE_STEPS_H_
