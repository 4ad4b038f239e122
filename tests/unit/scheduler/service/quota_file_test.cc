// Goal: a quota file that changes is read again, and one that cannot be used
// changes nothing. Method: files on the disk.

#include "scheduler/service/quota_file.h"

#include <string>

#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::scheduler {
namespace {

std::string Whether(const TenantQuotas& quotas) {
  JobDemand demand;
  demand.amounts[Quota::kWorkers] = 2;
  return quotas.CheckFits("acme", demand).ok() ? "fits" : "does not";
}

TEST(QuotaFileTest, AFileThatCannotBeUsedIsRefusedAtTheStart) {
  const TempDir dir;
  EXPECT_FALSE(QuotaFile::Open(dir.File("none")).ok());
  const std::string path = dir.Write("quotas", "acme cpus=1\n");
  const auto opened = QuotaFile::Open(path);
  EXPECT_THAT(
      std::string(opened.status().message()),
      testing::AllOf(testing::HasSubstr(path), testing::HasSubstr("line 1")));
}

TEST(QuotaFileTest, AnEmptiedFileLiftsNoLimit) {
  const TempDir dir;
  const std::string path = dir.Write("quotas", "acme workers=1\n");
  WaitLog<std::string> seen;
  ASSERT_OK_AND_ASSIGN(const auto file, QuotaFile::Open(path));
  file->Start([&](const TenantQuotas& quotas) { seen.Add(Whether(quotas)); });
  ASSERT_OK(WriteFileAtomically(path, ""));
  EXPECT_TRUE(
      Eventually(absl::Seconds(60), [&] { return !file->is_usable(); }));
  EXPECT_EQ(seen.Await(1).size(), 1u);
  EXPECT_THAT(std::string(QuotaFile::Open(path).status().message()),
              testing::HasSubstr("a file with a comment line (#) says that "
                                 "there are no limits"));
  ASSERT_OK(WriteFileAtomically(path, "# none\n"));
  EXPECT_EQ(seen.Await(2).back(), "fits");
  EXPECT_TRUE(file->is_usable());
}

TEST(QuotaFileTest, AChangeIsRead) {
  const TempDir dir;
  const std::string path = dir.Write("quotas", "acme workers=1\n");
  WaitLog<std::string> seen;
  ASSERT_OK_AND_ASSIGN(const auto file, QuotaFile::Open(path));
  file->Start([&](const TenantQuotas& quotas) { seen.Add(Whether(quotas)); });
  EXPECT_EQ(seen.Await(1).back(), "does not");
  EXPECT_TRUE(file->is_usable());
  ASSERT_OK(WriteFileAtomically(path, "acme cpus=1\n"));
  EXPECT_TRUE(
      Eventually(absl::Seconds(60), [&] { return !file->is_usable(); }));
  ASSERT_OK(WriteFileAtomically(path, "acme workers=2\n"));
  EXPECT_EQ(seen.Await(2).back(), "fits");
  EXPECT_TRUE(file->is_usable());
}

}  // namespace
}  // namespace syncline::scheduler
