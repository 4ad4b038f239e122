#ifndef SYNCLINE_TESTS_TESTING_WEB_TOKEN_SIGNER_H_
#define SYNCLINE_TESTS_TESTING_WEB_TOKEN_SIGNER_H_

// Keys of an issuer of JSON Web Tokens, and what it signs, made by OpenSSL.
// Whoever includes this links OpenSSL::Crypto.

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace syncline::testing {

inline std::string Base64Url(const std::string& bytes) {
  return absl::WebSafeBase64Escape(bytes);  // without padding
}

// A private key of one kind, RS256 or ES256.
class WebTokenSigner {
 public:
  static WebTokenSigner Rs256(unsigned bits = 2048) {
    return WebTokenSigner(EVP_RSA_gen(bits), /*is_rsa=*/true);
  }
  static WebTokenSigner Es256() {
    return WebTokenSigner(EVP_EC_gen("P-256"), /*is_rsa=*/false);
  }

  std::string algorithm() const { return is_rsa_ ? "RS256" : "ES256"; }

  // The public numbers: n and e, or x and y.
  std::string Part(const char* name) const {
    BIGNUM* number = nullptr;
    SYNCLINE_CHECK(EVP_PKEY_get_bn_param(key_.get(), name, &number) == 1);
    std::string bytes(static_cast<size_t>(BN_num_bytes(number)), '\0');
    BN_bn2bin(number, reinterpret_cast<unsigned char*>(bytes.data()));
    BN_free(number);
    // Coordinates have leading zeros.
    while (!is_rsa_ && bytes.size() < 32) bytes.insert(bytes.begin(), '\0');
    return bytes;
  }
  // As a member of a JWKS file.
  std::string Jwk(const std::string& id) const {
    if (is_rsa_) {
      return absl::StrCat(
          "{\"kty\":\"RSA\",\"use\":\"sig\",\"alg\":\"RS256\",\"kid\":\"", id,
          "\",\"n\":\"", Base64Url(Part(OSSL_PKEY_PARAM_RSA_N)), "\",\"e\":\"",
          Base64Url(Part(OSSL_PKEY_PARAM_RSA_E)), "\"}");
    }
    return absl::StrCat(
        "{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"", id, "\",\"x\":\"",
        Base64Url(Part(OSSL_PKEY_PARAM_EC_PUB_X)), "\",\"y\":\"",
        Base64Url(Part(OSSL_PKEY_PARAM_EC_PUB_Y)), "\"}");
  }

  // As tokens have it.
  std::string Signature(const std::string& message) const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
        EVP_MD_CTX_new(), &EVP_MD_CTX_free);
    const auto* data = reinterpret_cast<const unsigned char*>(message.data());
    size_t size = 0;
    SYNCLINE_CHECK(EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(),
                                      nullptr, key_.get()) == 1);
    SYNCLINE_CHECK(EVP_DigestSign(context.get(), nullptr, &size, data,
                                  message.size()) == 1);
    std::string signature(size, '\0');
    auto* out = reinterpret_cast<unsigned char*>(signature.data());
    SYNCLINE_CHECK(
        EVP_DigestSign(context.get(), out, &size, data, message.size()) == 1);
    signature.resize(size);
    if (is_rsa_) return signature;
    const unsigned char* der = out;
    ECDSA_SIG* pair =
        d2i_ECDSA_SIG(nullptr, &der, static_cast<long>(signature.size()));
    SYNCLINE_CHECK(pair != nullptr);
    std::string numbers(64, '\0');
    auto* at = reinterpret_cast<unsigned char*>(numbers.data());
    SYNCLINE_CHECK(BN_bn2binpad(ECDSA_SIG_get0_r(pair), at, 32) == 32);
    SYNCLINE_CHECK(BN_bn2binpad(ECDSA_SIG_get0_s(pair), at + 32, 32) == 32);
    ECDSA_SIG_free(pair);
    return numbers;
  }

  // `header` and `claims` are JSON.
  std::string Token(const std::string& header,
                    const std::string& claims) const {
    const std::string text =
        absl::StrCat(Base64Url(header), ".", Base64Url(claims));
    return absl::StrCat(text, ".", Base64Url(Signature(text)));
  }
  // With a header for the key `id`.
  std::string TokenOf(const std::string& id, const std::string& claims) const {
    return Token(absl::StrCat("{\"alg\":\"", algorithm(),
                              "\",\"typ\":\"JWT\",\"kid\":\"", id, "\"}"),
                 claims);
  }

 private:
  WebTokenSigner(EVP_PKEY* key, bool is_rsa)
      : key_(key, &EVP_PKEY_free), is_rsa_(is_rsa) {
    SYNCLINE_CHECK(key != nullptr);
  }

  std::shared_ptr<EVP_PKEY> key_;
  bool is_rsa_;
};

inline std::string Jwks(const std::vector<std::string>& keys) {
  std::string text = "{\"keys\":[";
  for (const std::string& key : keys) {
    absl::StrAppend(&text, text.back() == '[' ? "" : ",", key);
  }
  return absl::StrCat(text, "]}");
}

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_WEB_TOKEN_SIGNER_H_
