// Goal: what a process logs for a job is kept by job and trace id, found by the
// next process, bounded in number, and private; lines carry the trace id.
// Method: log lines into folders of the test's own.

#include "common/system/job_logs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kOther[] = "0af7651916cd43dd8448eb211c80319c";

class JobLogsTest : public ::testing::Test {
 protected:
  ~JobLogsTest() override {
    KeepJobLogs(nullptr);
    EXPECT_TRUE(InitLog(LogOptions()).ok());  // back to standard error
  }

  std::shared_ptr<JobLogs> Open() const {
    auto logs = JobLogs::Open(folder_);
    EXPECT_TRUE(logs.ok()) << logs.status();
    return logs.ok() ? *std::move(logs) : nullptr;
  }
  static std::string Text(const JobLogs& logs, const std::string& job_id,
                          const std::string& trace_id) {
    const auto reader = logs.Read(job_id, trace_id, 0);
    return reader.ok() ? *(*reader)->Next()
                       : std::string(reader.status().message());
  }

  TempDir dir_;
  const std::string folder_ = dir_.File("logs/worker-1");
};

TEST_F(JobLogsTest, JobsOfOneIdAndTwoTracesAreTwo) {
  const auto logs = Open();
  logs->Append("j-0001", kTrace, "a\n");
  logs->Append("j-0001", kOther, "b\n");
  logs->Append("j-0001", "", "c\n");
  EXPECT_EQ(Text(*logs, "j-0001", kTrace), "a\n");
  EXPECT_EQ(Text(*logs, "j-0001", kOther), "b\n");
  EXPECT_EQ(Text(*logs, "j-0001", ""), "c\n");
  EXPECT_TRUE(absl::IsNotFound(logs->Read("j-0002", kTrace, 0).status()));
}

TEST_F(JobLogsTest, TheNextProcessGoesOn) {
  Open()->Append("j-0001", kTrace, "before\n");
  const auto next = Open();
  next->Append("j-0001", kTrace, "after\n");
  EXPECT_EQ(Text(*next, "j-0001", kTrace), "before\nafter\n");
}

TEST_F(JobLogsTest, NamesLeadOutOfNoFolder) {
  const auto logs = Open();
  for (const std::string bad : {"", "..", "../x", "a/b", "j 1"}) {
    logs->Append(bad, kTrace, "x\n");
    EXPECT_TRUE(absl::IsInvalidArgument(logs->Read(bad, kTrace, 0).status()))
        << bad;
  }
  EXPECT_TRUE(
      absl::IsInvalidArgument(logs->Read("j-1", "../../x", 0).status()));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(JobLogsTest, TheLogsOfOldJobsAreDeleted) {
  const auto logs = Open();
  for (size_t i = 0; i < 3 * JobLogs::kJobsMax; ++i) {
    logs->Append(absl::StrCat("j-", i), kTrace, "x\n");
  }
  const auto files = std::distance(std::filesystem::directory_iterator(folder_),
                                   std::filesystem::directory_iterator());
  EXPECT_LE(files, static_cast<int64_t>(JobLogs::kJobsMax));
  EXPECT_EQ(Text(*logs, absl::StrCat("j-", 3 * JobLogs::kJobsMax - 1), kTrace),
            "x\n");
}

TEST_F(JobLogsTest, AJobTakesBoundedRoom) {
  const auto logs = Open();
  const std::string line = std::string(100'000, 'x') + "\n";
  for (uint64_t bytes = 0; bytes < 5 * JobLogs::kRotateBytes;
       bytes += line.size()) {
    logs->Append("j-0001", kTrace, line);
  }
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    bytes += file.file_size();
  }
  EXPECT_LE(bytes, 2 * JobLogs::kRotateBytes);
}

TEST_F(JobLogsTest, TheFolderIsTheUsersAlone) {
  Open();
  struct stat info = {};
  ASSERT_EQ(stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const std::string link = dir_.File("link");
  ASSERT_EQ(symlink(folder_.c_str(), link.c_str()), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(JobLogs::Open(link).status()));
}

TEST_F(JobLogsTest, LinesOfAJobCarryItsTraceAndAreKept) {
  LogOptions options;
  options.role = "ps";
  options.min_level = LogLevel::kError;
  options.file = dir_.File("ps.log");
  ASSERT_TRUE(InitLog(options).ok());
  KeepJobLogs(Open());
  SetJobTrace("j-0042", kTrace);
  EXPECT_EQ(JobTraceOf("j-0042"), kTrace);
  EXPECT_EQ(JobTraceOf("j-0043"), "");
  LogInfo("below the level").Job("j-0042");
  LogError("bad").Job("j-0042").Status(absl::NotFoundError("x"));
  LogError("of no job");
  LogError("another's").Job("j-0043");
  const std::string kept = KeptJobLog("j-0042");
  EXPECT_THAT(kept, HasSubstr("below the level"));
  EXPECT_THAT(kept, HasSubstr(absl::StrCat(" job=j-0042 trace=", kTrace,
                                           " msg=\"bad\"")));
  EXPECT_THAT(kept, Not(HasSubstr("another")));
  const std::string log = *ReadFile(options.file, 1 << 20);
  EXPECT_THAT(log, Not(HasSubstr("below the level")));
  EXPECT_THAT(log, HasSubstr(absl::StrCat("trace=", kTrace)));
  EXPECT_THAT(log, HasSubstr("job=j-0043 msg="));
  KeepJobLogs(nullptr);
  EXPECT_EQ(KeptJobLog("j-0042"), "");
}

TEST_F(JobLogsTest, TracesAreBounded) {
  SetJobTrace("j-0", kTrace);
  for (int i = 1; i < 150'000; ++i) SetJobTrace(absl::StrCat("j-", i), kOther);
  EXPECT_EQ(JobTraceOf("j-0"), "");
  EXPECT_EQ(JobTraceOf("j-149999"), kOther);
}

}  // namespace
}  // namespace syncline
