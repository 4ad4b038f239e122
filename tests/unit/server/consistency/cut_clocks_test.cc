// Goal: a cut is announced only where every worker can still reach its clock.
// Method: two workers at different clocks, in each consistency mode.

#include "server/consistency/cut_clocks.h"

#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/cuts/cut_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

class CutClocksTest : public ::testing::Test {
 protected:
  CutClocksTest() {
    options_.workers.resize(2);
    options_.block_count = 1;
    options_.label = "job j-0001";
  }
  // A push of the open clock; it closes it unless another block is to come.
  void Push(uint32_t rank, bool closes = true, bool finishes = false) {
    PushFacts push;
    push.clock = workers_[rank].closed();
    push.blocks_in_clock = 1;
    push.blocks = {0};
    push.finished = finishes;
    workers_[rank].Open(push);
    if (closes) {
      workers_[rank].Receive(0);
      workers_[rank].Close();
    }
  }
  absl::Status Check(std::vector<int64_t> clocks) const {
    return CheckCutClocks(options_, workers_, clocks);
  }
  std::vector<int64_t> Smallest(std::vector<int64_t> clocks) const {
    return SmallestCutClocks(options_.regimes, workers_, clocks);
  }

  const RegimeSchedule kAsync{TrainingRegime{.mode = ConsistencyMode::kAsync}};
  ConsistencyOptions options_;
  std::vector<PushLedger> workers_{2, PushLedger(1)};
};

TEST_F(CutClocksTest, ACutHasOneClockOfEachWorker) {
  EXPECT_TRUE(Check({0, 0}).ok());
  EXPECT_EQ(Check({0}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Check({0, 0, 0}).message(), HasSubstr("a cut of 3 clocks"));
}

// They come from a peer, and are reckoned with.
TEST_F(CutClocksTest, AClockIsOneThatAnIdOfACutCanHave) {
  EXPECT_TRUE(Check({kCutClockMax, kCutClockMax}).ok());
  for (const int64_t clock :
       {kCutClockMax + 1, int64_t{-1}, std::numeric_limits<int64_t>::max(),
        std::numeric_limits<int64_t>::min()}) {
    const absl::Status refused = Check({clock, clock});
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(refused.message(), HasSubstr(absl::StrCat("clock ", clock)));
  }
}

TEST_F(CutClocksTest, NoWorkerIsPastTheCut) {
  Push(0);
  Push(1, /*closes=*/false);
  EXPECT_TRUE(Check({1, 1}).ok()) << "an open clock belongs before the cut";
  const absl::Status late = Check({1, 0});
  EXPECT_EQ(late.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(late.message(), HasSubstr("at clocks 1,1"));
}

TEST_F(CutClocksTest, TheSmallestCutIsBehindWhatHasArrived) {
  Push(0);
  Push(0, /*closes=*/false);
  options_.regimes = kAsync;
  EXPECT_EQ(Smallest({0, 0}), (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(Smallest({3, 1}), (std::vector<int64_t>{3, 1}));
}

TEST_F(CutClocksTest, ClocksAreAsCloseAsTheModeAllows) {
  EXPECT_EQ(Check({3, 4}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(Check({3, 4}).message(),
              HasSubstr("possible one is at clocks 4,4"));
  options_.regimes = RegimeSchedule(TrainingRegime{
      .mode = ConsistencyMode::kBoundedStaleness, .staleness_bound = 2});
  // The chief reads at 5 before it awaits the cut, and at 6 would wait for the
  // worker that the cut holds at 3.
  EXPECT_TRUE(Check({3, 5}).ok());
  EXPECT_THAT(Check({3, 6}).message(), HasSubstr("3 apart"));
  options_.regimes = kAsync;
  EXPECT_TRUE(Check({3, 70}).ok());
}

// The clocks between the smallest and the largest one of a cut count.
TEST_F(CutClocksTest, ClocksAreAsCloseAsTheirRegimesAllow) {
  options_.regimes = kAsync;
  ASSERT_TRUE(options_.regimes
                  .Add({.first_clock = 10,
                        .mode = ConsistencyMode::kBoundedStaleness,
                        .staleness_bound = 2},
                       0)
                  .ok());
  ASSERT_TRUE(options_.regimes.Add({.first_clock = 20}, 0).ok());
  EXPECT_TRUE(Check({3, 9}).ok()) << "at 9, who reads waits for none";
  EXPECT_THAT(Check({3, 10}).message(), HasSubstr("allows 6"));
  EXPECT_TRUE(Check({8, 10}).ok());
  EXPECT_THAT(Check({8, 11}).message(), HasSubstr("allows 2"));
  EXPECT_TRUE(Check({17, 19}).ok());
  EXPECT_TRUE(Check({18, 19}).ok());
  EXPECT_THAT(Check({18, 20}).message(), HasSubstr("allows 1"))
      << "no clock of SYNC is applied without the worker that is held";
  EXPECT_TRUE(Check({20, 20}).ok());
  EXPECT_THAT(Check({20, 21}).message(), HasSubstr("allows 0"));
}

// A regime that was added while the job runs may forbid what a member asks for
// by the regimes that it knows: it is told where the cut can be.
TEST_F(CutClocksTest, ClocksThatAreTooFarApartAreRaised) {
  options_.regimes = kAsync;
  ASSERT_TRUE(options_.regimes
                  .Add({.first_clock = 10,
                        .mode = ConsistencyMode::kBoundedStaleness,
                        .staleness_bound = 2},
                       0)
                  .ok());
  ASSERT_TRUE(options_.regimes.Add({.first_clock = 20}, 0).ok());
  EXPECT_EQ(Smallest({3, 11}), (std::vector<int64_t>{9, 11}));
  EXPECT_EQ(Smallest({8, 30}), (std::vector<int64_t>{30, 30}));
  EXPECT_EQ(Smallest({95, 103}), (std::vector<int64_t>{103, 103}));
  for (const std::vector<int64_t>& clocks :
       {std::vector<int64_t>{3, 11}, {0, 19}, {7, 30}, {19, 40}}) {
    EXPECT_EQ(Check(Smallest(clocks)), absl::OkStatus());
  }
  Push(0);
  Push(0);
  Push(0, /*closes=*/true, /*finishes=*/true);
  EXPECT_EQ(Smallest({3, 1}), (std::vector<int64_t>{3, 1}));
}

TEST_F(CutClocksTest, AWorkerThatHasFinishedHoldsUpNone) {
  Push(0, /*closes=*/true, /*finishes=*/true);
  ASSERT_TRUE(workers_[0].finished());
  EXPECT_TRUE(Check({1, 9}).ok());
}

// In SYNC its last clocks are not applied before the others have made them.
TEST_F(CutClocksTest, ACutHasTheLastClocksOfAWorkerThatHasFinished) {
  Push(0);
  Push(0);
  Push(0, /*closes=*/true, /*finishes=*/true);
  EXPECT_THAT(Check({3, 1}).message(), HasSubstr("2 apart"));
  EXPECT_THAT(Check({9, 2}).message(), HasSubstr("1 apart"));
  EXPECT_TRUE(Check({3, 3}).ok());
  options_.regimes = RegimeSchedule(TrainingRegime{
      .mode = ConsistencyMode::kBoundedStaleness, .staleness_bound = 1});
  EXPECT_TRUE(Check({3, 2}).ok()) << "it is applied as soon as it comes";
  EXPECT_FALSE(Check({3, 1}).ok());
}

}  // namespace
}  // namespace syncline::ps
