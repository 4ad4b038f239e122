#include "common/security/certificate.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/objects.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Deleter<X509_STORE_free>>;
using StoreContext =
    std::unique_ptr<X509_STORE_CTX, Deleter<X509_STORE_CTX_free>>;
using Number = std::unique_ptr<BIGNUM, Deleter<BN_free>>;
using Group = std::unique_ptr<EC_GROUP, Deleter<EC_GROUP_free>>;
using Signature = std::unique_ptr<ECDSA_SIG, Deleter<ECDSA_SIG_free>>;

// The r of a signature has about as many bits as the order of the curve: one of
// so many fewer comes up once in 2^64 signatures.
constexpr int kShortByBitsMax = 64;

// The last of OpenSSL's errors; the others are dropped.
absl::Status Failed(absl::string_view what) {
  char text[256] = "";
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("cannot ", what, ": ", text));
}

Bio Reading(absl::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A key with a passphrase is not asked for it: no terminal may be there.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::StatusOr<Certificate> ParseCertificate(absl::string_view pem) {
  if (pem.size() > kPemBytesMax) {
    return absl::InvalidArgumentError("the certificate is too large");
  }
  const Bio bio = Reading(pem);
  Certificate certificate(
      PEM_read_bio_X509(bio.get(), nullptr, &NoPassphrase, nullptr));
  ERR_clear_error();
  if (certificate != nullptr) return certificate;
  return absl::InvalidArgumentError("no PEM certificate in it");
}

absl::StatusOr<Key> ParseKey(absl::string_view pem) {
  if (pem.size() > kPemBytesMax) {
    return absl::InvalidArgumentError("the key is too large");
  }
  const Bio bio = Reading(pem);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(
      "no PEM private key without a passphrase in it");
}

std::string Written(BIO* bio) {
  const char* data = nullptr;
  const auto size = BIO_get_mem_data(bio, &data);
  return size <= 0 ? std::string()
                   : std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<CertificateAndKey> ToPem(X509* certificate, EVP_PKEY* key) {
  const Bio certificate_out(BIO_new(BIO_s_mem()));
  const Bio key_out(BIO_new(BIO_s_secmem()));
  if (PEM_write_bio_X509(certificate_out.get(), certificate) != 1 ||
      PEM_write_bio_PKCS8PrivateKey(key_out.get(), key, nullptr, nullptr, 0,
                                    nullptr, nullptr) != 1) {
    return Failed("write a certificate");
  }
  return CertificateAndKey{Written(certificate_out.get()),
                           Written(key_out.get())};
}

std::string CommonName(const X509_NAME* name) {
  char text[256] = "";
  X509_NAME_get_text_by_NID(name, NID_commonName, text, sizeof(text));
  return Printable(text);
}

absl::Time FromAsn1(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

bool AddExtension(X509* certificate, X509* issuer, int nid,
                  const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension =
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool SetNames(X509* certificate, absl::Span<const std::string> uris) {
  GENERAL_NAMES* names = sk_GENERAL_NAME_new_null();
  bool good = names != nullptr;
  for (const std::string& uri : uris) {
    GENERAL_NAME* name = GENERAL_NAME_new();
    ASN1_IA5STRING* text = ASN1_IA5STRING_new();
    good = good && name != nullptr && text != nullptr &&
           ASN1_STRING_set(text, uri.data(), static_cast<int>(uri.size())) == 1;
    if (!good) {
      GENERAL_NAME_free(name);
      ASN1_IA5STRING_free(text);
      break;
    }
    GENERAL_NAME_set0_value(name, GEN_URI, text);
    good = sk_GENERAL_NAME_push(names, name) > 0;
  }
  good = good && X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0,
                                   X509V3_ADD_DEFAULT) == 1;
  GENERAL_NAMES_free(names);
  return good;
}

// 127 random bits, which no other certificate of the authority has.
bool SetSerial(X509* certificate) {
  const Number number(BN_new());
  return number != nullptr &&
         BN_rand(number.get(), 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) !=
             nullptr;
}

bool SetSubject(X509* certificate, absl::string_view common_name) {
  return X509_NAME_add_entry_by_txt(
             X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
             reinterpret_cast<const unsigned char*>(common_name.data()),
             static_cast<int>(common_name.size()), -1, 0) == 1;
}

std::string HashOf(const X509* certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  X509_digest(certificate, EVP_sha256(), digest, &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), size));
}

// Of all curves that OpenSSL knows, each order once.
std::vector<Number> MakeOrders() {
  std::vector<EC_builtin_curve> curves(EC_get_builtin_curves(nullptr, 0));
  EC_get_builtin_curves(curves.data(), curves.size());
  std::vector<Number> orders;
  for (const EC_builtin_curve& curve : curves) {
    const Group group(EC_GROUP_new_by_curve_name(curve.nid));
    if (group == nullptr) continue;
    const BIGNUM* const order = EC_GROUP_get0_order(group.get());
    const bool is_known = absl::c_any_of(orders, [&](const Number& known) {
      return BN_cmp(known.get(), order) == 0;
    });
    if (order == nullptr || is_known) continue;
    orders.emplace_back(BN_dup(order));
  }
  ERR_clear_error();
  return orders;
}

const std::vector<Number>& Orders() {
  // Never destroyed: threads of gRPC may outlive main().
  static const auto* const orders = new std::vector<Number>(MakeOrders());
  return *orders;
}

// (r, order - s) in DER; empty: OpenSSL has failed.
std::string TwinOf(const BIGNUM* r, const BIGNUM* s, const BIGNUM* order) {
  const Signature twin(ECDSA_SIG_new());
  Number same_r(BN_dup(r));
  Number other_s(BN_new());
  if (twin == nullptr || same_r == nullptr || other_s == nullptr ||
      BN_sub(other_s.get(), order, s) != 1 ||
      ECDSA_SIG_set0(twin.get(), same_r.get(), other_s.get()) != 1) {
    return "";
  }
  static_cast<void>(same_r.release());  // `twin` has them
  static_cast<void>(other_s.release());
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(twin.get(), &der);
  if (size <= 0) return "";
  std::string text(reinterpret_cast<const char*>(der),
                   static_cast<size_t>(size));
  OPENSSL_free(der);
  return text;
}

// Puts the hashes of the twins of `certificate` behind those in `hashes`, and
// changes its signature. Errors: Internal.
absl::Status AddTwins(X509* certificate, std::vector<std::string>* hashes) {
  int key_kind = NID_undef;
  if (OBJ_find_sigid_algs(X509_get_signature_nid(certificate), nullptr,
                          &key_kind) != 1 ||
      key_kind != NID_X9_62_id_ecPublicKey) {
    return absl::OkStatus();  // not ECDSA
  }
  const ASN1_BIT_STRING* bits = nullptr;
  X509_get0_signature(&bits, nullptr, certificate);
  const unsigned char* der = ASN1_STRING_get0_data(bits);
  const Signature signature(
      d2i_ECDSA_SIG(nullptr, &der, ASN1_STRING_length(bits)));
  // Such a signature is nobody's.
  if (signature == nullptr) return absl::OkStatus();
  const BIGNUM* const r = ECDSA_SIG_get0_r(signature.get());
  const BIGNUM* const s = ECDSA_SIG_get0_s(signature.get());
  for (const Number& order : Orders()) {
    if (BN_cmp(r, order.get()) >= 0 || BN_cmp(s, order.get()) >= 0 ||
        BN_num_bits(order.get()) - BN_num_bits(r) > kShortByBitsMax) {
      continue;  // of another curve
    }
    const std::string twin = TwinOf(r, s, order.get());
    // OpenSSL has no call that sets a certificate's signature. `bits` is a part
    // of `certificate`, which is not const.
    if (twin.empty() ||
        ASN1_STRING_set(const_cast<ASN1_BIT_STRING*>(bits), twin.data(),
                        static_cast<int>(twin.size())) != 1) {
      return Failed("look for the twins of a certificate");
    }
    hashes->push_back(HashOf(certificate));
  }
  return absl::OkStatus();
}

// Everything but issuer, extensions and signature.
absl::StatusOr<Certificate> Begin(absl::string_view common_name, EVP_PKEY* key,
                                  absl::Time not_before, absl::Time not_after) {
  Certificate certificate(X509_new());
  if (certificate == nullptr ||
      X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      !SetSerial(certificate.get()) ||
      !SetSubject(certificate.get(), common_name) ||
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()),
                    absl::ToTimeT(not_before)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()),
                    absl::ToTimeT(not_after)) == nullptr ||
      X509_set_pubkey(certificate.get(), key) != 1) {
    return Failed("make a certificate");
  }
  return certificate;
}

}  // namespace

