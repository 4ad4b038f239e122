// Goal: a caller whose certificate has ended is refused, whatever its handshake
// said, and the memory of it is bounded. Method: certificates made here.

#include "common/rpc/certificate_ages.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/security/certificate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

class CertificateAgesTest : public ::testing::Test {
 protected:
  std::string Pem(absl::Time not_after) {
    return IssueCertificate(authority_, "x", {"syncline://prod/client/a"},
                            start_ - absl::Hours(1), not_after)
        ->certificate_pem;
  }
  // Certificates have whole seconds.
  const absl::Time start_ =
      absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()));
  const CertificateAndKey authority_ =
      *MakeAuthority("CA", start_ - absl::Hours(1), start_ + absl::Hours(1));
  CertificateAges ages_;
};

TEST_F(CertificateAgesTest, ItEndsWhenItSays) {
  const absl::Time end = start_ + absl::Minutes(1);
  const std::string pem = Pem(end);
  EXPECT_OK(ages_.Check(pem, end - absl::Seconds(1)));
  // It is known by now.
  for (const absl::Duration late : {absl::ZeroDuration(), absl::Hours(9)}) {
    const absl::Status refused = ages_.Check(pem, end + late);
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("ended at"));
  }
}

TEST_F(CertificateAgesTest, OneThatEndedBeforeItIsKnownIsRefused) {
  EXPECT_EQ(ages_.Check(Pem(start_ - absl::Seconds(1)), start_).code(),
            absl::StatusCode::kUnauthenticated);
}

TEST_F(CertificateAgesTest, NoCertificateIsRefused) {
  for (const char* pem : {"", "garbage"}) {
    EXPECT_EQ(ages_.Check(pem, start_).code(),
              absl::StatusCode::kUnauthenticated);
  }
}

TEST_F(CertificateAgesTest, EachIsJudgedByItsOwnEndThoughManyCome) {
  const std::string ended = Pem(start_);
  const std::string valid = Pem(start_ + absl::Minutes(1));
  // Texts that differ are different certificates to the memory.
  for (size_t i = 0; i < 2 * CertificateAges::kEntriesMax; ++i) {
    EXPECT_OK(ages_.Check(absl::StrCat(valid, i, "\n"), start_));
  }
  EXPECT_OK(ages_.Check(valid, start_));
  EXPECT_FALSE(ages_.Check(ended, start_).ok());
}

}  // namespace
}  // namespace syncline
