// Goal: a session whose certificate is revoked while it is open is told once,
// and others are not. Method: a set of revoked certificates that changes.

#include "scheduler/service/member_certificates.h"

#include <set>
#include <string>
#include <vector>

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
  certificates.Look();
  EXPECT_THAT(seen(), IsEmpty());
  certificates.Remove(3);
  {
    MutexLock lock(&mu);
    revoked.insert("b");
  }
  // The thread looks by itself.
  EXPECT_TRUE(Eventually(absl::Seconds(60), [&] { return !seen().empty(); }));
  certificates.Look();
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
  certificates.Look();
  EXPECT_THAT(seen(), ElementsAre(1, 1, 1, 2));
}

TEST(MemberCertificatesTest, WithoutAListNothingIsRevoked) {
  MemberCertificates certificates(nullptr, nullptr);
  certificates.Add(1, "a");
  certificates.Look();
}

}  // namespace
}  // namespace syncline::scheduler
