// Goal: the exactly-once record of one worker.
// Method: examples of each refusal, and of a clock's life.

#include "server/consistency/push_ledger.h"

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

PushFacts Facts(int64_t clock, uint64_t samples, uint32_t blocks_in_clock,
                std::vector<BlockIndex> blocks) {
  PushFacts push;
  push.clock = clock;
  push.sample_count = samples;
  push.blocks_in_clock = blocks_in_clock;
  push.blocks = std::move(blocks);
  return push;
}

TEST(PushLedgerTest, AClockClosesWhenItsBlocksHaveArrived) {
  PushLedger worker(3);
  const PushFacts push = Facts(0, 4, 2, {0, 2});
  ASSERT_TRUE(worker.CheckOpenPush(push).ok());
  EXPECT_TRUE(worker.Open(push));
  EXPECT_FALSE(worker.Open(push));
  EXPECT_TRUE(worker.Receive(0));
  EXPECT_FALSE(worker.Receive(0));
  EXPECT_FALSE(worker.complete());
  EXPECT_EQ(worker.clocks_of(0), 1);
  EXPECT_EQ(worker.clocks_of(2), 0);
  EXPECT_TRUE(worker.Receive(2));
  EXPECT_TRUE(worker.complete());
  worker.Close();
  EXPECT_EQ(worker.closed(), 1);
  EXPECT_EQ(worker.clocks_of(1), 1);
  EXPECT_FALSE(worker.started());
  EXPECT_FALSE(worker.finished());
  EXPECT_TRUE(worker.Open(Facts(1, 4, 1, {0})));
  EXPECT_TRUE(worker.Receive(0));
}

TEST(PushLedgerTest, TheLastClockFinishes) {
  PushLedger worker(1);
  PushFacts push = Facts(0, 0, 0, {});
  push.finished = true;
  ASSERT_TRUE(worker.CheckOpenPush(push).ok());
  worker.Open(push);
  EXPECT_TRUE(worker.complete());
  EXPECT_FALSE(worker.finished());
  worker.Close();
  EXPECT_TRUE(worker.finished());
}

TEST(PushLedgerTest, RefusesContradictions) {
  PushLedger worker(3);
  EXPECT_FALSE(worker.CheckOpenPush(Facts(0, 4, 4, {0})).ok());
  EXPECT_FALSE(worker.CheckOpenPush(Facts(0, 0, 1, {0})).ok());
  EXPECT_FALSE(worker.CheckOpenPush(Facts(0, 4, 1, {0, 1})).ok());
  EXPECT_TRUE(worker.CheckOpenPush(Facts(0, 4, 0, {})).ok());

  const PushFacts first = Facts(0, 4, 2, {0});
  worker.Open(first);
  worker.Receive(0);
  EXPECT_FALSE(worker.CheckOpenPush(Facts(0, 5, 2, {1})).ok());
  EXPECT_FALSE(worker.CheckOpenPush(Facts(0, 4, 3, {1})).ok());
  PushFacts other = Facts(0, 4, 2, {1});
  other.finished = true;
  EXPECT_FALSE(worker.CheckOpenPush(other).ok());
  other = Facts(0, 4, 2, {1});
  other.squared_norm = 1;
  EXPECT_FALSE(worker.CheckOpenPush(other).ok());
  EXPECT_FALSE(worker.CheckOpenPush(Facts(0, 4, 2, {1, 2})).ok());
  EXPECT_TRUE(worker.CheckOpenPush(Facts(0, 4, 2, {0, 1})).ok());
}

TEST(PushLedgerTest, ALeasedClockClosesThoseBeforeTheNext) {
  PushLedger worker(2);
  worker.ImportAhead(10, 12, /*finished=*/false);
  EXPECT_EQ(worker.closed(), 12);
  EXPECT_EQ(worker.cut_from(), 10);
  EXPECT_EQ(worker.readable(), 12);
  PushFacts push = Facts(12, 4, 2, {0});
  push.close_until = 17;
  ASSERT_TRUE(worker.CheckOpenPush(push).ok());
  worker.Open(push);
  worker.Receive(0);
  EXPECT_EQ(worker.clocks_of(0), 17) << "a pull that came with it is answered";
  EXPECT_EQ(worker.clocks_of(1), 12);
  EXPECT_EQ(worker.cut_from(), 13);
  EXPECT_EQ(worker.readable(), 17);
  EXPECT_FALSE(worker.CheckOpenPush(Facts(12, 4, 2, {1})).ok())
      << "another next clock";
  worker.Receive(1);
  worker.Close();
  EXPECT_EQ(worker.closed(), 17);
  EXPECT_EQ(worker.pushed(), 13);
  EXPECT_EQ(worker.cut_from(), 13);
  EXPECT_EQ(worker.clocks_of(1), 17);
}

TEST(PushLedgerTest, TheClocksOfALostWorkerAreThoseThatReturn) {
  PushLedger worker(2);
  worker.ImportAhead(10, 12, /*finished=*/false);
  worker.Abandon();
  EXPECT_EQ(worker.closed(), 12) << "nothing of the clock had arrived";
  PushFacts push = Facts(12, 4, 2, {0});
  push.close_until = 17;
  worker.Open(push);
  worker.Receive(0);
  worker.Abandon();
  EXPECT_EQ(worker.closed(), 17);
  EXPECT_EQ(worker.cut_from(), 13);
  worker.GoOnAt(20);
  EXPECT_EQ(worker.closed(), 20);
  EXPECT_EQ(worker.cut_from(), 13) << "a cut may be before the clock";
  PushFacts last = Facts(20, 4, 2, {0, 1});
  last.finished = true;
  worker.Open(last);
  worker.Abandon();
  EXPECT_TRUE(worker.finished());
  worker.GoOnAt(20);
  EXPECT_FALSE(worker.finished());
}

TEST(PushLedgerTest, ALedgerGoesOnFromAState) {
  PushLedger worker(2);
  worker.Import(7, /*finished=*/false);
  EXPECT_EQ(worker.closed(), 7);
  EXPECT_EQ(worker.clocks_of(1), 7);
  EXPECT_FALSE(worker.started());
  EXPECT_TRUE(worker.Open(Facts(7, 4, 1, {1})));
  EXPECT_TRUE(worker.Receive(1));
  worker.Close();
  EXPECT_EQ(worker.closed(), 8);
  PushLedger finished(2);
  finished.Import(7, /*finished=*/true);
  EXPECT_TRUE(finished.finished());
}

}  // namespace
}  // namespace syncline::ps
