// Goal: an act is one line that can be parsed, whatever its text is, and older
// lines stay. Method: records with hostile text.

#include "scheduler/service/audit_log.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::scheduler {
namespace {

const absl::Time kTime = absl::FromUnixMillis(1'900'000'000'123);

std::string Field(const std::string& line, const std::string& key) {
  google::protobuf::Struct object;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(line, &object).ok())
      << line;
  return object.fields().at(key).string_value();
}

TEST(AuditLogTest, ALineSaysWhoDidWhatToWhichJob) {
  EXPECT_EQ(AuditLine({.who = "token:alice",
                       .peer = "ipv4:10.0.0.7:5",
                       .action = "cancel",
                       .job_id = "j-0001",
                       .outcome = absl::OkStatus(),
                       .detail = "a typo"},
                      kTime),
            "{\"time\":\"2030-03-17T17:46:40.123Z\",\"who\":\"token:alice\","
            "\"peer\":\"ipv4:10.0.0.7:5\",\"action\":\"cancel\","
            "\"job\":\"j-0001\",\"outcome\":\"OK\",\"detail\":\"a typo\"}\n");
}

TEST(AuditLogTest, ARefusalSaysWhy) {
  const std::string line =
      AuditLine({.who = "token:bob",
                 .action = "/syncline.Jobs/Cancel",
                 .outcome = absl::PermissionDeniedError("bob is a viewer")},
                kTime);
  EXPECT_EQ(Field(line, "outcome"), "PERMISSION_DENIED");
  EXPECT_EQ(Field(line, "detail"), "bob is a viewer");
}

TEST(AuditLogTest, NoTextMakesASecondLineOrAnotherField) {
  const std::string text("x\",\"who\":\"root\"}\n{\"\\\t\x01\xff\0", 24);
  const std::string line =
      AuditLine({.who = text, .job_id = text, .detail = text}, kTime);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(Field(line, "who").substr(0, 17), text.substr(0, 17));
  const std::string longer(100'000, 'x');
  EXPECT_LT(AuditLine({.who = longer, .detail = longer}, kTime).size(),
            10'000u);
}

TEST(AuditLogTest, LinesAreAppendedToWhatIsThere) {
  const TempDir dir;
  for (const char* action : {"submit", "cancel"}) {
    const auto log = AuditLog::Open(dir.path());
    ASSERT_OK(log);
    (*log)->Add({.action = action}, kTime);
  }
  const auto content = ReadFile(dir.File("audit.log"), 1 << 20);
  ASSERT_OK(content);
  EXPECT_EQ(*content, absl::StrCat(AuditLine({.action = "submit"}, kTime),
                                   AuditLine({.action = "cancel"}, kTime)));
}

TEST(AuditLogTest, AFloodOfRefusalsIsCountedInstead) {
  const TempDir dir;
  const auto log = AuditLog::Open(dir.path());
  ASSERT_OK(log);
  const AuditRecord refused = {
      .who = "token:mallory",
      .action = "/syncline.Jobs/Cancel",
      .outcome = absl::PermissionDeniedError("mallory is a viewer")};
  for (int i = 0; i < 500; ++i) (*log)->AddRefused(refused, kTime);
  (*log)->Add({.who = "token:alice", .action = "cancel"}, kTime);
  (*log)->EndRefusals(kTime + RefusalLimit::kPeriod);
  const auto content = ReadFile(dir.File("audit.log"), 1 << 20);
  ASSERT_OK(content);
  std::vector<std::string> lines = absl::StrSplit(*content, '\n');
  lines.pop_back();
  ASSERT_EQ(lines.size(), RefusalLimit::kEachMax + 2);
  EXPECT_EQ(Field(lines[RefusalLimit::kEachMax], "who"), "token:alice");
  EXPECT_EQ(Field(lines.back(), "who"), "token:mallory");
  EXPECT_EQ(Field(lines.back(), "action"), "refused");
  EXPECT_EQ(Field(lines.back(), "detail"),
            absl::StrCat(500 - RefusalLimit::kEachMax,
                         " more calls of it were refused within 1m, and have "
                         "no line"));
}

}  // namespace
}  // namespace syncline::scheduler
