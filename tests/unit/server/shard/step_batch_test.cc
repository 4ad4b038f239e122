// Goal: steps keep their order in each lane, neighbouring rows become one step,
// and callbacks come when the lanes they depend on have come to them. Method:
// batches for two lanes, whose countdowns the test runs as the lanes do.

#include "server/shard/step_batch.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = ShardAction::Kind;

// One list of three slots: 2, 1 and 3 rows.
std::shared_ptr<CallRows> ThreeSlots() {
  auto call = std::make_shared<CallRows>();
  call->lists.resize(1);
  call->lists[0].keys = {10, 11, 12, 20, 21, 22};
  call->lists[0].runs = {{5, 0, 2}, {6, 2, 1}, {7, 3, 3}};
  return call;
}

void RunLane(StepBatch* batch, int lane) {
  for (const LaneStep& step : batch->TakeSteps(lane)) {
    if (step.countdown == nullptr) continue;
    if (step.countdown->left.fetch_sub(1) == 1) step.countdown->then();
  }
}

ShardAction Apply(BlockIndex block, int64_t clock) {
  return {.kind = Kind::kApply, .block = block, .clock = clock};
}

TEST(StepBatchTest, RowsOfNeighbouringSlotsBecomeOneStep) {
  const auto call = ThreeSlots();
  StepBatch batch(2);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    batch.AddRows(0, Apply(100 + slot, 4), {RowsOfSlot(call, slot, 0)});
  }
  ASSERT_THAT(batch.lanes()[0], SizeIs(1));
  const RowsStep& step = *batch.lanes()[0][0].rows;
  EXPECT_EQ(step.block, 100u);
  ASSERT_THAT(step.ranks, SizeIs(1));
  EXPECT_THAT(step.ranks[0].keys(), ElementsAre(10, 11, 12, 20, 21, 22));
}

TEST(StepBatchTest, OtherRowsAreStepsOfTheirOwn) {
  const auto call = ThreeSlots();
  const auto rows = [&](uint32_t slot, uint32_t rank) {
    return std::vector<CallRowSpan>{RowsOfSlot(call, slot, rank)};
  };
  StepBatch batch(2);
  batch.AddRows(0, Apply(100, 4), rows(0, 0));
  batch.AddRows(0, Apply(101, 5), rows(1, 0));  // another clock
  batch.AddRows(0, Apply(102, 5), rows(2, 1));  // another rank
  batch.AddRows(0, Apply(100, 5), rows(0, 1));  // not behind the last
  batch.Add(0, {.kind = Kind::kApply, .block = 0});
  batch.AddRows(0, Apply(101, 5), rows(1, 1));  // a dense block in between
  batch.AddRows(1, Apply(102, 5), rows(2, 1));  // another lane
  EXPECT_THAT(batch.lanes()[0], SizeIs(6));
  EXPECT_THAT(batch.lanes()[1], SizeIs(1));
}

TEST(StepBatchTest, AVisitLiesBetweenTheRowsOfALane) {
  const auto call = ThreeSlots();
  StepBatch batch(2);
  std::vector<int> visited;
  batch.AddRows(0, Apply(100, 4), {RowsOfSlot(call, 0, 0)});
  batch.VisitLanes([&](int lane) { visited.push_back(lane); });
  batch.AddRows(0, Apply(101, 4), {RowsOfSlot(call, 1, 0)});
  ASSERT_THAT(batch.lanes()[0], SizeIs(3)) << "rows that it parts";
  ASSERT_THAT(batch.lanes()[1], SizeIs(1));
  (*batch.lanes()[1][0].visit)(1);
  (*batch.lanes()[0][1].visit)(0);
  EXPECT_THAT(visited, ElementsAre(1, 0));
}

TEST(StepBatchTest, ACallbackFollowsTheLastLaneThatHasSteps) {
  for (const bool all_lanes : {false, true}) {
    StepBatch batch(3);
    batch.Add(0, {.kind = Kind::kApply});
    batch.Add(2, {.kind = Kind::kApply});
    int ran = 0;
    if (all_lanes) {
      batch.AfterAllLanes([&] { ++ran; });
    } else {
      batch.AfterSteps([&] { ++ran; });
    }
    EXPECT_EQ(batch.empty(1), !all_lanes);
    // A later step does not delay the callback.
    batch.Add(0, {.kind = Kind::kApply});
    batch.RunCallbacks();
    RunLane(&batch, 2);
    RunLane(&batch, 0);
    EXPECT_EQ(ran, all_lanes ? 0 : 1);
    RunLane(&batch, 1);
    EXPECT_EQ(ran, 1);
  }
}

TEST(StepBatchTest, WithoutStepsACallbackComesWithTheEndedCalls) {
  StepBatch batch(2);
  std::vector<absl::Status> order;
  batch.End([&](absl::Status status, PullValues) { order.push_back(status); },
            absl::CancelledError("first"));
  batch.AfterSteps([&] { order.push_back(absl::OkStatus()); });
  EXPECT_THAT(order, IsEmpty());
  batch.RunCallbacks();
  EXPECT_THAT(order,
              ElementsAre(absl::CancelledError("first"), absl::OkStatus()));
}

}  // namespace
}  // namespace syncline::ps
