// Goal: all ranks agree on where epochs end, also where max_clocks cuts one.
// Method: examples.

#include "worker/data/epochs.h"

#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

TrainingSpec Training(uint32_t epochs, uint64_t max_clocks) {
  TrainingSpec training;
  training.set_epochs(epochs);
  training.set_max_clocks(max_clocks);
  return training;
}

TEST(EpochsTest, WholeEpochs) {
  const Epochs epochs = Epochs::Of(Training(3, 0), 10);
  EXPECT_EQ(epochs.clocks_total, 30);
  EXPECT_EQ(epochs.EndOf(0), 10);
  EXPECT_EQ(epochs.EndOf(9), 10);
  EXPECT_EQ(epochs.EndOf(10), 20);
  EXPECT_EQ(epochs.EndOf(29), 30);
  EXPECT_EQ(epochs.DoneAt(10), 1u);
  EXPECT_EQ(epochs.DoneAt(30), 3u);
}

TEST(EpochsTest, MaxClocksCutsTheLastEpoch) {
  const Epochs epochs = Epochs::Of(Training(3, 15), 10);
  EXPECT_EQ(epochs.clocks_total, 15);
  EXPECT_EQ(epochs.EndOf(10), 15);
  EXPECT_EQ(epochs.EndOf(14), 15);
  EXPECT_EQ(epochs.DoneAt(15), 2u) << "the one that was cut short counts";
}

TEST(EpochsTest, MaxClocksBeyondTheEndChangesNothing) {
  EXPECT_EQ(Epochs::Of(Training(3, 31), 10).clocks_total, 30);
}

}  // namespace
}  // namespace syncline::worker
