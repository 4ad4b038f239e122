// Goal: an operator reads off `synctl tables` where rows are and why some are
// not. Method: one status and the exact text.

#include "scheduler/ctl/text/table_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

TEST(TableTextTest, SumsOverThePs) {
  JobTableStatus status;
  status.set_job_id("j-0001");
  for (uint32_t rank = 0; rank < 2; ++rank) {
    JobTableStatus::Ps* ps = status.add_ps();
    ps->set_rank(rank);
    ShardStatus::Table* table = ps->add_tables();
    table->set_name("users");
    table->set_rows_in_memory(1500 + rank);
    table->set_rows_on_disk(200);
    table->set_memory_bytes(1 << 20);
    table->set_memory_limit_bytes(4 << 20);
    table->set_disk_bytes(2048);
    table->set_pulled_from_memory(80);
    table->set_pulled_from_disk(15);
    table->set_pulled_absent(5);
    table->set_pushed_rows(1000);
    table->set_refused_by_sightings(7);
    table->set_expired_by_age(3);
    table->set_spilled_rows(220);
    ShardStatus::Table::HotKey* hot = table->add_hot_keys();
    hot->set_key(int64_t{rank} - 5);
    hot->set_pushes(10 + rank);
    hot->set_refused(rank * 4);
  }
  EXPECT_EQ(TablesText(status),
            "table users\n"
            "  rows     3,001 in memory, 400 on disk\n"
            "  memory   2.0 MiB of 8.0 MiB\n"
            "  disk     4.0 KiB\n"
            "  pulled   200 rows: 80.0% from memory, 15.0% from disk, 5.0% not "
            "there yet\n"
            "  pushed   2,000 rows\n"
            "  refused  14 seen too rarely, 0 by chance, 0 for want of room\n"
            "  expired  6 by age, 0 by score\n"
            "  spilled  440 rows to disk\n"
            "  hottest  -4 (11, refused 4), -5 (10)\n"
            "  ps:0     1,700 rows, 1.0 MiB of 4.0 MiB, 2.0 KiB on disk\n"
            "  ps:1     1,701 rows, 1.0 MiB of 4.0 MiB, 2.0 KiB on disk\n");
}

TEST(TableTextTest, SaysHowOldItIs) {
  JobTableStatus status;
  for (const double age : {2.5, 75.0}) {
    JobTableStatus::Ps* ps = status.add_ps();
    ps->set_age_seconds(age);
    ps->add_tables()->set_name("users");
  }
  EXPECT_THAT(TablesText(status), testing::EndsWith("\nas of 1:15 ago\n"));
  status.mutable_ps()->RemoveLast();
  EXPECT_THAT(TablesText(status), testing::Not(testing::HasSubstr("as of")));
}

TEST(TableTextTest, SaysThatThereIsNothing) {
  JobTableStatus status;
  status.set_job_id("j-0001");
  EXPECT_EQ(TablesText(status), "job j-0001: no ps has reported a table\n");
}

}  // namespace
}  // namespace syncline::ctl
