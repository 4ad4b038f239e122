// Goal: with a token file people may do what their role says, and the audit log
// says what they did. Method: the real scheduler on loopback, and synctl with
// the tokens that `synctl token` made.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::HasSubstr;
using testing::Not;

class UserTokenTest : public testing::Test {
 protected:
  void SetUp() override {
    viewer_ = Make("vera", "viewer");
    submitter_ = Make("sam", "submitter");
    operator_ = Make("olga", "operator");
    ASSERT_OK(cluster_.StartDaemon("scheduler", {"--token-file=" + file_}));
  }

  absl::StatusOr<RunningProgram::Result> Synctl(
      const std::vector<std::string>& arguments,
      const std::optional<std::string>& token) {
    return cluster_.SynctlWithToken(arguments, token);
  }

  std::string Make(const std::string& name, const std::string& role) {
    const auto made =
        Synctl({"token", "create", name, "--role", role, "--file", file_},
               std::nullopt);
    EXPECT_OK(made);
    EXPECT_EQ(made->exit.code, 0) << made->err;
    return std::string(absl::StripAsciiWhitespace(made->out));
  }

  std::string Job() {
    JobSpec job = DigitsJob();
    return WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10));
  }

  TestCluster cluster_{TestCluster::Options{.ps = 0, .workers = 0}};
  const std::string file_ = cluster_.dir().File("tokens");
  std::string viewer_;
  std::string submitter_;
  std::string operator_;
};

TEST_F(UserTokenTest, AViewerMayNotCancel) {
  ASSERT_OK_AND_ASSIGN(const auto submitted,
                       Synctl({"submit", Job()}, submitter_));
  EXPECT_EQ(submitted.exit.code, 0) << submitted.err;
  ASSERT_OK_AND_ASSIGN(const auto listed, Synctl({"list"}, viewer_));
  EXPECT_EQ(listed.exit.code, 0) << listed.err;
  ASSERT_OK_AND_ASSIGN(const auto refused,
                       Synctl({"cancel", "j-0001"}, viewer_));
  EXPECT_EQ(refused.exit.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("vera is a viewer"));
  EXPECT_THAT(refused.err, HasSubstr("needs the role operator"));
  ASSERT_OK_AND_ASSIGN(const auto cancelled,
                       Synctl({"cancel", "j-0001"}, operator_));
  EXPECT_EQ(cancelled.exit.code, 0) << cancelled.err;

  const std::string audit =
      ReadFile(cluster_.dir().File("state/audit.log"), 1 << 20).value_or("");
  EXPECT_THAT(audit, HasSubstr("\"who\":\"token:sam\""));
  EXPECT_THAT(audit, HasSubstr("\"action\":\"submit\",\"job\":\"j-0001\","
                               "\"outcome\":\"OK\""));
  EXPECT_THAT(audit, HasSubstr("\"who\":\"token:vera\""));
  // With the job and the peer.
  EXPECT_THAT(audit,
              testing::ContainsRegex(
                  "\"peer\":\"ipv4:127[^\"]*\",\"action\":\"/syncline.Jobs/"
                  "Cancel\",\"job\":\"j-0001\",\"outcome\":"
                  "\"PERMISSION_DENIED\""));
  EXPECT_THAT(audit, HasSubstr("\"who\":\"token:olga\""));
  EXPECT_THAT(audit + cluster_.LogOf("scheduler"), Not(HasSubstr(viewer_)));
}

TEST_F(UserTokenTest, NoTokenAndAnUnknownOneAreRefused) {
  ASSERT_OK_AND_ASSIGN(const auto none, Synctl({"list"}, std::nullopt));
  EXPECT_EQ(none.exit.code, 1);
  EXPECT_THAT(none.err, HasSubstr("set SYNCLINE_TOKEN"));
  ASSERT_OK_AND_ASSIGN(const auto unknown,
                       Synctl({"list"}, absl::StrCat(viewer_, "0")));
  EXPECT_EQ(unknown.exit.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("unknown, or revoked"));
  // A call that names a job is refused in the same words, and the audit log has
  // its job and its peer.
  ASSERT_OK_AND_ASSIGN(
      const auto cancelled,
      Synctl({"cancel", "j-0077"}, absl::StrCat(viewer_, "0")));
  EXPECT_EQ(cancelled.exit.code, 1);
  EXPECT_THAT(cancelled.err, HasSubstr("unknown, or revoked"));
  ASSERT_OK_AND_ASSIGN(const auto logs,
                       Synctl({"logs", "j-0078"}, std::nullopt));
  EXPECT_EQ(logs.exit.code, 1);
  EXPECT_THAT(logs.err, HasSubstr("set SYNCLINE_TOKEN"));
  const std::string audit =
      ReadFile(cluster_.dir().File("state/audit.log"), 1 << 20).value_or("");
  for (const char* call :
       {"Cancel\",\"job\":\"j-0077", "Logs\",\"job\":\"j-0078"}) {
    EXPECT_THAT(audit, testing::ContainsRegex(absl::StrCat(
                           "\"who\":\"unknown\",\"peer\":\"ipv4:127[^\"]*\","
                           "\"action\":\"/syncline.Jobs/",
                           call, "\",\"outcome\":\"UNAUTHENTICATED\"")));
  }
}

TEST_F(UserTokenTest, ARevokedTokenIsRefusedAtOnce) {
  ASSERT_OK_AND_ASSIGN(const auto before, Synctl({"list"}, viewer_));
  EXPECT_EQ(before.exit.code, 0) << before.err;
  ASSERT_OK_AND_ASSIGN(
      const auto revoked,
      Synctl({"token", "revoke", "vera", "--file", file_}, std::nullopt));
  EXPECT_EQ(revoked.exit.code, 0) << revoked.err;
  ASSERT_OK_AND_ASSIGN(const auto after, Synctl({"list"}, viewer_));
  EXPECT_EQ(after.exit.code, 1);
  EXPECT_THAT(after.err, HasSubstr("revoked"));
}

// Members need no token.
TEST_F(UserTokenTest, AMemberJoins) {
  ASSERT_OK(cluster_.StartDaemon("ps-0"));
  EXPECT_TRUE(Eventually(absl::Seconds(60), [&] {
    const auto members = Synctl({"cluster"}, viewer_);
    return members.ok() && absl::StrContains(members->out, "ps:0");
  }));
}

}  // namespace
}  // namespace syncline
