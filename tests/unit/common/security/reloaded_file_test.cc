// Goal: the last content that could be used stays in force, and each broken
// version of the file is in the log once. Method: files that change, and the
// lines that go to standard error meanwhile.

#include "common/security/reloaded_file.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

class ReloadedFileTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) {
    ASSERT_OK(WriteFileAtomically(path_, text));
  }
  absl::Status Look() {
    return file_.Look(
        [&](absl::string_view text) -> absl::Status {
          if (text == "broken")
            return absl::InvalidArgumentError("line 1: broken");
          content_ = std::string(text);
          return absl::OkStatus();
        },
        now_);
  }
  // The lines at level=error of so many looks.
  std::vector<std::string> ErrorsOf(int looks) {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < looks; ++i) EXPECT_OK(Look());
    const std::string log = ::testing::internal::GetCapturedStderr();
    std::vector<std::string> errors;
    for (const absl::string_view line : absl::StrSplit(log, '\n')) {
      if (absl::StrContains(line, "level=error")) errors.emplace_back(line);
    }
    return errors;
  }

  const TempDir dir_;
  const std::string path_ = dir_.File("names");
  ReloadedFile file_{path_, 100, "names"};
  std::string content_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
};

TEST_F(ReloadedFileTest, AFileThatCannotBeUsedAtTheStartIsAnError) {
  EXPECT_EQ(Look().code(), absl::StatusCode::kNotFound);
  Write("broken");
  for (int i = 0; i < 2; ++i) {
    const absl::Status broken = Look();
    EXPECT_EQ(broken.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(broken.message(), absl::StrCat(path_, ": line 1: broken"));
  }
  Write("good");
  EXPECT_OK(Look());
  EXPECT_EQ(content_, "good");
}

TEST_F(ReloadedFileTest, EachBrokenVersionIsLoggedOnceAndChangesNothing) {
  Write("good");
  ASSERT_OK(Look());
  Write("broken");
  const std::vector<std::string> errors = ErrorsOf(5);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_THAT(errors[0], HasSubstr("names stay as they were"));
  EXPECT_THAT(errors[0], HasSubstr(absl::StrCat(path_, ": line 1: broken")));
  EXPECT_EQ(content_, "good");
  EXPECT_FALSE(file_.is_usable());
  // Away is another version.
  ASSERT_OK(RemoveTree(path_));
  EXPECT_EQ(ErrorsOf(5).size(), 1u);
  EXPECT_EQ(content_, "good");
  Write(std::string(101, 'x'));
  EXPECT_EQ(ErrorsOf(5).size(), 1u);
  Write("better");
  EXPECT_EQ(ErrorsOf(5).size(), 0u);
  EXPECT_EQ(content_, "better");
  EXPECT_TRUE(file_.is_usable());
  // The same damage after a good version is told again.
  Write("broken");
  EXPECT_EQ(ErrorsOf(5).size(), 1u);
}

// The error comes again each hour, for people who came later.
TEST_F(ReloadedFileTest, AFileThatStaysBrokenIsToldEachHour) {
  Write("good");
  ASSERT_OK(Look());
  for (const bool removed : {false, true}) {
    if (removed) {
      ASSERT_OK(RemoveTree(path_));
    } else {
      Write("broken");
    }
    EXPECT_EQ(ErrorsOf(3).size(), 1u);
    for (int hour = 0; hour < 2; ++hour) {
      now_ += ReloadedFile::kLogPeriod - absl::Seconds(1);
      EXPECT_EQ(ErrorsOf(3).size(), 0u);
      now_ += absl::Seconds(1);
      EXPECT_EQ(ErrorsOf(3).size(), 1u);
    }
  }
  Write("better");
  now_ += ReloadedFile::kLogPeriod;
  EXPECT_EQ(ErrorsOf(3).size(), 0u);
}

TEST(CheckHasTextTest, AnEmptyFileSaysNothingAndACommentDoes) {
  for (const char* empty : {"", "\n", " \t\r\n\n"}) {
    const absl::Status status = CheckHasText(empty, "nobody may call");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "it is empty; a file with a comment line (#) says that nobody "
              "may call");
  }
  EXPECT_OK(CheckHasText("# nobody\n", "nobody may call"));
}

}  // namespace
}  // namespace syncline
