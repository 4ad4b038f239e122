// Goal: the samples of a clock are shared so that none is lost or doubled, and
// an attempt with another number of workers keeps them. Method: all small
// numbers of samples, workers and batches.

#include "common/job/step_shares.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

JobSpec Training(uint32_t batch, uint32_t micro_batches, uint32_t global) {
  JobSpec spec;
  TrainingSpec* const training = spec.mutable_training();
  training->set_batch_size(batch);
  training->set_micro_batches(micro_batches);
  training->set_global_batch(global);
  return spec;
}

TEST(StepSharesTest, WithoutGlobalBatchEachWorkerHasABatch) {
  const StepShares shares = SharesOf(Training(32, 4, 0), 3);
  EXPECT_EQ(shares.samples, 96);
  EXPECT_EQ(shares.largest, 32);
  EXPECT_EQ(shares.parts, 4);
}

TEST(StepSharesTest, AShareIsComputedInPartsOfABatch) {
  EXPECT_EQ(SharesOf(Training(32, 1, 96), 3).parts, 1);
  EXPECT_EQ(SharesOf(Training(32, 1, 96), 2).largest, 48);
  EXPECT_EQ(SharesOf(Training(32, 1, 96), 2).parts, 2);
  EXPECT_EQ(SharesOf(Training(32, 1, 97), 3).parts, 2);
  // A worker computes 8 at once.
  EXPECT_EQ(SharesOf(Training(32, 4, 96), 3).parts, 4);
  EXPECT_EQ(SharesOf(Training(32, 4, 96), 1).parts, 12);
  for (uint32_t batch = 1; batch < 6; ++batch) {
    for (uint32_t workers = 1; workers < 6; ++workers) {
      for (uint32_t global = workers; global < 30; ++global) {
        const StepShares shares = SharesOf(Training(batch, 1, global), workers);
        EXPECT_EQ(shares.samples, global);
        EXPECT_GE(shares.largest * workers, global);
        EXPECT_LT((shares.largest - 1) * workers, global);
        // No part is larger than a batch, and there is none too many.
        EXPECT_GE(shares.parts * batch, shares.largest);
        EXPECT_LT((shares.parts - 1) * batch, shares.largest);
      }
    }
  }
}

TEST(StepSharesTest, AnAttemptWithOtherWorkersKeepsTheSamples) {
  JobSpec spec = Training(32, 1, 0);
  spec.mutable_resources()->set_workers(3);
  const JobSpec same = SpecForWorkers(spec, 3);
  EXPECT_EQ(same.training().global_batch(), 0u) << "the same bits as ever";
  for (uint32_t workers = 1; workers < 9; ++workers) {
    const JobSpec other = SpecForWorkers(spec, workers);
    EXPECT_EQ(other.resources().workers(), workers);
    EXPECT_EQ(SharesOf(other).samples, 96);
  }
  spec.mutable_training()->set_global_batch(50);
  EXPECT_EQ(SharesOf(SpecForWorkers(spec, 7)).samples, 50);
}

TEST(StepSharesTest, AClockOfLeasedDataIsABatchWhateverTheWorkers) {
  JobSpec spec = Training(32, 4, 0);
  spec.mutable_data()->set_sharing(DataSpec::LEASED);
  spec.mutable_resources()->set_workers(3);
  for (uint32_t workers = 1; workers < 9; ++workers) {
    const JobSpec attempt = SpecForWorkers(spec, workers);
    EXPECT_EQ(attempt.training().global_batch(), 0u);
    EXPECT_EQ(SharesOf(attempt).samples, 32);
    EXPECT_EQ(SharesOf(attempt).largest, 32);
    EXPECT_EQ(SharesOf(attempt).parts, 4);
  }
}

}  // namespace
}  // namespace syncline
