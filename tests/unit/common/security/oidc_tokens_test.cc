// Goal: a token of the issuer lets in whom its claims name, and every other
// token is refused with the claim that is wrong. Method: tokens that a key of
// OpenSSL signs, claims that differ in one thing, times that the test says.

#include "common/security/oidc_tokens.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/web_token_signer.h"

namespace syncline {
namespace {

using testing::Base64Url;
using ::testing::HasSubstr;
using testing::Jwks;
using testing::WebTokenSigner;

const absl::Time kNow = absl::FromUnixSeconds(1'900'000'000);
constexpr char kClaims[] =
    R"({"iss":"https://login.example","aud":"syncline","sub":"alice",)"
    R"("exp":1900000600,"nbf":1899999000,"syncline_role":"operator",)"
    R"("syncline_tenant":"acme"})";

class OidcTokensTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write({rsa_.Jwk("r"), ec_.Jwk("e")});
    ASSERT_OK_AND_ASSIGN(tokens_, OidcTokens::Open({
                                      .issuer = "https://login.example",
                                      .audience = "syncline",
                                      .keys_file = path_,
                                  }));
  }
  void Write(const std::vector<std::string>& keys) {
    ASSERT_OK(WriteFileAtomically(path_, Jwks(keys)));
  }
  absl::StatusOr<TokenEntry> Find(const std::string& token) {
    return tokens_->Find(token, kNow);
  }
  // With `old` in the claims replaced.
  absl::StatusOr<TokenEntry> With(const std::string& old,
                                  const std::string& by) {
    const std::string claims = absl::StrReplaceAll(kClaims, {{old, by}});
    EXPECT_NE(claims, kClaims) << old;
    return Find(ec_.TokenOf("e", claims));
  }
  void ExpectRefused(const absl::StatusOr<TokenEntry>& found,
                     const std::string& text) {
    EXPECT_EQ(found.status().code(), absl::StatusCode::kUnauthenticated)
        << found.status();
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(text));
  }

  const TempDir dir_;
  const std::string path_ = dir_.File("jwks.json");
  const WebTokenSigner rsa_ = WebTokenSigner::Rs256();
  const WebTokenSigner ec_ = WebTokenSigner::Es256();
  std::unique_ptr<OidcTokens> tokens_;
};

TEST_F(OidcTokensTest, BothAlgorithmsLetIn) {
  for (const std::string& token :
       {rsa_.TokenOf("r", kClaims), ec_.TokenOf("e", kClaims),
        // Without a name of the key all of the kind are tried.
        rsa_.Token(R"({"alg":"RS256"})", kClaims)}) {
    ASSERT_OK_AND_ASSIGN(const TokenEntry entry, Find(token));
    EXPECT_EQ(entry.name, "oidc:alice");
    EXPECT_EQ(entry.role, UserRole::kOperator);
    EXPECT_EQ(entry.tenant, "acme");
    EXPECT_EQ(entry.expiry, kNow + absl::Minutes(10));
  }
}

TEST_F(OidcTokensTest, EachClaimIsChecked) {
  ExpectRefused(With("https://login.example", "https://evil.example"),
                "has iss \"https://evil.example\"");
  ExpectRefused(With("\"iss\"", "\"x\""), "has iss \"\"");
  ExpectRefused(With("\"syncline\"", "\"other\""), "no aud that is syncline");
  ExpectRefused(With("\"aud\"", "\"x\""), "no aud");
  ExpectRefused(With("1900000600", "1900000000"), "has expired: exp is 2030-");
  ExpectRefused(With("1900000600", "\"soon\""), "no exp that is a time");
  ExpectRefused(With("1900000600", "1e300"), "no exp that is a time");
  ExpectRefused(With("\"exp\"", "\"x\""), "no exp that is a time");
  ExpectRefused(With("1899999000", "1900000031"),
                "not valid yet: nbf is 2030-");
  ExpectRefused(With("1899999000", "\"x\""), "an nbf that is no time");
  ExpectRefused(With("\"sub\"", "\"x\""), "no sub");
  ExpectRefused(With("\"operator\"", "\"root\""), "no syncline_role that is");
  ExpectRefused(With("\"syncline_role\"", "\"x\""), "no syncline_role");
  ExpectRefused(With("\"acme\"", "\"../acme\""), "a syncline_tenant that is");
  ExpectRefused(With("\"acme\"", "[\"acme\"]"), "a syncline_tenant that is");
  // Differences that do not matter.
  EXPECT_OK(With("\"syncline\"", "[\"other\",\"syncline\"]").status());
  EXPECT_OK(With("1899999000", "1900000029").status());
  EXPECT_OK(With("\"nbf\":1899999000,", "").status());
  EXPECT_EQ(With(",\"syncline_tenant\":\"acme\"", "")->tenant, "");
  EXPECT_EQ(
      With("\"operator\"", "[\"x\",\"viewer\",\"syncline-submitter\"]")->role,
      UserRole::kSubmitter);
}

