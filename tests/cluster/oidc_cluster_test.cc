// Goal: a scheduler lets in who has a token of its issuer, for the role and the
// tenant of the claims, and nobody with another one. Method: the real scheduler
// on loopback, and synctl with tokens that keys of this test sign.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"
#include "tests/testing/web_token_signer.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::WebTokenSigner;

class OidcClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(WriteFileAtomically(keys_, testing::Jwks({key_.Jwk("k")})));
    ASSERT_OK(cluster_.StartDaemon(
        "scheduler",
        {"--oidc-issuer=https://login.example", "--oidc-audience=syncline",
         absl::StrCat("--oidc-jwks=", keys_)}));
  }

  static std::string Claims(const std::string& role, const std::string& tenant,
                            absl::Duration life = absl::Hours(1)) {
    return absl::StrCat(
        "{\"iss\":\"https://login.example\",\"aud\":[\"syncline\"],",
        "\"sub\":\"alice\",\"exp\":", absl::ToUnixSeconds(absl::Now() + life),
        ",\"syncline_role\":\"", role, "\"",
        tenant.empty() ? ""
                       : absl::StrCat(",\"syncline_tenant\":\"", tenant, "\""),
        "}");
  }
  std::string Token(const std::string& role, const std::string& tenant = "") {
    return key_.TokenOf("k", Claims(role, tenant));
  }

  RunningProgram::Result Synctl(const std::vector<std::string>& arguments,
                                const std::optional<std::string>& token) {
    const auto result = cluster_.SynctlWithToken(arguments, token);
    EXPECT_OK(result.status());
    return *result;
  }

  TestCluster cluster_{TestCluster::Options{.ps = 0, .workers = 0}};
  const std::string keys_ = cluster_.dir().File("jwks.json");
  const WebTokenSigner key_ = WebTokenSigner::Es256();
};

TEST_F(OidcClusterTest, ClaimsSayWhatTheirBearerMay) {
  const std::string job =
      WriteJob(cluster_.dir(), DigitsJob(), MlpModel(784, 32, 10));
  const auto submitted = Synctl({"submit", job}, Token("submitter", "acme"));
  EXPECT_EQ(submitted.exit.code, 0) << submitted.err;
  const auto refused = Synctl({"cancel", "j-0001"}, Token("viewer", "acme"));
  EXPECT_EQ(refused.exit.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("oidc:alice is a viewer"));
  EXPECT_THAT(Synctl({"list"}, Token("admin", "zeta")).out,
              Not(HasSubstr("j-0001")));
  EXPECT_THAT(Synctl({"list"}, Token("operator")).out, HasSubstr("j-0001"));
  EXPECT_THAT(
      ReadFile(cluster_.dir().File("state/audit.log"), 1 << 20).value_or(""),
      HasSubstr("\"who\":\"token:oidc:alice\""));
}

TEST_F(OidcClusterTest, OtherTokensAreRefused) {
  for (const auto& [token, text] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "wants a token of its OpenID Connect issuer"},
           {"synt_00", "no JSON Web Token"},
           {key_.Token(R"({"alg":"none"})", Claims("admin", "")),
            "has alg \"none\""},
           {WebTokenSigner::Es256().TokenOf("k", Claims("admin", "")),
            "a wrong signature"},
           {key_.TokenOf("k", Claims("admin", "", -absl::Seconds(1))),
            "has expired"},
           {key_.TokenOf("k", Claims("root", "")), "no syncline_role"}}) {
    const auto refused = Synctl({"list"}, token);
    EXPECT_EQ(refused.exit.code, 1);
    EXPECT_THAT(refused.err, HasSubstr(text));
  }
}

TEST_F(OidcClusterTest, ANewKeyCountsAtOnce) {
  const WebTokenSigner next = WebTokenSigner::Rs256();
  ASSERT_OK(WriteFileAtomically(keys_, testing::Jwks({next.Jwk("n")})));
  const auto in = Synctl({"list"}, next.TokenOf("n", Claims("viewer", "")));
  EXPECT_EQ(in.exit.code, 0) << in.err;
  const auto out = Synctl({"list"}, Token("viewer"));
  EXPECT_EQ(out.exit.code, 1);
  EXPECT_THAT(out.err, HasSubstr("has kid \"k\""));
}

}  // namespace
}  // namespace syncline
