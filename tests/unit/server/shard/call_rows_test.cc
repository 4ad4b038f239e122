// Goal: rows of a call are found by slot, and gradients are kept by rank
// whatever the order of arrival. Method: examples.

#include "server/shard/call_rows.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two lists: slots of 2 and 1 rows, and one slot of 3.
std::shared_ptr<CallRows> TwoLists() {
  auto call = std::make_shared<CallRows>();
  call->lists.resize(2);
  call->lists[0].keys = {10, 11, 12};
  call->lists[0].runs = {{5, 0, 2}, {6, 2, 1}};
  call->lists[0].first = 100;
  call->lists[1].keys = {20, 21, 22};
  call->lists[1].runs = {{5, 0, 3}};
  return call;
}

TEST(CallRowsTest, SlotsAreCountedOverAllLists) {
  const auto call = TwoLists();
  EXPECT_THAT(RowsOfSlot(call, 0, 0).keys(), ElementsAre(10, 11));
  EXPECT_THAT(RowsOfSlot(call, 1, 0).keys(), ElementsAre(12));
  EXPECT_THAT(RowsOfSlot(call, 2, 0).keys(), ElementsAre(20, 21, 22));
  EXPECT_EQ(RowsOfSlot(call, 1, 0).first_element(4), 108u);
}

TEST(CallRowsTest, NeighboursGoOnWithEachOtherInOneList) {
  const auto call = TwoLists();
  const CallRowSpan first = RowsOfSlot(call, 0, 0);
  EXPECT_TRUE(first.IsFollowedBy(RowsOfSlot(call, 1, 0)));
  EXPECT_FALSE(first.IsFollowedBy(RowsOfSlot(call, 1, 1)));  // another rank
  EXPECT_FALSE(first.IsFollowedBy(RowsOfSlot(call, 2, 0)));
  EXPECT_FALSE(RowsOfSlot(call, 1, 0).IsFollowedBy(first));
}

TEST(CallRowsTest, GradientsAreKeptByRankUntilTheyAreTaken) {
  SlotGradients slots(2);
  const auto call = TwoLists();
  for (const uint32_t rank : {2u, 0u, 1u}) {
    slots.Buffer(1, RowsOfSlot(call, 0, rank));
  }
  std::vector<uint32_t> ranks;
  for (const CallRowSpan& range : slots.Take(1)) ranks.push_back(range.rank);
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(slots.Take(1), IsEmpty());
  EXPECT_EQ(call.use_count(), 1);  // nothing holds on to the call
}

TEST(CallRowsTest, OneRanksGradientsAreTakenAlone) {
  SlotGradients slots(1);
  const auto call = TwoLists();
  for (const uint32_t rank : {0u, 1u, 2u}) {
    slots.Buffer(0, RowsOfSlot(call, 0, rank));
  }
  ASSERT_EQ(slots.TakeOf(0, 1).size(), 1u);
  EXPECT_THAT(slots.TakeOf(0, 1), IsEmpty());
  ASSERT_EQ(slots.Of(0).size(), 2u);
  EXPECT_EQ(slots.Of(0)[0].rank, 0u);
  EXPECT_EQ(slots.Of(0)[1].rank, 2u);
}

}  // namespace
}  // namespace syncline::ps
