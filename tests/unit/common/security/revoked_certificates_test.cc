// Goal: a certificate in the file counts no more, from the next look on, and a
// file that cannot be used brings nobody back. Method: certificates that are
// made here, files that change, invented times.

#include "common/security/revoked_certificates.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/security/certificate.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/open_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// The same certificate with the signature (r, order - s), which takes no key of
// the authority. Its curve is P-256.
std::string TwinOf(const std::string& pem) {
  BIO* const in = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* const certificate = PEM_read_bio_X509(in, nullptr, nullptr, nullptr);
  const ASN1_BIT_STRING* bits = nullptr;
  X509_get0_signature(&bits, nullptr, certificate);
  const unsigned char* data = ASN1_STRING_get0_data(bits);
  ECDSA_SIG* const signature =
      d2i_ECDSA_SIG(nullptr, &data, ASN1_STRING_length(bits));
  EC_GROUP* const curve = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
  BIGNUM* const s = BN_new();
  BN_sub(s, EC_GROUP_get0_order(curve), ECDSA_SIG_get0_s(signature));
  ECDSA_SIG_set0(signature, BN_dup(ECDSA_SIG_get0_r(signature)), s);
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(signature, &der);
  ASN1_STRING_set(const_cast<ASN1_BIT_STRING*>(bits), der, size);
  BIO* const out = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(out, certificate);
  const char* text = nullptr;
  const auto bytes = BIO_get_mem_data(out, &text);
  std::string twin(text, static_cast<size_t>(bytes));
  BIO_free(out);
  OPENSSL_free(der);
  EC_GROUP_free(curve);
  ECDSA_SIG_free(signature);
  X509_free(certificate);
  BIO_free(in);
  return twin;
}

class RevokedCertificatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Time from = absl::FromUnixSeconds(1'700'000'000);
    const auto authority =
        MakeAuthority("ca", from, from + absl::Hours(1000000));
    ASSERT_OK(authority.status());
    authority_ = authority->certificate_pem;
    for (std::string* pem : {&first_, &second_}) {
      const auto made = IssueCertificate(*authority, "x", {"syncline://c/ps"},
                                         from, from + absl::Hours(1000000));
      ASSERT_OK(made.status());
      *pem = made->certificate_pem;
    }
  }
  void Write(const std::string& text) {
    ASSERT_OK(WriteFileAtomically(path_, text));
  }
  static std::string HashOf(const std::string& pem) {
    return ReadCertificate(pem)->sha256;
  }

  const TempDir dir_;
  const std::string path_ = dir_.File("revoked");
  std::string authority_;
  std::string first_;
  std::string second_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
};

TEST_F(RevokedCertificatesTest, AChangeCountsAtTheNextLook) {
  Write("# nobody yet\n\n");
  ASSERT_OK_AND_ASSIGN(const auto revoked, RevokedCertificates::Open(path_));
  EXPECT_OK(revoked->Check(first_, now_));
  EXPECT_OK(revoked->Check(second_, now_));
  Write(absl::StrCat(HashOf(first_), "  # the laptop that was stolen\n"));
  now_ += RevokedCertificates::kLookPeriod;
  const absl::Status refused = revoked->Check(first_, now_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is revoked"));
  EXPECT_OK(revoked->Check(second_, now_));
  // Colons and capitals, as other tools print it.
  std::string spelled;
  for (size_t i = 0; i < 64; i += 2) {
    absl::StrAppend(&spelled, i == 0 ? "" : ":", HashOf(second_).substr(i, 2));
  }
  Write(absl::AsciiStrToUpper(spelled));
  now_ += RevokedCertificates::kLookPeriod;
  EXPECT_OK(revoked->Check(first_, now_));
  EXPECT_FALSE(revoked->Check(second_, now_).ok());
  EXPECT_FALSE(revoked->Check("garbage", now_).ok());
}

// The holder of a revoked certificate can rewrite its signature.
TEST_F(RevokedCertificatesTest, ARewrittenSignatureBringsNobodyBack) {
  const std::string twin = TwinOf(first_);
  ASSERT_OK(CheckIssuedBy(twin, authority_,
                          absl::FromUnixSeconds(1'700'000'000 + 3600)));
  ASSERT_NE(HashOf(twin), HashOf(first_));
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> hashes,
                       CertificateHashes(first_));
  EXPECT_EQ(hashes[0], HashOf(first_));
  EXPECT_THAT(hashes, Contains(HashOf(twin)));
  EXPECT_THAT(hashes, Not(Contains(HashOf(second_))));
  for (const std::string& listed : {first_, twin}) {
    Write(HashOf(listed));
    ASSERT_OK_AND_ASSIGN(const auto revoked, RevokedCertificates::Open(path_));
    for (int i = 0; i < 2; ++i) {  // parsed, and seen
      EXPECT_FALSE(revoked->Check(first_, now_).ok());
      EXPECT_FALSE(revoked->Check(twin, now_).ok());
      EXPECT_OK(revoked->Check(second_, now_));
    }
  }
}

TEST_F(RevokedCertificatesTest, LinesThatGoAreCounted) {
  Write(absl::StrCat(HashOf(first_), "\n", HashOf(second_), "\n"));
  ASSERT_OK_AND_ASSIGN(const auto revoked, RevokedCertificates::Open(path_));
  Write(HashOf(second_));
  now_ += RevokedCertificates::kLookPeriod;
  ::testing::internal::CaptureStderr();
  EXPECT_OK(revoked->Check(first_, now_));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("level=warning"));
  EXPECT_THAT(log, HasSubstr("certificates=1"));
  EXPECT_THAT(log, HasSubstr(path_));
}

TEST_F(RevokedCertificatesTest, AFileThatCannotBeUsedBringsNobodyBack) {
  Write(HashOf(first_));
  ASSERT_OK_AND_ASSIGN(const auto revoked, RevokedCertificates::Open(path_));
  EXPECT_TRUE(revoked->IsFileUsable());
  for (const bool removed : {false, true}) {
    if (removed) {
      ASSERT_OK(RemoveTree(path_));
    } else {
      Write("what is this\n");
    }
    EXPECT_FALSE(revoked->IsFileUsable());
    now_ += RevokedCertificates::kLookPeriod;
    EXPECT_FALSE(revoked->Check(first_, now_).ok());
    EXPECT_OK(revoked->Check(second_, now_));
  }
}

// The file stays as it is after the change, so nothing else would tell.
TEST_F(RevokedCertificatesTest, AChangeThatCouldNotBeReadCountsLater) {
  Write("# nobody yet\n");
  ASSERT_OK_AND_ASSIGN(const auto revoked, RevokedCertificates::Open(path_));
  EXPECT_OK(revoked->Check(first_, now_));
  Write(HashOf(first_));
  now_ += RevokedCertificates::kLookPeriod;
  {
    const NoMoreFiles none;
    EXPECT_OK(revoked->Check(first_, now_));
  }
  now_ += RevokedCertificates::kLookPeriod;
  EXPECT_FALSE(revoked->Check(first_, now_).ok());
}

TEST_F(RevokedCertificatesTest, ABadFileIsRefusedAtTheStart) {
  EXPECT_FALSE(RevokedCertificates::Open(path_).ok());
  Write(absl::StrCat(HashOf(first_), "\n", HashOf(second_), "0\n"));
  const auto opened = RevokedCertificates::Open(path_);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(opened.status().message()),
              HasSubstr(absl::StrCat(path_, ": line 2: ")));
}

}  // namespace
}  // namespace syncline
