// Goal: one executor trains batches of several lengths, each as a model of that
// length would. Method: one recurrent model with a symbolic length, bit for bit
// against the same model with that length written into it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"

namespace syncline::worker {
namespace {

using testing::MakeTrainingModel;
using testing::TrainingModel;

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
    const auto want = alone->TrainStep(batch, 3, Ignore);
    const auto want_scores = alone->Evaluate(batch);
    batch.length = length;
    const auto got = executor->TrainStep(batch, 3, Ignore);
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
  EXPECT_EQ(executor->TrainStep(batch, 0, Ignore).status().message(),
            "a batch of length 4; this executor has plans for 3, 7");
}

}  // namespace
}  // namespace syncline::worker
