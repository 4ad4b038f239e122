// Goal: the HTTP pages show jobs and logs to those who may see them, and tokens
// do not travel in plain text. Method: a line for each way to ask.

#include "scheduler/service/page_access.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;

class PageAccessTest : public ::testing::Test {
 protected:
  PageAccessTest() {
    std::vector<TokenEntry> entries;
    for (const UserRole role : {UserRole::kViewer, UserRole::kAdmin}) {
      entries.push_back({.name = std::string(UserRoleName(role)),
                         .role = role,
                         .sha256 = HashToken(UserRoleName(role))});
    }
    entries.push_back({.name = "red-viewer",
                       .sha256 = HashToken("red-viewer"),
                       .tenant = "red"});
    tokens_ = *UserTokens::Open(dir_.Write("tokens", FormatTokens(entries)));
  }
  absl::StatusOr<PageViewer> Ask(bool from_loopback, UserTokens* tokens,
                                 bool has_tls, const std::string& header = "") {
    BearerFinder find_bearer;
    if (tokens != nullptr) {
      find_bearer = [tokens](absl::string_view token) {
        return tokens->Find(token, absl::Now());
      };
    }
    return CheckPageViewer(
        {.authorization = header, .from_loopback = from_loopback}, find_bearer,
        has_tls);
  }

  TempDir dir_;
  std::unique_ptr<UserTokens> tokens_;
};

TEST_F(PageAccessTest, AnOpenClusterShowsThePageAndLogsAtHome) {
  EXPECT_TRUE(Ask(true, nullptr, false)->reads_logs);
  const auto elsewhere = Ask(false, nullptr, false);
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status();
  EXPECT_FALSE(elsewhere->reads_logs);
}

TEST_F(PageAccessTest, AStrangersNameForThisMachineShowsNothing) {
  const auto ask = [](const std::string& host, bool from_loopback,
                      const BearerFinder& find_bearer = nullptr) {
    return CheckPageViewer({.authorization = "Bearer t",
                            .host = host,
                            .from_loopback = from_loopback},
                           find_bearer, /*has_tls=*/false, "node-1:8080")
        .status();
  };
  for (const char* host :
       {"", "localhost", "LOCALHOST:8080", "127.0.0.1:8080", "10.0.0.7",
        "[::1]:8080", "[::1]", "node-1", "node-1:9"}) {
    EXPECT_TRUE(ask(host, true).ok()) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080",
                           "127.0.0.1.evil.example", "localhost.evil.example",
                           "::1", "[evil]", "[::1].evil.example", ":80"}) {
    const absl::Status refused = ask(host, true);
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << host << ": " << refused;
    // Others see what is for everyone; a token is no page's but the reader's.
    EXPECT_TRUE(ask(host, false).ok()) << host;
    EXPECT_TRUE(
        ask(host, true, [](absl::string_view) { return TokenEntry(); }).ok())
        << host;
  }
}

TEST_F(PageAccessTest, WithTlsOnlyTheMachineItselfSeesJobsAndNobodyLogs) {
  const auto here = Ask(true, nullptr, true);
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_FALSE(here->reads_logs);
  const auto elsewhere = Ask(false, nullptr, true);
  EXPECT_TRUE(absl::IsPermissionDenied(elsewhere.status()));
  EXPECT_THAT(std::string(elsewhere.status().message()), HasSubstr("ssh -L"));
}

TEST_F(PageAccessTest, WithTokensOneIsNeeded) {
  for (const bool has_tls : {false, true}) {
    EXPECT_TRUE(
        absl::IsUnauthenticated(Ask(true, tokens_.get(), has_tls).status()));
    EXPECT_TRUE(absl::IsUnauthenticated(
        Ask(true, tokens_.get(), has_tls, "Bearer nonsense").status()));
    EXPECT_TRUE(absl::IsUnauthenticated(
        Ask(true, tokens_.get(), has_tls, "viewer").status()));
    const auto viewer = Ask(true, tokens_.get(), has_tls, "Bearer viewer");
    ASSERT_TRUE(viewer.ok()) << viewer.status();
    EXPECT_TRUE(viewer->reads_logs);
    EXPECT_EQ(viewer->who, "token:viewer");
  }
}

TEST_F(PageAccessTest, ATokenThatCameInPlainTextIsNotTaken) {
  const auto elsewhere = Ask(false, tokens_.get(), false, "Bearer admin");
  EXPECT_TRUE(absl::IsPermissionDenied(elsewhere.status()));
}

TEST_F(PageAccessTest, JobsOfTenantsAreForTheirTenantAndForAdmins) {
  JobStatus job;
  const auto viewer = Ask(true, tokens_.get(), false, "Bearer viewer");
  const auto red = Ask(true, tokens_.get(), false, "Bearer red-viewer");
  const auto admin = Ask(true, tokens_.get(), false, "Bearer admin");
  EXPECT_TRUE(MaySee(*viewer, job));
  EXPECT_FALSE(MaySee(*red, job));
  job.set_tenant("red");
  EXPECT_FALSE(MaySee(*viewer, job));
  EXPECT_TRUE(MaySee(*red, job));
  EXPECT_TRUE(MaySee(*admin, job));
  job.set_tenant("blue");
  EXPECT_FALSE(MaySee(*red, job));
}

TEST_F(PageAccessTest, RefusalsHaveTheirCodes) {
  EXPECT_EQ(Refusal(absl::UnauthenticatedError("x")).code, 401);
  EXPECT_EQ(Refusal(absl::PermissionDeniedError("x")).code, 403);
  EXPECT_EQ(Refusal(absl::NotFoundError("x")).code, 404);
  EXPECT_EQ(Refusal(absl::InvalidArgumentError("x")).code, 400);
  EXPECT_EQ(Refusal(absl::FailedPreconditionError("x")).code, 503);
}

}  // namespace
}  // namespace syncline::scheduler
