// Goal: the next attempt of a job has as many workers as its spec and its users
// say. Method: records with each combination of fields.

#include "scheduler/core/job/worker_range.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

// "least wanted most".
std::string Range(uint32_t workers, uint32_t least, uint32_t most,
                  uint32_t scaled = 0, int had = 0) {
  JobStatus job;
  ResourcesSpec* const resources = job.mutable_spec()->mutable_resources();
  resources->set_workers(workers);
  resources->set_min_workers(least);
  resources->set_max_workers(most);
  job.set_wanted_workers(scaled);
  for (int i = 0; i < had; ++i) job.add_workers();
  const WorkerRange range = RangeOf(job);
  return absl::StrCat(range.least, " ", range.wanted, " ", range.most);
}

TEST(WorkerRangeTest, TheSpecSaysHowMany) {
  EXPECT_EQ(Range(3, 0, 0), "3 3 3");
  EXPECT_EQ(Range(3, 0, 0, 0, 3), "3 3 3");
  EXPECT_EQ(Range(3, 2, 0), "2 3 3");
  EXPECT_EQ(Range(3, 0, 5), "3 3 5");
  EXPECT_EQ(Range(3, 1, 5), "1 3 5");
  EXPECT_EQ(Range(3, 1, 5, 0, 2), "1 3 5");
}

TEST(WorkerRangeTest, UsersSayItAnew) {
  EXPECT_EQ(Range(3, 0, 0, 2, 3), "2 2 2");
  EXPECT_EQ(Range(3, 0, 0, 2), "2 2 2") << "it has not begun";
  EXPECT_EQ(Range(3, 1, 5, 4), "1 4 4") << "no more than was said";
  EXPECT_EQ(Range(3, 3, 5, 4, 3), "3 4 4");
}

// Of a job that has been in SYNC, from clock 40 on in ASYNC, and is in `last`
// from clock 60 on; its checkpoint is at `checkpoint`, 0: it has none.
JobStatus Switched(int64_t checkpoint, ConsistencySpec::Mode last) {
  JobStatus job;
  ResourcesSpec* const resources = job.mutable_spec()->mutable_resources();
  resources->set_workers(3);
  resources->set_min_workers(2);
  resources->set_max_workers(5);
  for (int i = 0; i < 3; ++i) job.add_workers();
  const auto begin = [&](int64_t clock, ConsistencySpec::Mode mode) {
    Regime* const regime = job.add_regimes()->mutable_regime();
    regime->set_first_clock(clock);
    regime->mutable_consistency()->set_mode(mode);
  };
  begin(0, ConsistencySpec::SYNC);
  begin(40, ConsistencySpec::ASYNC);
  begin(60, last);
  if (checkpoint > 0) job.add_checkpoints()->set_clock(checkpoint);
  return job;
}

TEST(WorkerRangeTest, WhereWorkersAreNotAtOneClockNobodyTakesTheirPlaces) {
  const auto most = [](int64_t checkpoint) {
    return RangeOf(Switched(checkpoint, ConsistencySpec::SYNC)).most;
  };
  EXPECT_EQ(most(0), 5u);
  EXPECT_EQ(most(39), 5u);
  EXPECT_EQ(most(40), 3u) << "it goes on in ASYNC";
  EXPECT_EQ(most(50), 3u);
  EXPECT_EQ(most(60), 3u) << "of the last clock in ASYNC";
  EXPECT_EQ(most(61), 5u);
  const WorkerRange fixed = RangeOf(Switched(50, ConsistencySpec::SYNC));
  EXPECT_EQ(fixed.least, 3u);
  EXPECT_EQ(fixed.wanted, 3u);
  // The present mode decides for a job that saves now.
  EXPECT_EQ(RangeAfterSave(Switched(50, ConsistencySpec::SYNC)).most, 5u);
  EXPECT_EQ(RangeAfterSave(Switched(30, ConsistencySpec::ASYNC)).most, 3u);
}

TEST(WorkerRangeTest, LeasedClocksAreTheSameForAnyWorkers) {
  JobStatus job = Switched(50, ConsistencySpec::ASYNC);
  EXPECT_EQ(RangeOf(job).most, 3u);
  job.mutable_spec()->mutable_data()->set_sharing(DataSpec::LEASED);
  EXPECT_EQ(RangeOf(job).most, 5u);
  EXPECT_EQ(RangeOf(job).least, 2u);
  EXPECT_EQ(RangeAfterSave(job).most, 5u);
}

TEST(WorkerRangeTest, AJobThatWasScaledUpGoesOnWithWhatItHad) {
  EXPECT_EQ(Range(2, 0, 0, 4, 2), "2 4 4");
  EXPECT_EQ(Range(2, 0, 0, 4, 3), "3 4 4");
  EXPECT_EQ(Range(2, 0, 0, 4, 4), "4 4 4");
}

}  // namespace
}  // namespace syncline::scheduler