TEST_F(OidcTokensTest, OnlySignaturesOfTheIssuerCount) {
  const std::string claims = Base64Url(kClaims);
  const auto unsigned_token = [&](const std::string& header) {
    return absl::StrCat(Base64Url(header), ".", claims, ".");
  };
  ExpectRefused(Find(unsigned_token(R"({"alg":"none"})")), "has alg \"none\"");
  ExpectRefused(Find(unsigned_token(R"({"alg":"None"})")), "has alg \"None\"");
  ExpectRefused(Find(unsigned_token("{}")), "has alg \"\"");
  ExpectRefused(Find(unsigned_token(R"({"alg":"RS256","kid":"r"})")),
                "a wrong signature");
  // The public key is no shared secret.
  ExpectRefused(Find(ec_.Token(R"({"alg":"HS256","kid":"e"})", kClaims)),
                "has alg \"HS256\"");
  ExpectRefused(Find(ec_.Token(R"({"alg":"RS256","kid":"e"})", kClaims)),
                "has no such key");
  ExpectRefused(
      Find(ec_.Token(R"({"alg":"ES256","kid":"e","crit":["x"]})", kClaims)),
      "has crit");
  ExpectRefused(Find(WebTokenSigner::Es256().TokenOf("e", kClaims)),
                "a wrong signature");
  ExpectRefused(Find(ec_.TokenOf("other", kClaims)), "has kid \"other\"");
  // Claims of one token under the signature of another.
  const std::string good = ec_.TokenOf("e", kClaims);
  const std::string other =
      Base64Url(absl::StrReplaceAll(kClaims, {{"\"operator\"", "\"admin\""}}));
  ExpectRefused(Find(absl::StrReplaceAll(good, {{claims, other}})),
                "a wrong signature");
  // The last character of 64 bytes has four bits that say nothing: A to B.
  std::string spelled = good;
  ++spelled.back();
  EXPECT_FALSE(Find(spelled).ok());
}

TEST_F(OidcTokensTest, WhatIsNoTokenIsRefused) {
  for (const std::string token :
       {"", "x", "a.b", "a.b.c.d", "..", "!.!.!", "e30.e30.e30", "bnVsbA.e30.",
        "W10.W10.W10", "eyJhIjoxLCJhIjoyfQ.e30."}) {
    EXPECT_EQ(Find(token).status().code(), absl::StatusCode::kUnauthenticated)
        << token;
  }
  ExpectRefused(Find(std::string(9000, 'a')), "more than");
  const std::string padded = ec_.TokenOf("e", kClaims) + "==";
  ExpectRefused(Find(padded), "base64url");
}

TEST_F(OidcTokensTest, KeysAreReadAgain) {
  const WebTokenSigner next = WebTokenSigner::Es256();
  ExpectRefused(Find(next.TokenOf("n", kClaims)), "has kid \"n\"");
  Write({ec_.Jwk("e"), next.Jwk("n")});
  EXPECT_OK(Find(next.TokenOf("n", kClaims)).status());
  EXPECT_OK(Find(ec_.TokenOf("e", kClaims)).status());
  Write({next.Jwk("n")});
  ExpectRefused(Find(ec_.TokenOf("e", kClaims)), "has kid \"e\"");
}

TEST_F(OidcTokensTest, ABrokenFileLeavesTheKeysAsTheyWere) {
  const std::string token = ec_.TokenOf("e", kClaims);
  for (const auto& [text, why] :
       std::vector<std::pair<std::string, std::string>>{
           {"{}", "no JSON object with a list"},
           {"{\n \"keys\": [\n  {,]}", ": 3:4: not JSON: expected a key"},
           {"{\n \"keys\": [\n\n  {\"kty\":\"EC\",\"crv\":\"P-256\"}]}",
            "line 4: the key"}}) {
    ::testing::internal::CaptureStderr();
    ASSERT_OK(WriteFileAtomically(path_, text));
    for (int i = 0; i < 3; ++i) EXPECT_OK(Find(token).status());
    EXPECT_FALSE(tokens_->IsFileUsable());
    const std::string log = ::testing::internal::GetCapturedStderr();
    const size_t begin = log.find("keys of the issuer stay as they were");
    ASSERT_NE(begin, std::string::npos) << log;
    EXPECT_EQ(log.find("stay as they were", begin + 40), std::string::npos);
    EXPECT_THAT(log, HasSubstr(path_));
    EXPECT_THAT(log, HasSubstr(why));
  }
  ASSERT_OK(RemoveTree(path_));
  EXPECT_OK(Find(token).status());
  Write({rsa_.Jwk("r")});
  EXPECT_TRUE(tokens_->IsFileUsable());
  ExpectRefused(Find(token), "has kid \"e\"");
}

