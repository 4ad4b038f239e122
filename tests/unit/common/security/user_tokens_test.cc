// Goal: a token lets in its bearer, for what the role allows, until it expires,
// is revoked, or the file cannot be used. Method: files that change, and times
// that the test says.

#include "common/security/user_tokens.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/open_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'900'000'000);

TEST(UserTokensTest, EachMethodHasItsLeastRole) {
  for (const char* method :
       {"Get", "List", "Watch", "GetCluster", "GetTables", "Download"}) {
    EXPECT_EQ(LeastRole(absl::StrCat("/syncline.Jobs/", method)),
              UserRole::kViewer);
  }
  EXPECT_EQ(LeastRole("/syncline.Jobs/Submit"), UserRole::kSubmitter);
  EXPECT_EQ(LeastRole("/syncline.Jobs/Cancel"), UserRole::kOperator);
  EXPECT_EQ(LeastRole("/syncline.Jobs/SomethingLater"), UserRole::kAdmin);
}

TEST(UserTokensTest, ATenantsTokenSeesTheTenantsJobs) {
  const std::vector<TokenEntry> entries = {
      {"alice", UserRole::kAdmin, absl::InfiniteFuture(), HashToken("x"),
       "acme"},
      {"bob", UserRole::kOperator, kNow, HashToken("y")},
      {"carl", UserRole::kSubmitter, kNow, HashToken("z")}};
  const auto read = ParseTokens(FormatTokens(entries));
  ASSERT_OK(read);
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].tenant, "acme");
  EXPECT_EQ((*read)[1].tenant, "");
  EXPECT_FALSE((*read)[0].SeesAllJobs());
  EXPECT_TRUE((*read)[1].SeesAllJobs());
  EXPECT_FALSE((*read)[2].SeesAllJobs());
}

TEST(UserTokensTest, ATenantsNameIsThatOfAFolder) {
  for (const char* good : {"acme", "a", "Team_1", "x.y-z"}) {
    EXPECT_OK(CheckTenantName(good));
  }
  for (const std::string bad :
       {"", ".", "..", ".hidden", "a/b", "a b", "a\n"}) {
    EXPECT_FALSE(CheckTenantName(bad).ok()) << bad;
  }
  const std::string line =
      absl::StrCat("alice viewer never ", HashToken("x"), " tenant=../other");
  EXPECT_THAT(std::string(ParseTokens(line).status().message()),
              HasSubstr("is no name of a tenant"));
}

TEST(UserTokensTest, AnErrorAboutANameSaysWhose) {
  const std::string line = absl::StrCat("al!ce viewer never ", HashToken("x"));
  EXPECT_THAT(std::string(ParseTokens(line).status().message()),
              HasSubstr("\"al!ce\" is no name of a token's bearer"));
}

TEST(UserTokensTest, AFileIsReadAsItWasWritten) {
  const std::string hash = HashToken("x");
  const std::vector<TokenEntry> entries = {
      {"alice", UserRole::kViewer, absl::InfiniteFuture(), hash},
      {"bob", UserRole::kAdmin, kNow, HashToken("y")}};
  const auto read = ParseTokens(FormatTokens(entries));
  ASSERT_OK(read);
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].name, "alice");
  EXPECT_EQ((*read)[0].expiry, absl::InfiniteFuture());
  EXPECT_EQ((*read)[0].sha256, hash);
  EXPECT_EQ((*read)[1].role, UserRole::kAdmin);
  EXPECT_EQ((*read)[1].expiry, kNow);
}

TEST(UserTokensTest, ABadLineIsNamed) {
  const std::string hash = HashToken("x");
  for (const std::string& line :
       {std::string("alice"), absl::StrCat("alice viewer never ", "abc"),
        absl::StrCat("alice root never ", hash),
        absl::StrCat("alice viewer tomorrow ", hash),
        absl::StrCat("al!ce viewer never ", hash),
        absl::StrCat("alice viewer never ", hash, " more"),
        absl::StrCat("bob viewer never ", hash, "\nbob admin never ", hash)}) {
    const auto read = ParseTokens(absl::StrCat("# tokens\n\n", line));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(read.status().message()),
                HasSubstr(absl::StrContains(line, '\n') ? "line 4" : "line 3"));
  }
}

TEST(UserTokensTest, TokensAreLongAndDiffer) {
  const auto first = NewToken();
  const auto second = NewToken();
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ(first->size(), 5 + 64u);
  EXPECT_NE(*first, *second);
}

class TokenFileTest : public ::testing::Test {
 protected:
  void Write(const std::vector<TokenEntry>& entries) {
    ASSERT_OK(WriteFileAtomically(path_, FormatTokens(entries)));
  }
  TempDir dir_;
  const std::string path_ = dir_.File("tokens");
  const std::string token_ = *NewToken();
  const TokenEntry viewer_ = {"alice", UserRole::kViewer, kNow + absl::Hours(1),
                              HashToken(token_)};
};

