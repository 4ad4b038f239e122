// Goal: tables get the memory that they ask for, the others equal shares of the
// rest, and all together no more than there is.
// Method: examples.

#include "server/tables/table_budget.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;
constexpr uint64_t kMiB = 1 << 20;

std::vector<uint64_t> Memory(
    const absl::StatusOr<TableBudget::Reservation>& reserved) {
  std::vector<uint64_t> bytes;
  if (!reserved.ok()) return bytes;
  for (const TableBudget::Share& share : reserved->shares()) {
    bytes.push_back(share.memory_bytes / kMiB);
  }
  return bytes;
}

std::shared_ptr<TableBudget> Budget(uint64_t memory, uint64_t disk) {
  return std::make_shared<TableBudget>(memory, disk);
}

TEST(TableBudgetTest, OpenOnesShareWhatIsLeft) {
  const auto budget = Budget(100 * kMiB, 50 * kMiB);
  const auto reserved =
      budget->Reserve({{40 * kMiB, 0}, {0, 30 * kMiB}, {0, 0}});
  EXPECT_EQ(Memory(reserved), (std::vector<uint64_t>{40, 30, 30}));
  EXPECT_EQ(reserved->shares()[0].disk_bytes, 10 * kMiB);
  EXPECT_EQ(reserved->shares()[1].disk_bytes, 30 * kMiB);
  EXPECT_EQ(reserved->shares()[2].disk_bytes, 10 * kMiB);
}

// Three shards of a job, one after the other.
TEST(TableBudgetTest, OpenOnesLeaveRoomForTheShardsToCome) {
  const auto budget = Budget(90 * kMiB, 0);
  const std::vector<TableBudget::Share> asked = {{10 * kMiB, 0}, {0, 0}};
  const auto first = budget->Reserve(asked, /*parts=*/3);
  const auto second = budget->Reserve(asked, /*parts=*/2);
  const auto third = budget->Reserve(asked);
  for (const auto* const shares : {&first, &second, &third}) {
    EXPECT_EQ(Memory(*shares), (std::vector<uint64_t>{10, 20}));
  }
}

// Shares of the shards to come are not given to tables that ask for nothing.
TEST(TableBudgetTest, OpenOnesLeaveWhatTheShardsToComeAskFor) {
  const auto budget = Budget(100 * kMiB, 100 * kMiB);
  const std::vector<TableBudget::Share> asked = {{35 * kMiB, 20 * kMiB},
                                                 {0, 0}};
  const auto first = budget->Reserve(asked, /*parts=*/2);
  EXPECT_EQ(Memory(first), (std::vector<uint64_t>{35, 15}));
  EXPECT_EQ(first->shares()[1].disk_bytes, 30 * kMiB);
  const auto second = budget->Reserve(asked);
  EXPECT_EQ(Memory(second), (std::vector<uint64_t>{35, 15}));
  EXPECT_EQ(second->shares()[1].disk_bytes, 30 * kMiB);
  EXPECT_EQ(Budget(100 * kMiB, 0)
                ->Reserve({{60 * kMiB, 0}}, /*parts=*/2)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(TableBudgetTest, AJobThatEndsGivesBack) {
  const auto budget = Budget(10 * kMiB, 0);
  auto first = budget->Reserve({{6 * kMiB, 0}});
  EXPECT_EQ(Memory(first), (std::vector<uint64_t>{6}));
  const auto more = budget->Reserve({{6 * kMiB, 0}});
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()),
              HasSubstr("ask for 6291456 bytes of memory, 4194304 of 10485760 "
                        "are left (--table-memory)"));
  const auto rest = budget->Reserve({{0, 0}});
  EXPECT_EQ(Memory(rest), (std::vector<uint64_t>{4}));
  TableBudget::Reservation moved = *std::move(first);
  EXPECT_FALSE(budget->Reserve({{0, 0}}).ok());
  moved = TableBudget::Reservation();
  EXPECT_EQ(Memory(budget->Reserve({{0, 0}})), (std::vector<uint64_t>{6}));
}

TEST(TableBudgetTest, TooLittleMemoryIsAnErrorAndTooLittleDiskIsNone) {
  const auto budget = Budget(3 * kMiB, kMiB);
  {
    const auto reserved = budget->Reserve({{0, 0}, {0, 0}, {0, 0}});
    EXPECT_EQ(Memory(reserved), (std::vector<uint64_t>{1, 1, 1}));
    EXPECT_EQ(reserved->shares()[0].disk_bytes, 0u);
  }
  const auto tight = budget->Reserve({{0, 0}, {0, 0}, {0, 0}, {0, 0}});
  EXPECT_THAT(std::string(tight.status().message()),
              HasSubstr("786432 bytes of memory are left for each"));
  const auto disk = budget->Reserve({{0, 2 * kMiB}});
  EXPECT_THAT(std::string(disk.status().message()), HasSubstr("--table-disk"));
}

}  // namespace
}  // namespace syncline::ps
