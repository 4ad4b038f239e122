// Goal: certificates that are made carry what was asked for, and checks refuse
// what is another authority's, out of date, without its key, or garbage.
// Method: certificates made here; the `openssl` program is not needed.

#include "common/security/certificate.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'900'000'000);
const absl::Time kStart = kNow - absl::Hours(1);
const absl::Time kEnd = kNow + absl::Hours(24);

class CertificateTest : public ::testing::Test {
 protected:
  CertificateTest()
      : authority_(*MakeAuthority("test CA", kStart, kEnd)),
        issued_(*IssueCertificate(
            authority_, "worker/3",
            {"syncline://prod/worker/3", "syncline://prod/scheduler"}, kStart,
            kEnd)) {}
  const CertificateAndKey authority_;
  const CertificateAndKey issued_;
};

TEST_F(CertificateTest, ItSaysWhatItWasMadeFor) {
  const auto info = ReadCertificate(issued_.certificate_pem);
  ASSERT_OK(info);
  EXPECT_EQ(info->subject, "worker/3");
  EXPECT_EQ(info->issuer, "test CA");
  EXPECT_FALSE(info->is_authority);
  EXPECT_THAT(info->uris, ElementsAre("syncline://prod/worker/3",
                                      "syncline://prod/scheduler"));
  EXPECT_EQ(info->not_before, kStart);
  EXPECT_EQ(info->not_after, kEnd);
  EXPECT_EQ(info->sha256.size(), 64u);
  const auto authority = ReadCertificate(authority_.certificate_pem);
  ASSERT_OK(authority);
  EXPECT_TRUE(authority->is_authority);
}

TEST_F(CertificateTest, OnlyTheAuthoritysOwnAreIssuedByIt) {
  EXPECT_OK(
      CheckIssuedBy(issued_.certificate_pem, authority_.certificate_pem, kNow));
  const auto other = *MakeAuthority("test CA", kStart, kEnd);
  EXPECT_EQ(CheckIssuedBy(issued_.certificate_pem, other.certificate_pem, kNow)
                .code(),
            absl::StatusCode::kPermissionDenied);
  // While an authority is replaced, the file has both.
  EXPECT_OK(CheckIssuedBy(
      issued_.certificate_pem,
      absl::StrCat(other.certificate_pem, authority_.certificate_pem), kNow));
}

TEST_F(CertificateTest, ValidFromStartToEnd) {
  const auto check = [&](absl::Time now) {
    return CheckIssuedBy(issued_.certificate_pem, authority_.certificate_pem,
                         now);
  };
  EXPECT_THAT(std::string(check(kEnd + absl::Seconds(1)).message()),
              HasSubstr("expired"));
  EXPECT_THAT(std::string(check(kStart - absl::Seconds(1)).message()),
              HasSubstr("not yet valid"));
}

TEST_F(CertificateTest, AnIssuedCertificateSignsNoOther) {
  EXPECT_THAT(
      std::string(
          IssueCertificate(issued_, "x", {}, kStart, kEnd).status().message()),
      HasSubstr("no authority"));
}

TEST_F(CertificateTest, AKeyBelongsToOneCertificate) {
  EXPECT_OK(CheckKeyMatches(issued_.certificate_pem, issued_.key_pem));
  EXPECT_FALSE(
      CheckKeyMatches(issued_.certificate_pem, authority_.key_pem).ok());
  EXPECT_FALSE(CheckKeyMatches(issued_.key_pem, issued_.key_pem).ok());
}

TEST_F(CertificateTest, GarbageIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("garbage"),
        std::string("-----BEGIN CERTIFICATE-----\n"), std::string(100, '\0'),
        issued_.key_pem, std::string(2 * kPemBytesMax, 'x')}) {
    EXPECT_EQ(ReadCertificate(text).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  // Any one byte of it changed: read, or refused, but never a crash.
  for (size_t i = 0; i < issued_.certificate_pem.size(); ++i) {
    std::string damaged = issued_.certificate_pem;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    (void)ReadCertificate(damaged);
    (void)CheckIssuedBy(damaged, authority_.certificate_pem, kNow);
  }
}

TEST(Sha256Test, IsThatOfTheStandard) {
  // FIPS 180-4's example.
  EXPECT_EQ(Sha256Hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace syncline
