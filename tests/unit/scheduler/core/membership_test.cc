// Goal: a task belongs to one live process, and who was replaced stays out.
// Method: registrations in the orders that occur in practice, invented times.

#include "scheduler/core/membership.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Time kNow = absl::UnixEpoch();

Register Request(TaskType type, uint32_t index, uint64_t incarnation,
                 bool auto_index = false) {
  Register request;
  Member* member = request.mutable_member();
  member->mutable_task()->set_type(type);
  member->mutable_task()->set_index(index);
  member->set_address(absl::StrCat("host:", incarnation));
  member->set_incarnation(incarnation);
  member->set_version("0.1.7");
  request.set_auto_index(auto_index);
  return request;
}

class MembershipTest : public ::testing::Test {
 protected:
  absl::Status Admit(SessionId session, const Register& request) {
    return membership_.Admit(session, request, kNow).status();
  }
  // The index that was given, -1 if refused.
  int AutoIndex(SessionId session, uint64_t incarnation,
                TaskType type = WORKER) {
    const auto entry = membership_.Admit(
        session, Request(type, 77, incarnation, /*auto_index=*/true), kNow);
    return entry.ok() ? static_cast<int>((*entry)->member.task().index()) : -1;
  }

  Membership membership_{"0.1.0"};
};

TEST_F(MembershipTest, ALiveTaskIsRefusedToOthersByName) {
  ASSERT_TRUE(Admit(1, Request(PS, 2, 0xabc)).ok());
  const absl::Status refused = Admit(2, Request(PS, 2, 0xdef));
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("ps 2 at host:2748"),
                                       HasSubstr("incarnation 0x61d8")));
  EXPECT_TRUE(Admit(3, Request(WORKER, 2, 0xdef)).ok());  // another task
}

TEST_F(MembershipTest, AnAbsentMemberKeepsItsTaskForAWhile) {
  const Member absent = Request(PS, 2, 0xabc).member();
  EXPECT_TRUE(membership_.Keep(kAbsentSessions, absent, kNow + absl::Hours(1)));
  EXPECT_FALSE(membership_.Keep(kAbsentSessions + 1, absent, kNow)) << "twice";
  const absl::Status refused = Admit(2, Request(PS, 2, 0xdef));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("ps 2 is kept for ps 2 at host:2748"),
                    HasSubstr("the scheduler has been restarted")));
  Register same_address = Request(PS, 3, 0xdef);
  same_address.mutable_member()->set_address(absent.address());
  same_address.mutable_member()->set_pid(5);
  EXPECT_EQ(Admit(2, same_address).code(), absl::StatusCode::kUnavailable);
  // It is heard of later than it answers.
  membership_.RecordHeartbeat(kAbsentSessions, kNow);
  EXPECT_TRUE(
      membership_.Expired(kNow + absl::Hours(1), absl::Seconds(5)).empty());
  membership_.Rebind(kAbsentSessions, 1, kNow);
  EXPECT_EQ(Admit(2, Request(PS, 2, 0xdef)).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(membership_.Expired(kNow + absl::Seconds(6), absl::Seconds(5)),
            std::vector<SessionId>{1});
}

TEST_F(MembershipTest, AnAddressIsThatOfOneProcess) {
  const auto at = [](Register request, const std::string& host, uint32_t pid) {
    request.mutable_member()->set_address("10.0.0.1:7071");
    request.mutable_member()->set_hostname(host);
    request.mutable_member()->set_pid(pid);
    return request;
  };
  ASSERT_TRUE(Admit(1, at(Request(PS, 0, 1), "a", 17)).ok());
  const absl::Status refused = Admit(2, at(Request(WORKER, 1, 2), "b", 17));
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("worker 1, host b, pid 17"),
                    HasSubstr("ps 0 at 10.0.0.1:7071"), HasSubstr("host a")));
  // A process that is two members.
  EXPECT_TRUE(Admit(3, at(Request(WORKER, 0, 3), "a", 17)).ok());
  // Both have gone: the address is free.
  membership_.Remove(1);
  membership_.Remove(3);
  EXPECT_TRUE(Admit(4, at(Request(WORKER, 1, 2), "b", 17)).ok());
}

