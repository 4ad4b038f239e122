// Goal: tables get what they ask for, the others equal shares of the rest, and
// nobody more than there is.
// Method: examples.

#include "server/table_budget.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
constexpr uint64_t kMiB = 1 << 20;

std::vector<uint64_t> Memory(
    const absl::StatusOr<std::vector<TableBudget::Share>>& shares) {
  std::vector<uint64_t> bytes;
  if (!shares.ok()) return bytes;
  for (const TableBudget::Share& share : *shares) {
    bytes.push_back(share.memory_bytes / kMiB);
  }
  return bytes;
}

TEST(TableBudgetTest, OpenOnesShareWhatIsLeft) {
  TableBudget budget(100 * kMiB, 50 * kMiB);
  const auto shares =
      budget.Reserve("a", {{40 * kMiB, 0}, {0, 30 * kMiB}, {0, 0}});
  EXPECT_EQ(Memory(shares), (std::vector<uint64_t>{40, 30, 30}));
  EXPECT_EQ((*shares)[0].disk_bytes, 10 * kMiB);
  EXPECT_EQ((*shares)[1].disk_bytes, 30 * kMiB);
  EXPECT_EQ((*shares)[2].disk_bytes, 10 * kMiB);
}

TEST(TableBudgetTest, AJobThatEndsGivesBack) {
  TableBudget budget(10 * kMiB, 0);
  EXPECT_EQ(Memory(budget.Reserve("a", {{6 * kMiB, 0}})),
            (std::vector<uint64_t>{6}));
  const auto more = budget.Reserve("b", {{6 * kMiB, 0}});
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()),
              HasSubstr("ask for 6291456 bytes of memory, 4194304 of 10485760 "
                        "are left (--table-memory)"));
  EXPECT_EQ(Memory(budget.Reserve("b", {{0, 0}})), (std::vector<uint64_t>{4}));
  budget.Release("a");
  EXPECT_EQ(Memory(budget.Reserve("c", {{0, 0}})), (std::vector<uint64_t>{6}));
}

TEST(TableBudgetTest, TooLittleMemoryIsAnErrorAndTooLittleDiskIsNone) {
  TableBudget budget(3 * kMiB, kMiB);
  const auto shares = budget.Reserve("a", {{0, 0}, {0, 0}, {0, 0}});
  EXPECT_EQ(Memory(shares), (std::vector<uint64_t>{1, 1, 1}));
  EXPECT_EQ((*shares)[0].disk_bytes, 0u);
  budget.Release("a");
  const auto tight = budget.Reserve("b", {{0, 0}, {0, 0}, {0, 0}, {0, 0}});
  EXPECT_THAT(std::string(tight.status().message()),
              HasSubstr("786432 bytes of memory are left for each"));
  const auto disk = budget.Reserve("c", {{0, 2 * kMiB}});
  EXPECT_THAT(std::string(disk.status().message()), HasSubstr("--table-disk"));
}

}  // namespace
}  // namespace syncline
