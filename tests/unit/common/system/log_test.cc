// Goal: one event is one line whatever is in it, with the fields that every
// line has; levels filter; a job's lines are captured, bounded; threads do not
// mix lines. Method: log into a file and read it back.

#include "common/system/log.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    options_.role = "ps";
    options_.node = "ps:1";
    options_.incarnation = 0x9f;
    options_.file = path_;
    EXPECT_TRUE(InitLog(options_).ok());
  }
  ~LogTest() override {
    EXPECT_TRUE(InitLog(LogOptions()).ok());  // back to standard error
  }
  std::string Text() const { return *ReadFile(path_, 1 << 24); }

  const TempDir temp_;
  const std::string path_ = temp_.File("log");
  LogOptions options_;
};

TEST_F(LogTest, ALineHasTheCommonFieldsThenItsOwn) {
  LogInfo("shard opened").Job("j-0001").Field("blocks", 12);
  EXPECT_THAT(
      Text(),
      MatchesRegex("ts=....-..-..T..:..:......Z level=info role=ps node=ps:1 "
                   "incarnation=0x653c job=j-0001 msg=\"shard opened\" "
                   "blocks=12\n"));
}

TEST_F(LogTest, StatusIsCodeAndText) {
  LogError("push failed").Status(absl::AbortedError("stale route"));
  EXPECT_THAT(Text(),
              EndsWith("level=error role=ps node=ps:1 incarnation=0x653c "
                       "msg=\"push failed\" code=ABORTED "
                       "error=\"stale route\"\n"));
}

TEST_F(LogTest, HostileValuesStayOnOneLine) {
  LogInfo("a\nb").Field("k", "x\"y\\z\n\x1b[0m").Field("empty", "");
  EXPECT_THAT(Text(), EndsWith("msg=\"a\\nb\" k=\"x\\\"y\\\\z\\n\\x1b[0m\" "
                               "empty=\"\"\n"));
  LogInfo("b").Field("k",
                     "\x9b"
                     "31m");
  EXPECT_THAT(Text(), EndsWith("k=\"\\x9b31m\"\n"));
  LogInfo("c")
      .Field("k",
             "Q\xc2\x9b"
             "31m\xe2\x80\xae")
      .Field("word", "gr\xc3\xbcn");
  EXPECT_THAT(Text(), EndsWith("k=\"Q\\u009b31m\\u202e\" "
                               "word=\"gr\xc3\xbcn\"\n"));
}

TEST_F(LogTest, LevelsBelowTheMinimumAreNotWritten) {
  options_.min_level = LogLevel::kWarning;
  ASSERT_TRUE(InitLog(options_).ok());
  LogInfo("quiet");
  LogWarning("loud");
  EXPECT_THAT(Text(), Not(HasSubstr("quiet")));
  EXPECT_THAT(Text(), HasSubstr("level=warning"));
}

TEST_F(LogTest, TheNodeCanBeSetLater) {
  SetLogMember("ps:7", 0xbeef);
  LogInfo("x");
  EXPECT_THAT(Text(), HasSubstr("node=ps:7"));
}

TEST_F(LogTest, AJobsLinesAreCapturedAndOthersAreNot) {
  JobLogCapture one("j-1");
  JobLogCapture again("j-1");
  LogInfo("mine").Job("j-1");
  LogInfo("other").Job("j-2");
  LogInfo("none");
  EXPECT_THAT(one.text(), HasSubstr("job=j-1 msg=\"mine\"\n"));
  EXPECT_THAT(one.text(), Not(HasSubstr("other")));
  EXPECT_THAT(one.text(), Not(HasSubstr("none")));
  EXPECT_EQ(one.text(), again.text());
}

TEST_F(LogTest, ACaptureIsBoundedAndSaysSo) {
  JobLogCapture capture("j-1", /*max_bytes=*/200);
  for (int i = 0; i < 10; ++i) LogInfo("line").Job("j-1");
  const std::string text = capture.text();
  EXPECT_THAT(text, EndsWith("the daemon's own log goes on\"\n"));
  EXPECT_LT(text.size(), 300u);
}

TEST_F(LogTest, ThreadsDoNotMixLines) {
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) {
        LogInfo("x").Field("thread", t).Field("end", "1");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = Text();
  const std::vector<absl::string_view> lines =
      absl::StrSplit(text, '\n', absl::SkipEmpty());
  EXPECT_EQ(lines.size(), kThreads * kLines);
  for (const absl::string_view line : lines) {
    EXPECT_TRUE(absl::StartsWith(line, "ts=") && absl::EndsWith(line, "end=1"))
        << line;
  }
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnError) {
  options_.file = path_ + "/below/a/file";
  EXPECT_FALSE(InitLog(options_).ok());
}

}  // namespace
}  // namespace syncline
