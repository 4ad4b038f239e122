// Goal: a job that does not fit into memory is told the settings with which it
// would.
// Method: plans of a small model against memory that is given; what is proposed
// is planned again.

#include "worker/compute/batch_fit.h"

#include <algorithm>
#include <string>

#include "common/system/memory_claim.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/training_model.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;
using testing::MakeTrainingModel;
using testing::TrainingModel;

TEST(LargestThatFitsTest, FindsTheEdge) {
  for (int64_t edge = 0; edge <= 20; ++edge) {
    const auto fits = [&](int64_t n) { return n <= edge; };
    EXPECT_EQ(LargestThatFits(20, fits), edge);
    EXPECT_EQ(LargestThatFits(7, fits), std::min<int64_t>(edge, 7));
  }
  EXPECT_EQ(LargestThatFits(0, [](int64_t) { return true; }), 0);
}

class DescribeFitTest : public ::testing::Test {
 protected:
  // Activations of 64 KiB a sample.
  const TrainingModel model_ = MakeTrainingModel(
      "(float[N,16] x, float[16,8192] w_a, float[8192,2] w_b) => "
      "(float[N,2] y)",
      "",
      R"(h = MatMul(x, w_a)
         r = Tanh(h)
         y = MatMul(r, w_b))");

  static Executor::Options OptionsFor(int64_t batch, int64_t evaluated) {
    Executor::Options options;
    options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
    options.batch_size = batch;
    options.eval_batch_size = evaluated;
    return options;
  }
  // The memory that is available if exactly these batches fit.
  uint64_t RoomFor(int64_t batch, int64_t evaluated) const {
    // In parts, which take more than whole batches.
    Executor::Options options = OptionsFor(2 * batch, evaluated);
    options.micro_batches = 2;
    const auto plan = Executor::Plan(model_.model, model_.training, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return static_cast<uint64_t>(plan->memory_bytes()) + kMemoryKeptFreeBytes;
  }
  std::string Describe(int64_t batch, int64_t evaluated, uint64_t room) const {
    return DescribeFit(model_.model, model_.training,
                       OptionsFor(batch, evaluated), room);
  }
};

TEST_F(DescribeFitTest, ProposesTheLargestBatchAndTheFewestParts) {
  const uint64_t room = RoomFor(96, 0);
  EXPECT_EQ(Describe(1000, 96, room),
            "training.micro_batches: 11 or training.batch_size: 96 would fit");
  EXPECT_LE(RoomFor(96, 96), room);
  EXPECT_GT(RoomFor(97, 96), room);
}

TEST_F(DescribeFitTest, ProposesASmallerEvaluation) {
  const std::string said = Describe(16, 100'000, RoomFor(16, 512));
  EXPECT_THAT(said, HasSubstr("training.eval_batch_size: "));
  EXPECT_THAT(said, ::testing::Not(HasSubstr("training.batch_size")));
}

TEST_F(DescribeFitTest, ProposesNoTrainingBatchToAnEvaluator) {
  Executor::Options options = OptionsFor(2, 512);
  options.trains = false;
  const auto plan = Executor::Plan(model_.model, model_.training, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const uint64_t room =
      static_cast<uint64_t>(plan->memory_bytes()) + kMemoryKeptFreeBytes;
  const auto describe = [&](int64_t evaluated, uint64_t bytes) {
    options.eval_batch_size = evaluated;
    return DescribeFit(model_.model, model_.training, options, bytes);
  };
  EXPECT_EQ(describe(100'000, room), "training.eval_batch_size: 512 would fit");
  EXPECT_THAT(describe(512, room), HasSubstr("try again"));
  EXPECT_THAT(describe(512, kMemoryKeptFreeBytes),
              HasSubstr("not even one sample"));
}

TEST_F(DescribeFitTest, SaysThatNothingWouldFit) {
  EXPECT_THAT(Describe(16, 16, kMemoryKeptFreeBytes),
              HasSubstr("not even one sample a batch would fit"));
}

TEST_F(DescribeFitTest, SaysThatThereIsRoomAgain) {
  EXPECT_THAT(Describe(16, 16, RoomFor(64, 64)), HasSubstr("try again"));
}

}  // namespace
}  // namespace syncline::worker
