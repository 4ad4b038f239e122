// Goal: a job that was closed and opened again is not taken for the first.
// Method: two entries of one name.

#include "server/job_table.h"

#include <memory>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

std::shared_ptr<const JobEntry> Entry() {
  auto entry = std::make_shared<JobEntry>();
  entry->config.job_id = "j";
  return entry;
}

TEST(JobTableTest, KnowsAnEntryFromTheNextOfItsName) {
  JobTable jobs;
  const auto first = Entry();
  const auto second = Entry();
  EXPECT_FALSE(jobs.Has(*first));
  ASSERT_OK(jobs.Add(first));
  EXPECT_TRUE(jobs.Has(*first));
  EXPECT_FALSE(jobs.Has(*second));
  EXPECT_EQ(jobs.Add(second).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(jobs.Remove("j"), first);
  ASSERT_OK(jobs.Add(second));
  EXPECT_FALSE(jobs.Has(*first));
  EXPECT_TRUE(jobs.Has(*second));
}

}  // namespace
}  // namespace syncline