TEST_F(TokenFileTest, AViewerMayLookAndMayNotCancel) {
  Write({viewer_});
  const auto tokens = UserTokens::Open(path_);
  ASSERT_OK(tokens);
  const auto looks = (*tokens)->Check("/syncline.Jobs/List", token_, kNow);
  ASSERT_OK(looks);
  EXPECT_EQ(looks->name, "alice");
  const auto cancels = (*tokens)->Check("/syncline.Jobs/Cancel", token_, kNow);
  EXPECT_EQ(cancels.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(cancels.status().message()),
              HasSubstr("alice is a viewer; /syncline.Jobs/Cancel needs the "
                        "role operator"));
}

TEST_F(TokenFileTest, NoTokenAnotherAndAnExpiredOneAreRefused) {
  Write({viewer_});
  const auto tokens = UserTokens::Open(path_);
  ASSERT_OK(tokens);
  const auto find = [&](absl::string_view token, absl::Time now) {
    return (*tokens)->Find(token, now).status();
  };
  EXPECT_OK(find(token_, kNow));
  for (const absl::Status& refused :
       {find("", kNow), find("synt_", kNow), find(HashToken(token_), kNow),
        find(token_.substr(1), kNow), find(std::string(10000, 'x'), kNow)}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated);
  }
  EXPECT_THAT(std::string(find(token_, kNow + absl::Hours(1)).message()),
              HasSubstr("expired"));
}

TEST_F(TokenFileTest, ChangesOfTheFileCountAtOnce) {
  Write({});
  const auto tokens = UserTokens::Open(path_);
  ASSERT_OK(tokens);
  EXPECT_FALSE((*tokens)->Find(token_, kNow).ok());
  Write({viewer_});
  EXPECT_OK((*tokens)->Find(token_, kNow));
  Write({});  // revoked
  EXPECT_FALSE((*tokens)->Find(token_, kNow).ok());
  Write({viewer_});
  EXPECT_OK((*tokens)->Find(token_, kNow));
}

TEST_F(TokenFileTest, ABrokenFileLeavesTheTokensAsTheyWere) {
  Write({viewer_});
  const auto tokens = UserTokens::Open(path_);
  ASSERT_OK(tokens);
  ::testing::internal::CaptureStderr();
  ASSERT_OK(WriteFileAtomically(path_, "# tokens\ngarbage\n"));
  EXPECT_FALSE((*tokens)->IsFileUsable());
  EXPECT_OK((*tokens)->Find(token_, kNow));
  EXPECT_FALSE((*tokens)->Find("synt_x", kNow).ok());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("level=error"));
  EXPECT_THAT(log, HasSubstr(absl::StrCat(path_, ": line 2: not four words")));
  EXPECT_THAT(std::string(UserTokens::Open(path_).status().message()),
              HasSubstr("line 2"));
  ASSERT_OK(RemoveTree(path_));
  EXPECT_OK((*tokens)->Find(token_, kNow));
  EXPECT_FALSE(UserTokens::Open(path_).ok());
  EXPECT_FALSE((*tokens)->IsFileUsable());
  Write({});
  EXPECT_TRUE((*tokens)->IsFileUsable());
  EXPECT_FALSE((*tokens)->Find(token_, kNow).ok());
}

// By an editor that writes in place, or a full disk.
TEST_F(TokenFileTest, AFileThatIsEmptiedLeavesTheTokensAsTheyWere) {
  Write({viewer_});
  const auto tokens = UserTokens::Open(path_);
  ASSERT_OK(tokens);
  for (const char* empty : {"", "\n \n"}) {
    ::testing::internal::CaptureStderr();
    ASSERT_OK(WriteFileAtomically(path_, empty));
    EXPECT_OK((*tokens)->Find(token_, kNow));
    EXPECT_FALSE((*tokens)->IsFileUsable());
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr("level=error"));
    EXPECT_THAT(log, HasSubstr(absl::StrCat(path_, ": it is empty; a file")));
    EXPECT_THAT(log, HasSubstr("says that nobody has a token"));
  }
  EXPECT_FALSE(UserTokens::Open(path_).ok());
  // The last token is revoked.
  Write({});
  EXPECT_FALSE((*tokens)->Find(token_, kNow).ok());
  EXPECT_TRUE((*tokens)->IsFileUsable());
}

TEST_F(TokenFileTest, AFileThatCouldNotBeReadOnceIsReadAgain) {
  Write({});
  const auto tokens = UserTokens::Open(path_);
  ASSERT_OK(tokens);
  Write({viewer_});
  {
    const NoMoreFiles none;
    EXPECT_FALSE((*tokens)->Find(token_, kNow).ok());
  }
  EXPECT_OK((*tokens)->Find(token_, kNow));
}

}  // namespace
}  // namespace syncline
