// Goal: the newest report of each ps counts, and its tables are shown with the
// report's age. Method: reports of two ps, newer and older.

#include "scheduler/core/job/ps_reports.h"

#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

const absl::Time kReported = absl::UnixEpoch() + absl::Hours(1);

PsReport Report(uint64_t skipped_clocks, uint64_t dropped_blocks) {
  PsReport report;
  report.set_skipped_clocks(skipped_clocks);
  report.set_dropped_blocks(dropped_blocks);
  return report;
}

TEST(PsReportsTest, BlocksAddUpAndClocksDoNot) {
  PsReports reports;
  EXPECT_EQ(reports.SkippedClocks(), 0u);
  reports.OnReport(0, Report(3, 10), kReported);
  reports.OnReport(1, Report(4, 5), kReported);
  EXPECT_EQ(reports.SkippedClocks(), 4u);
  EXPECT_EQ(reports.DroppedBlocks(), 15u);
  reports.OnReport(0, Report(4, 11), kReported);
  EXPECT_EQ(reports.DroppedBlocks(), 16u) << "the newest report of a ps";
}

TEST(PsReportsTest, TablesAreShownByRankWithTheReportsAge) {
  PsReports reports;
  PsReport report = Report(0, 0);
  report.add_tables()->set_name("users");
  reports.OnReport(1, report, kReported);
  reports.OnReport(0, Report(0, 0), kReported);  // has no tables
  const auto status =
      reports.TableStatus("j-0001", kReported + absl::Seconds(3));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->job_id(), "j-0001");
  ASSERT_EQ(status->ps_size(), 1);
  EXPECT_EQ(status->ps(0).rank(), 1u);
  EXPECT_EQ(status->ps(0).age_seconds(), 3);
  EXPECT_EQ(status->ps(0).tables(0).name(), "users");
}

}  // namespace
}  // namespace syncline::scheduler
