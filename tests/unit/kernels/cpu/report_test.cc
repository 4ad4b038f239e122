#include "kernels/cpu/report.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(ReportTest, TheFirstNodeKeepsTheRecordWithItsLowestPosition) {
  DataError record;
  Report({&record, /*node=*/4}, /*kind=*/1, /*position=*/7, /*value=*/70);
  Report({&record, /*node=*/4}, /*kind=*/2, /*position=*/9, /*value=*/90);
  EXPECT_EQ(record.position, 7);
  Report({&record, /*node=*/4}, /*kind=*/3, /*position=*/5, /*value=*/50);
  Report({&record, /*node=*/6}, /*kind=*/4, /*position=*/0, /*value=*/0);
  EXPECT_EQ(record.node, 4);
  EXPECT_EQ(record.kind, 3);
  EXPECT_EQ(record.position, 5);
  EXPECT_EQ(record.value, 50);
}

TEST(ReportTest, WithoutARecordNothingIsKept) {
  Report({}, 1, 2, 3);  // does not crash
}

}  // namespace
}  // namespace syncline
