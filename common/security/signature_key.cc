#include "common/security/signature_key.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

constexpr size_t kCoordinateBytes = 32;
constexpr size_t kModulusBytesMax = 2048;  // 16,384 bits
constexpr char kUncompressedPoint[] = "\x04";

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Number = std::unique_ptr<BIGNUM, Deleter<BN_free>>;
using ParamBuild =
    std::unique_ptr<OSSL_PARAM_BLD, Deleter<OSSL_PARAM_BLD_free>>;
using Params = std::unique_ptr<OSSL_PARAM, Deleter<OSSL_PARAM_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Deleter<EVP_PKEY_CTX_free>>;
using PublicKey = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Deleter<EVP_MD_CTX_free>>;
using Pair = std::unique_ptr<ECDSA_SIG, Deleter<ECDSA_SIG_free>>;

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Number ToNumber(absl::string_view bytes) {
  return Number(
      BN_bin2bn(Bytes(bytes), static_cast<int>(bytes.size()), nullptr));
}

// Null: OpenSSL does not take it for a key.
PublicKey Build(const char* type, OSSL_PARAM_BLD* build) {
  const Params params(OSSL_PARAM_BLD_to_param(build));
  const KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* made = nullptr;
  if (params == nullptr || context == nullptr ||
      EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_PUBLIC_KEY,
                        params.get()) != 1) {
    ERR_clear_error();
    return nullptr;
  }
  PublicKey key(made);
  const KeyContext check(EVP_PKEY_CTX_new_from_pkey(nullptr, made, nullptr));
  const bool good = check != nullptr && EVP_PKEY_public_check(check.get()) == 1;
  ERR_clear_error();
  return good ? std::move(key) : nullptr;
}

// As OpenSSL wants a signature; empty: it is none.
std::string ToDer(absl::string_view signature) {
  if (signature.size() != 2 * kCoordinateBytes) return "";
  const Pair pair(ECDSA_SIG_new());
  Number r = ToNumber(signature.substr(0, kCoordinateBytes));
  Number s = ToNumber(signature.substr(kCoordinateBytes));
  if (pair == nullptr || r == nullptr || s == nullptr ||
      ECDSA_SIG_set0(pair.get(), r.get(), s.get()) != 1) {
    return "";
  }
  // `pair` owns them now.
  (void)r.release();
  (void)s.release();
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(pair.get(), &der);
  if (size <= 0) return "";
  std::string result(reinterpret_cast<char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  return result;
}

}  // namespace

struct SignatureKey::Key {
  bool is_rsa = false;
  PublicKey key;
};

absl::StatusOr<SignatureKey> SignatureKey::Rs256(absl::string_view modulus,
                                                 absl::string_view exponent) {
  if (modulus.empty() || modulus.size() > kModulusBytesMax ||
      exponent.empty() || exponent.size() > kModulusBytesMax) {
    return absl::InvalidArgumentError("no modulus or exponent of an RSA key");
  }
  const Number n = ToNumber(modulus);
  const Number e = ToNumber(exponent);
  if (n != nullptr && BN_num_bits(n.get()) < kRsaBitsMin) {
    return absl::InvalidArgumentError(
        absl::StrCat("an RSA key of ", BN_num_bits(n.get()),
                     " bits; it must have at least ", kRsaBitsMin));
  }
  const ParamBuild build(OSSL_PARAM_BLD_new());
  PublicKey key;
  if (n != nullptr && e != nullptr && build != nullptr &&
      OSSL_PARAM_BLD_push_BN(build.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) ==
          1 &&
      OSSL_PARAM_BLD_push_BN(build.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) ==
          1) {
    key = Build("RSA", build.get());
  }
  if (key == nullptr) return absl::InvalidArgumentError("no RSA key");
  auto made = std::make_shared<Key>();
  made->is_rsa = true;
  made->key = std::move(key);
  return SignatureKey(std::move(made));
}

absl::StatusOr<SignatureKey> SignatureKey::Es256(absl::string_view x,
                                                 absl::string_view y) {
  if (x.size() != kCoordinateBytes || y.size() != kCoordinateBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinates of ", x.size(), " and ", y.size(),
                     " bytes; P-256 has ", kCoordinateBytes));
  }
  const std::string point = absl::StrCat(kUncompressedPoint, x, y);
  const ParamBuild build(OSSL_PARAM_BLD_new());
  PublicKey key;
  if (build != nullptr &&
      OSSL_PARAM_BLD_push_utf8_string(build.get(), OSSL_PKEY_PARAM_GROUP_NAME,
                                      "P-256", 0) == 1 &&
      OSSL_PARAM_BLD_push_octet_string(build.get(), OSSL_PKEY_PARAM_PUB_KEY,
                                       point.data(), point.size()) == 1) {
    key = Build("EC", build.get());
  }
  if (key == nullptr) return absl::InvalidArgumentError("no point of P-256");
  auto made = std::make_shared<Key>();
  made->key = std::move(key);
  return SignatureKey(std::move(made));
}

absl::string_view SignatureKey::algorithm() const {
  return key_->is_rsa ? "RS256" : "ES256";
}

bool SignatureKey::Verify(absl::string_view message,
                          absl::string_view signature) const {
  std::string der;
  if (!key_->is_rsa) {
    der = ToDer(signature);
    if (der.empty()) return false;
    signature = der;
  }
  const DigestContext context(EVP_MD_CTX_new());
  const bool good =
      context != nullptr &&
      EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr,
                           key_->key.get()) == 1 &&
      EVP_DigestVerify(context.get(), Bytes(signature), signature.size(),
                       Bytes(message), message.size()) == 1;
  ERR_clear_error();
  return good;
}

}  // namespace syncline
