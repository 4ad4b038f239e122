// Goal: a table of eight times its memory stays within it: the process's
// resident memory is at most the budget and a tenth, on top of what a ps takes
// without rows; and no row is lost or wrong.
// Method: the real syncline-ps, a raw client, keys with Zipf's frequencies,
// the most that was ever resident, rows compared with the same updates done
// here. For minutes instead of seconds: syncline-bench spill --seconds.

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/zipf_trainer.h"

namespace syncline {
namespace {

constexpr uint64_t kBudget = 16 << 20;
constexpr uint64_t kRows = 8 * kBudget / ZipfTrainer::kRowBytes;
// Bytes that a ps takes for its calls: gRPC's buffers and messages on their
// way, most of which it has after WarmUp.
constexpr uint64_t kCalls = 16 << 20;

TEST(TableBudgetTest, ATableOfEightTimesItsMemoryStaysWithinIt) {
  const TempDir spill;
  ASSERT_OK_AND_ASSIGN(
      const auto ps,
      PsProcesses::Start(ZipfTrainer::OnePs(
          {absl::StrCat("--table-memory=", kBudget), "--table-disk=4GiB",
           absl::StrCat("--spill-dir=", spill.path())})));
  ZipfTrainer trainer(*ps, kRows);
  ASSERT_OK(trainer.WarmUp());
  const uint64_t base = ps->MemoryBytes(0, "VmRSS");
  ASSERT_OK(trainer.Fill());
  Random random(5);
  for (int i = 0; i < 12; ++i) {
    ASSERT_OK(trainer.Train(trainer.Draw(8, &random)));
    ASSERT_OK(trainer.Verify(1000, &random));
  }
  const uint64_t most = ps->MemoryBytes(0, "VmHWM");
  EXPECT_LE(most, base + kBudget + kBudget / 10 + kCalls);

  ASSERT_OK_AND_ASSIGN(const ShardStatus::Table table, trainer.Status());
  EXPECT_EQ(table.rows_in_memory() + table.rows_on_disk(), kRows);
  EXPECT_LE(table.memory_bytes(), table.memory_limit_bytes());
  EXPECT_GT(table.rows_on_disk(), kRows / 2);
  EXPECT_GT(table.pulled_from_disk(), 0u);
  EXPECT_EQ(table.refused_by_budget(), 0u);
  std::printf("MiB resident: %.1f without rows, %.1f at most; budget %.1f\n",
              static_cast<double>(base) / kMiB,
              static_cast<double>(most) / kMiB,
              static_cast<double>(kBudget) / kMiB);
}

}  // namespace
}  // namespace syncline
