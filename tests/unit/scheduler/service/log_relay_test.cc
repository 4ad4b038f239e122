// Goal: one caller, and pages, leave others room to read logs. Method: relays
// that wait until they are told to end. tests/cluster/logs_test reads logs.

#include "scheduler/service/log_relay.h"

#include <string>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;

class LogRelaysTest : public ::testing::Test {
 protected:
  ~LogRelaysTest() override {
    if (!end_.HasBeenNotified()) end_.Notify();
    relays_.Stop();
  }
  absl::Status Start(const std::string& caller) {
    return relays_.Start(caller, [this] { end_.WaitForNotification(); });
  }
  void Fill(const std::string& caller, int count) {
    for (int i = 0; i < count; ++i) EXPECT_OK(Start(caller));
  }
  void ExpectRefused(const std::string& caller, const std::string& why) {
    const absl::Status refused = Start(caller);
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(why));
  }

  absl::Notification end_;
  LogRelays relays_;
};

TEST_F(LogRelaysTest, OneTenantLeavesRoomForOthers) {
  Fill("tenant:a", LogRelays::kCallsOfOneMax);
  ExpectRefused("tenant:a", "tenant:a reads 4 logs already");
  Fill("token:b", LogRelays::kCallsMax - LogRelays::kCallsOfOneMax);
  ExpectRefused("token:c", "8 users read logs already");
  ExpectRefused(LogRelays::kNobody, "8 users read logs already");
}

TEST_F(LogRelaysTest, PagesHaveTheirOwnRoom) {
  Fill(LogRelays::kNobody, LogRelays::kCallsMax);
  Fill(LogRelays::kPage, LogRelays::kPagesMax);
  ExpectRefused(LogRelays::kPage, "4 pages read logs already");
}

TEST_F(LogRelaysTest, WhatHasEndedMakesRoom) {
  Fill("token:a", LogRelays::kCallsOfOneMax);
  end_.Notify();
  EXPECT_TRUE(
      Eventually(absl::Seconds(60), [&] { return Start("token:a").ok(); }));
  relays_.Stop();
  EXPECT_TRUE(absl::IsUnavailable(Start("token:a")));
}

}  // namespace
}  // namespace syncline::scheduler