std::string Sha256Hex(absl::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), size));
}

absl::StatusOr<CertificateInfo> ReadCertificate(absl::string_view pem) {
  SYNCLINE_ASSIGN_OR_RETURN(const Certificate certificate,
                            ParseCertificate(pem));
  CertificateInfo info;
  info.subject = CommonName(X509_get_subject_name(certificate.get()));
  info.issuer = CommonName(X509_get_issuer_name(certificate.get()));
  info.is_authority = X509_check_ca(certificate.get()) == 1;
  info.not_before = FromAsn1(X509_get0_notBefore(certificate.get()));
  info.not_after = FromAsn1(X509_get0_notAfter(certificate.get()));
  auto* const names = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(
      certificate.get(), NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    info.uris.emplace_back(
        reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
        static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  GENERAL_NAMES_free(names);
  info.sha256 = HashOf(certificate.get());
  ERR_clear_error();
  return info;
}

absl::StatusOr<std::vector<std::string>> CertificateHashes(
    absl::string_view pem) {
  SYNCLINE_ASSIGN_OR_RETURN(const Certificate certificate,
                            ParseCertificate(pem));
  std::vector<std::string> hashes = {HashOf(certificate.get())};
  const absl::Status added = AddTwins(certificate.get(), &hashes);
  ERR_clear_error();
  SYNCLINE_RETURN_IF_ERROR(added);
  return hashes;
}

absl::Status CheckKeyMatches(absl::string_view certificate_pem,
                             absl::string_view key_pem) {
  SYNCLINE_ASSIGN_OR_RETURN(const Certificate certificate,
                            ParseCertificate(certificate_pem));
  SYNCLINE_ASSIGN_OR_RETURN(const Key key, ParseKey(key_pem));
  const bool matches =
      X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (matches) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the private key is not that of the certificate");
}

absl::Status CheckIssuedBy(absl::string_view certificate_pem,
                           absl::string_view authorities_pem, absl::Time now) {
  SYNCLINE_ASSIGN_OR_RETURN(const Certificate certificate,
                            ParseCertificate(certificate_pem));
  SYNCLINE_RETURN_IF_ERROR(ParseCertificate(authorities_pem).status());
  const Store store(X509_STORE_new());
  const Bio bio = Reading(authorities_pem);
  for (;;) {
    const Certificate authority(
        PEM_read_bio_X509(bio.get(), nullptr, &NoPassphrase, nullptr));
    if (authority == nullptr) break;
    X509_STORE_add_cert(store.get(), authority.get());
  }
  const StoreContext context(X509_STORE_CTX_new());
  if (X509_STORE_CTX_init(context.get(), store.get(), certificate.get(),
                          nullptr) != 1) {
    return Failed("check a certificate");
  }
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
  const bool issued = X509_verify_cert(context.get()) == 1;
  const int error = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  if (issued) return absl::OkStatus();
  return absl::PermissionDeniedError(X509_verify_cert_error_string(error));
}

absl::StatusOr<CertificateAndKey> MakeAuthority(absl::string_view common_name,
                                                absl::Time not_before,
                                                absl::Time not_after) {
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("make a key");
  SYNCLINE_ASSIGN_OR_RETURN(
      const Certificate certificate,
      Begin(common_name, key.get(), not_before, not_after));
  if (X509_set_issuer_name(certificate.get(),
                           X509_get_subject_name(certificate.get())) != 1 ||
      !AddExtension(certificate.get(), certificate.get(), NID_basic_constraints,
                    "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(certificate.get(), certificate.get(), NID_key_usage,
                    "critical,keyCertSign,cRLSign") ||
      !AddExtension(certificate.get(), certificate.get(),
                    NID_subject_key_identifier, "hash") ||
      X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0) {
    return Failed("make an authority");
  }
  return ToPem(certificate.get(), key.get());
}

absl::StatusOr<CertificateAndKey> IssueCertificate(
    const CertificateAndKey& authority, absl::string_view common_name,
    absl::Span<const std::string> uris, absl::Time not_before,
    absl::Time not_after) {
  SYNCLINE_RETURN_IF_ERROR(
      CheckKeyMatches(authority.certificate_pem, authority.key_pem));
  SYNCLINE_ASSIGN_OR_RETURN(const Certificate issuer,
                            ParseCertificate(authority.certificate_pem));
  SYNCLINE_ASSIGN_OR_RETURN(const Key issuer_key, ParseKey(authority.key_pem));
  if (X509_check_ca(issuer.get()) != 1) {
    return absl::InvalidArgumentError(
        "the certificate to sign with is no authority's");
  }
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("make a key");
  SYNCLINE_ASSIGN_OR_RETURN(
      const Certificate certificate,
      Begin(common_name, key.get(), not_before, not_after));
  if (X509_set_issuer_name(certificate.get(),
                           X509_get_subject_name(issuer.get())) != 1 ||
      !AddExtension(certificate.get(), issuer.get(), NID_basic_constraints,
                    "critical,CA:FALSE") ||
      !AddExtension(certificate.get(), issuer.get(), NID_key_usage,
                    "critical,digitalSignature") ||
      !AddExtension(certificate.get(), issuer.get(), NID_ext_key_usage,
                    "serverAuth,clientAuth") ||
      !AddExtension(certificate.get(), issuer.get(),
                    NID_authority_key_identifier, "keyid") ||
      !SetNames(certificate.get(), uris) ||
      X509_sign(certificate.get(), issuer_key.get(), EVP_sha256()) == 0) {
    return Failed("issue a certificate");
  }
  return ToPem(certificate.get(), key.get());
}

}  // namespace syncline