TEST_F(MembershipTest, WhatAStrangerSaysIsBounded) {
  const auto refused = [&](auto change) {
    Register request = Request(PS, 0, 1);
    change(&request);
    const absl::Status status = Admit(1, request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_LT(status.message().size(), 1000);
    return std::string(status.message());
  };
  const std::string large(100'000, 'a');
  const auto address = [&](const std::string& text) {
    return refused(
        [&](Register* r) { r->mutable_member()->set_address(text); });
  };
  EXPECT_THAT(address(large + ":1"), HasSubstr("address of 100002 bytes"));
  EXPECT_THAT(address(""), HasSubstr("ps 0: no address"));
  EXPECT_THAT(address("host"), HasSubstr("no port"));
  EXPECT_THAT(address("ho\x1b[2Jst:1"), HasSubstr("not valid"));
  EXPECT_THAT(address("host:0"), HasSubstr("1..65535"));
  EXPECT_THAT(address("0.0.0.0:7000"), HasSubstr("--advertise"));
  EXPECT_THAT(
      refused([&](Register* r) { r->mutable_member()->set_hostname(large); }),
      HasSubstr("hostname of 100000 bytes, at most 255"));
  EXPECT_THAT(
      refused([&](Register* r) { r->mutable_member()->set_version(large); }),
      HasSubstr("version of 100000 bytes"));
  EXPECT_THAT(refused([&](Register* r) {
                r->mutable_member()->set_http_address("http://x");
              }),
              HasSubstr("scheme"));
  EXPECT_THAT(refused([&](Register* r) { r->set_job_id(large); }),
              HasSubstr("job_id of 100000 bytes"));
  EXPECT_TRUE(Admit(1, Request(PS, 0, 1)).ok());
}

TEST_F(MembershipTest, ALostProcessIsReplacedAndFenced) {
  ASSERT_TRUE(Admit(1, Request(WORKER, 0, 10)).ok());
  membership_.Remove(1);
  ASSERT_TRUE(Admit(2, Request(WORKER, 0, 20)).ok());
  membership_.Remove(2);
  const absl::Status fenced = Admit(3, Request(WORKER, 0, 10));
  EXPECT_EQ(fenced.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(fenced.message(), HasSubstr("replaced"));
  EXPECT_TRUE(Admit(4, Request(WORKER, 0, 20)).ok());  // it was not replaced
}

TEST_F(MembershipTest, TheSameProcessComesBack) {
  ASSERT_TRUE(Admit(1, Request(PS, 0, 10)).ok());
  membership_.Remove(1);
  EXPECT_TRUE(Admit(2, Request(PS, 0, 10)).ok());
  EXPECT_EQ(membership_.FindIncarnation(10)->session, 2);
  EXPECT_EQ(membership_.Find(1), nullptr);
}

TEST_F(MembershipTest, AutoIndexTakesTheSmallestFreeOneAndKeepsIt) {
  EXPECT_EQ(AutoIndex(1, 10), 0);
  EXPECT_EQ(AutoIndex(2, 20), 1);
  EXPECT_EQ(AutoIndex(3, 30), 2);
  EXPECT_EQ(AutoIndex(4, 40, PS), 0);
  membership_.Remove(2);
  membership_.Remove(1);
  EXPECT_EQ(AutoIndex(5, 20), 1);  // back at its own
  EXPECT_EQ(AutoIndex(6, 60), 0);
  EXPECT_EQ(AutoIndex(7, 10), 3);  // its index has gone; any other will do
}

TEST_F(MembershipTest, AProcessThatMovedIsNotFencedByItsOldIndex) {
  EXPECT_EQ(AutoIndex(1, 10), 0);
  membership_.Remove(1);
  EXPECT_EQ(AutoIndex(2, 20), 0);
  EXPECT_EQ(AutoIndex(3, 10), 1);  // moved
  membership_.Remove(2);
  ASSERT_TRUE(Admit(4, Request(WORKER, 0, 40)).ok());
  membership_.Remove(3);
  EXPECT_TRUE(Admit(5, Request(WORKER, 1, 10)).ok());
}

TEST_F(MembershipTest, BadRequestsAreRefused) {
  EXPECT_EQ(Admit(1, Request(SCHEDULER, 0, 1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Admit(1, Request(CHIEF, 1, 1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Admit(1, Request(PS, 1u << 30, 1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Admit(1, Request(PS, 0, 0)).code(),
            absl::StatusCode::kInvalidArgument);
  Register nowhere = Request(PS, 0, 1);
  nowhere.mutable_member()->clear_address();
  EXPECT_EQ(Admit(1, nowhere).code(), absl::StatusCode::kInvalidArgument);
  Register other_version = Request(PS, 0, 1);
  other_version.mutable_member()->set_version("0.2.0");
  const absl::Status version = Admit(1, other_version);
  EXPECT_EQ(version.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(version.message(), AllOf(HasSubstr("0.2.0"), HasSubstr("0.1.x")));
  EXPECT_EQ(membership_.size(), 0);
}

TEST_F(MembershipTest, ThereIsOneChief) {
  EXPECT_EQ(AutoIndex(1, 10, CHIEF), 0);
  EXPECT_EQ(AutoIndex(2, 20, CHIEF), -1);
}

TEST_F(MembershipTest, SilenceEndsALease) {
  ASSERT_TRUE(Admit(1, Request(PS, 0, 1)).ok());
  ASSERT_TRUE(Admit(2, Request(PS, 1, 2)).ok());
  const absl::Duration lease = absl::Seconds(5);
  membership_.RecordHeartbeat(2, kNow + absl::Seconds(3));
  EXPECT_THAT(membership_.Expired(kNow + lease, lease), ElementsAre());
  EXPECT_THAT(membership_.Expired(kNow + lease + absl::Milliseconds(1), lease),
              ElementsAre(1));
  EXPECT_THAT(membership_.Expired(kNow + absl::Seconds(9), lease),
              ElementsAre(1, 2));
}

TEST_F(MembershipTest, MembersAreListedByTask) {
  ASSERT_TRUE(Admit(1, Request(PS, 1, 1)).ok());
  ASSERT_TRUE(Admit(2, Request(WORKER, 3, 2)).ok());
  ASSERT_TRUE(Admit(3, Request(CHIEF, 0, 3)).ok());
  ASSERT_TRUE(Admit(4, Request(PS, 0, 4)).ok());
  std::vector<SessionId> sessions;
  for (const auto* entry : membership_.All()) {
    sessions.push_back(entry->session);
  }
  EXPECT_THAT(sessions, ElementsAre(3, 2, 4, 1));
}

TEST_F(MembershipTest, AClusterHasSoManyMembersAndNoMore) {
  for (uint32_t i = 0; i < kMembersMax; ++i) {
    ASSERT_TRUE(Admit(1 + i, Request(WORKER, i, 1 + i)).ok()) << i;
  }
  const Register more = Request(WORKER, kMembersMax, 1 + kMembersMax);
  const absl::Status refused = Admit(1 + kMembersMax, more);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("worker 4096 at host:4097"),
                                       HasSubstr("4096 members")));
  membership_.Remove(7);
  EXPECT_TRUE(Admit(1 + kMembersMax, more).ok());
}

}  // namespace
}  // namespace syncline::scheduler