// To take keys out is the way to revoke them.
TEST_F(OidcTokensTest, AListWithoutKeysLetsNobodyIn) {
  const std::string token = ec_.TokenOf("e", kClaims);
  for (const std::vector<std::string>& none :
       std::vector<std::vector<std::string>>{
           {},
           {R"({"kty":"oct","kid":"secret","k":"AAAA"})"},
           {R"({"kty":"RSA","use":"enc","kid":"r"})"}}) {
    Write({ec_.Jwk("e")});
    EXPECT_OK(Find(token).status());
    ::testing::internal::CaptureStderr();
    Write(none);
    ExpectRefused(Find(token), "has no such key");
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("the issuer has no keys any more"));
    ExpectRefused(Find(token), "has no such key");
    // At the start it is a mistake.
    EXPECT_FALSE(OidcTokens::Open({.issuer = "https://login.example",
                                   .audience = "syncline",
                                   .keys_file = path_})
                     .ok());
  }
  Write({ec_.Jwk("e")});
  EXPECT_OK(Find(token).status());
}

TEST_F(OidcTokensTest, AKeyThatCannotBeUsedIsSkippedByName) {
  ::testing::internal::CaptureStderr();
  Write({R"({"kty":"RSA","kid":"short","n":"AQ","e":"AQAB"})", ec_.Jwk("e"),
         rsa_.Jwk("e"), R"({"kty":"oct","kid":"secret","k":"AAAA"})", "7",
         rsa_.Jwk("r")});
  EXPECT_OK(Find(ec_.TokenOf("e", kClaims)).status());
  EXPECT_OK(Find(rsa_.TokenOf("r", kClaims)).status());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("short"));
  EXPECT_THAT(log, HasSubstr("an RSA key of 1 bits"));
  EXPECT_THAT(log, HasSubstr("a key before it has the same kid"));
  EXPECT_THAT(log, HasSubstr("secret"));
  ASSERT_OK_AND_ASSIGN(
      const WebKeySet set,
      ParseWebKeys(absl::StrCat(
          "{\"other\": [{}],\n\"keys\": [\n", ec_.Jwk("k"), ",\n",
          R"({"kty":"EC","crv":"P-256","kid":"]}","x":"AQ","more":[{}]},)",
          "\n7,", R"({"kty":"RSA","use":"enc","kid":"p"}]})")));
  EXPECT_EQ(set.keys.size(), 1u);
  ASSERT_EQ(set.skipped.size(), 3u);
  EXPECT_THAT(set.skipped[0], HasSubstr("line 4: the key \"]}\": coordinates"));
  EXPECT_EQ(set.skipped[1],
            "the key \"\": it is for no signature by RS256 or ES256");
  EXPECT_EQ(set.skipped[2],
            "line 5: the key \"p\": it is for no signature by RS256 or ES256");
}

// Protobuf's parser takes time by the square of the depth.
TEST_F(OidcTokensTest, DeepJsonIsRefusedBeforeItIsParsed) {
  const auto nested = [](size_t depth, const std::string& open,
                         const std::string& close) {
    std::string text;
    for (size_t i = 0; i < depth; ++i) text += open;
    text += "1";
    for (size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  // As deep as a token of 8 KiB can be.
  for (const std::string& deep :
       {nested(1000, R"({"x":)", "}"), nested(2900, "[", "]")}) {
    const std::string object = absl::StrCat(R"({"x":)", deep, "}");
    ExpectRefused(
        Find(absl::StrCat(Base64Url(object), ".", Base64Url("{}"), ".")),
        "has no JSON object as its header: 1:");
    ExpectRefused(
        Find(absl::StrCat(Base64Url("{}"), ".", Base64Url(object), ".")),
        "nested deeper than 16");
  }
  // A string is no depth.
  ExpectRefused(
      Find(absl::StrCat(
          Base64Url(absl::StrCat(R"({"alg":")", std::string(100, '['), "\"}")),
          ".", Base64Url("{}"), ".")),
      "has alg");
  const absl::Status keys =
      ParseWebKeys(absl::StrCat("{\n\"keys\":", nested(100'000, "[", "]"), "}"))
          .status();
  EXPECT_THAT(std::string(keys.message()),
              HasSubstr("2:24: not JSON: nested deeper than 16"));
}

TEST_F(OidcTokensTest, ABadFileOfKeysIsNamed) {
  for (const auto& [text, why] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "1:1: not JSON"},
           {"[]", "no JSON object"},
           {R"({"keys":7})", "a list \"keys\""},
           {R"({"keys":[]})", "no key for RS256 or ES256"},
           {R"({"keys":[],"keys":[]})", "occurs twice"},
           {Jwks({R"({"kty":"oct","k":"AAAA"})"}), "no key for RS256"},
           {Jwks({R"({"kty":"RSA","kid":"k","n":"AQ","e":"AQAB"})"}),
            "the key \"k\": an RSA key of 1 bits"},
           {Jwks({R"({"kty":"EC","crv":"P-256","kid":"k","x":"AQ"})"}),
            "the key \"k\": coordinates"}}) {
    const auto keys = ParseWebKeys(text);
    EXPECT_EQ(keys.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(keys.status().message()), HasSubstr(why));
  }
}

}  // namespace
}  // namespace syncline
