// Goal: a signature is taken if it is that of the key, and only then. Method:
// keys and signatures by OpenSSL, damaged one byte at a time.

#include "common/security/signature_key.h"

#include <openssl/core_names.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/web_token_signer.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using testing::WebTokenSigner;

absl::StatusOr<SignatureKey> PublicKeyOf(const WebTokenSigner& signer) {
  if (signer.algorithm() == "RS256") {
    return SignatureKey::Rs256(signer.Part(OSSL_PKEY_PARAM_RSA_N),
                               signer.Part(OSSL_PKEY_PARAM_RSA_E));
  }
  return SignatureKey::Es256(signer.Part(OSSL_PKEY_PARAM_EC_PUB_X),
                             signer.Part(OSSL_PKEY_PARAM_EC_PUB_Y));
}

TEST(SignatureKeyTest, ASignatureIsThatOfItsKeyAndMessage) {
  for (const WebTokenSigner& signer :
       {WebTokenSigner::Rs256(), WebTokenSigner::Es256()}) {
    ASSERT_OK_AND_ASSIGN(const SignatureKey key, PublicKeyOf(signer));
    EXPECT_EQ(key.algorithm(), signer.algorithm());
    const std::string signature = signer.Signature("message");
    EXPECT_TRUE(key.Verify("message", signature));
    EXPECT_FALSE(key.Verify("messagE", signature));
    EXPECT_FALSE(key.Verify("", signature));
    for (size_t i = 0; i < signature.size(); i += 7) {
      std::string damaged = signature;
      damaged[i] = static_cast<char>(damaged[i] ^ 1);
      EXPECT_FALSE(key.Verify("message", damaged)) << i;
    }
    for (const std::string& other :
         {std::string(), signature.substr(1), signature + "x",
          std::string(signature.size(), '\0')}) {
      EXPECT_FALSE(key.Verify("message", other));
    }
  }
  const WebTokenSigner stranger = WebTokenSigner::Es256();
  ASSERT_OK_AND_ASSIGN(const SignatureKey key,
                       PublicKeyOf(WebTokenSigner::Es256()));
  EXPECT_FALSE(key.Verify("message", stranger.Signature("message")));
}

TEST(SignatureKeyTest, WhatIsNoKeyIsRefused) {
  const WebTokenSigner weak = WebTokenSigner::Rs256(1024);
  const auto refused = PublicKeyOf(weak);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("an RSA key of 1024 bits"));
  EXPECT_FALSE(SignatureKey::Rs256("", "\x03").ok());
  EXPECT_FALSE(SignatureKey::Rs256(std::string(256, '\xff'), "").ok());
  // On no curve, at infinity, too short.
  EXPECT_FALSE(
      SignatureKey::Es256(std::string(32, '\x01'), std::string(32, '\x01'))
          .ok());
  EXPECT_FALSE(
      SignatureKey::Es256(std::string(32, '\0'), std::string(32, '\0')).ok());
  EXPECT_FALSE(SignatureKey::Es256("x", "y").ok());
}

}  // namespace
}  // namespace syncline
