// Goal: of each key the newest state that names it counts, and what does not
// fit together is refused.
// Method: parts by hand. tests/simulation/checkpoint_chain_test.cc has whole
// chains against a reference.

#include "common/state/row_chain.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

TablePart Part(uint32_t first, uint32_t count, bool changes_only) {
  TablePart part;
  TablePart::Run* const run = part.add_slots();
  run->set_first(first);
  run->set_count(count);
  part.set_changes_only(changes_only);
  return part;
}

TEST(RowChainTest, TheNewestStateThatNamesAKeyCounts) {
  RowChain chain;
  std::string problem;
  chain.Begin({8});
  ASSERT_TRUE(chain.OpenPart(Part(0, 4, true), &problem));
  EXPECT_TRUE(chain.TakeRow(1));
  chain.TakeGone(2);
  ASSERT_TRUE(chain.OpenPart(Part(4, 4, false), &problem));
  EXPECT_TRUE(chain.TakeRow(50));
  ASSERT_TRUE(chain.Missing().has_value());
  EXPECT_EQ(chain.Missing()->slot, 0u);
  chain.EndNewest();
  // In another order, and with a row of its own.
  ASSERT_TRUE(chain.OpenPart(Part(4, 4, true), &problem));
  EXPECT_FALSE(chain.PartCounts()) << "a newer part has all of its rows";
  EXPECT_FALSE(chain.TakeRow(51));
  ASSERT_TRUE(chain.OpenPart(Part(0, 4, true), &problem));
  EXPECT_TRUE(chain.PartCounts());
  EXPECT_FALSE(chain.TakeRow(1));
  EXPECT_FALSE(chain.TakeRow(2));
  EXPECT_TRUE(chain.TakeRow(3));
  EXPECT_TRUE(chain.Missing().has_value());
  ASSERT_TRUE(chain.OpenPart(Part(0, 4, false), &problem));
  EXPECT_FALSE(chain.TakeRow(2));
  EXPECT_FALSE(chain.TakeRow(3));
  EXPECT_TRUE(chain.TakeRow(4));
  EXPECT_FALSE(chain.Missing().has_value());
}

TEST(RowChainTest, PartsThatDoNotFitAreRefused) {
  RowChain chain;
  std::string problem;
  chain.Begin({8});
  ASSERT_TRUE(chain.OpenPart(Part(0, 2, true), &problem));
  EXPECT_FALSE(chain.OpenPart(Part(1, 2, true), &problem));
  EXPECT_THAT(problem, HasSubstr("slot 1 comes twice"));
  ASSERT_TRUE(chain.OpenPart(Part(4, 2, false), &problem));
  chain.EndNewest();
  EXPECT_FALSE(chain.OpenPart(Part(6, 1, false), &problem));
  EXPECT_THAT(problem, HasSubstr("slot 6 is in no newer file"));
  TablePart across = Part(1, 1, false);
  *across.add_slots() = Part(4, 1, false).slots(0);
  EXPECT_FALSE(chain.OpenPart(across, &problem));
  EXPECT_THAT(problem, HasSubstr("slot 4 is in a part of other slots"));
  EXPECT_FALSE(chain.PartCounts());
  EXPECT_FALSE(chain.TakeRow(7));
}

}  // namespace
}  // namespace syncline
