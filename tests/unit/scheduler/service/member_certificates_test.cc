// Goal: a session whose certificate is revoked or ends while it is open is told
// once, and others are not. Method: a set of revoked certificates that changes;
// certificates made here, and times of our own.

#include "scheduler/service/member_certificates.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/security/certificate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MemberCertificatesTest, ASessionIsToldOnceAndOthersAreNot) {
  Mutex mu;
  std::set<std::string> revoked;
  std::vector<SessionId> told;
  MemberCertificates certificates(
      [&](absl::string_view pem) {
        MutexLock lock(&mu);
        return revoked.contains(std::string(pem))
                   ? absl::UnauthenticatedError("it is revoked")
                   : absl::OkStatus();
      },
      [&](SessionId session, const absl::Status& why) {
        MutexLock lock(&mu);
        EXPECT_EQ(why.message(), "it is revoked");
        told.push_back(session);
        return true;
      });
  const auto seen = [&] {
    MutexLock lock(&mu);
    return told;
  };
  certificates.Add(1, "a");
  certificates.Add(2, "b");
  certificates.Add(3, "b");
  certificates.Look(absl::Now());
  EXPECT_THAT(seen(), IsEmpty());
  certificates.Remove(3);
  {
    MutexLock lock(&mu);
    revoked.insert("b");
  }
  // The thread looks by itself.
  EXPECT_TRUE(Eventually(absl::Seconds(60), [&] { return !seen().empty(); }));
  certificates.Look(absl::Now());
  EXPECT_THAT(seen(), ElementsAre(2));
  certificates.Remove(2);
}

TEST(MemberCertificatesTest, ASessionThatCouldNotBeEndedIsToldAgain) {
  Mutex mu;
  std::vector<SessionId> told;
  MemberCertificates certificates(
      [](absl::string_view) {
        return absl::UnauthenticatedError("it is revoked");
      },
      [&](SessionId session, const absl::Status&) {
        MutexLock lock(&mu);
        told.push_back(session);
        return told.size() >= 3;  // before that the queue is full
      });
  const auto seen = [&] {
    MutexLock lock(&mu);
    return told;
  };
  certificates.Add(1, "a");
  EXPECT_TRUE(
      Eventually(absl::Seconds(60), [&] { return seen().size() >= 3; }));
  certificates.Add(2, "b");
  EXPECT_TRUE(
      Eventually(absl::Seconds(60), [&] { return seen().size() >= 4; }));
  certificates.Look(absl::Now());
  EXPECT_THAT(seen(), ElementsAre(1, 1, 1, 2));
}

TEST(MemberCertificatesTest, AnEndIsToldOnce) {
  // Certificates have whole seconds; the thread looks by the clock, which is
  // hours before the ends.
  const absl::Time start =
      absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()));
  const absl::Time first_end = start + absl::Hours(10);
  const auto authority =
      MakeAuthority("CA", start - absl::Hours(1), start + absl::Hours(100));
  ASSERT_TRUE(authority.ok()) << authority.status();
  const auto pem = [&](absl::Time end) {
    return IssueCertificate(*authority, "w", {"syncline://prod/worker/0"},
                            start - absl::Hours(1), end)
        ->certificate_pem;
  };
  std::vector<std::pair<SessionId, absl::Time>> told;
  MemberCertificates certificates(nullptr, nullptr,
                                  [&](SessionId session, absl::Time end) {
                                    told.emplace_back(session, end);
                                  });
  certificates.Add(1, pem(first_end));
  certificates.Add(2, pem(start + absl::Hours(20)));
  certificates.Add(3, "no certificate");
  certificates.Add(4, pem(first_end));
  certificates.Remove(4);
  certificates.Look(first_end - absl::Seconds(1));
  EXPECT_THAT(told, IsEmpty());
  certificates.Look(first_end);
  certificates.Look(first_end + absl::Hours(1));
  EXPECT_THAT(told, ElementsAre(std::make_pair(SessionId{1}, first_end)));
  // The member has renewed it and begun another session.
  certificates.Remove(1);
  certificates.Add(5, pem(start + absl::Hours(30)));
  certificates.Look(first_end + absl::Hours(2));
  EXPECT_EQ(told.size(), 1u);
}

TEST(MemberCertificatesTest, WithoutAListNothingIsRevoked) {
  MemberCertificates certificates(nullptr, nullptr);
  certificates.Add(1, "a");
  certificates.Look(absl::Now());
}

}  // namespace
}  // namespace syncline::scheduler
