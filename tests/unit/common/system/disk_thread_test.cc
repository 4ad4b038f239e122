// Goal: calls are made in their order, whoever waits is told what they return,
// and a call that hangs holds up nobody who was told to leave, nor the end of
// the thread's owner; it is made all the same, and so is what was begun behind
// it. Method: calls that wait for a gate.

#include "common/system/disk_thread.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);

// Calls that wait until they are let go; they own it.
struct HeldCalls {
  void Open() {
    MutexLock lock(&mu);
    is_open = true;
    opened.SignalAll();
  }
  absl::Status Pass(int number) {
    const absl::Time deadline = MonotonicNow() + kTimeout;
    MutexLock lock(&mu);
    while (!is_open && MonotonicNow() < deadline) {
      opened.WaitUntil(&mu, deadline);
    }
    passed.push_back(number);
    return absl::OkStatus();
  }
  std::vector<int> Passed() {
    MutexLock lock(&mu);
    return passed;
  }

  Mutex mu;
  CondVar opened;
  bool is_open ABSL_GUARDED_BY(mu) = false;
  std::vector<int> passed ABSL_GUARDED_BY(mu);
};

TEST(DiskThreadTest, WhatACallReturnsIsTold) {
  DiskThread disk("disk");
  EXPECT_OK(disk.Run([] { return absl::OkStatus(); }));
  EXPECT_EQ(disk.Run([] { return absl::UnavailableError("full"); }),
            absl::UnavailableError("full"));
  const auto text = disk.Get<std::string>([] { return std::string("read"); });
  ASSERT_OK(text.status());
  EXPECT_EQ(*text, "read");
  EXPECT_EQ(disk.Get<std::string>([]() -> absl::StatusOr<std::string> {
                  return absl::NotFoundError("gone");
                })
                .status(),
            absl::NotFoundError("gone"));
  EXPECT_FALSE(disk.is_busy());
}

TEST(DiskThreadTest, CallsAreMadeInTheirOrder) {
  const auto gate = std::make_shared<HeldCalls>();
  DiskThread disk("disk");
  for (int i = 0; i < 3; ++i) disk.Begin([gate, i] { return gate->Pass(i); });
  EXPECT_EQ(disk.Await(MonotonicNow() + absl::Milliseconds(20)), std::nullopt);
  EXPECT_TRUE(disk.is_busy());
  gate->Open();
  EXPECT_OK(disk.Run([] { return absl::OkStatus(); }));
  EXPECT_EQ(gate->Passed(), (std::vector<int>{0, 1, 2}));
}

TEST(DiskThreadTest, WhatACallOwnsEndsBeforeItCountsAsMade) {
  const auto owned = std::make_shared<int>(1);
  DiskThread disk("disk");
  ASSERT_OK(disk.Run([owned] { return absl::OkStatus(); }));
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(DiskThreadTest, ACallThatHangsIsLeftAndMadeAllTheSame) {
  const auto gate = std::make_shared<HeldCalls>();
  const absl::Status why = absl::CancelledError("the job has ended");
  {
    DiskThread disk("disk");
    disk.LeaveAt(MonotonicNow() + absl::Milliseconds(20), why);
    disk.LeaveAt(absl::InfiniteFuture(), absl::CancelledError("later"));
    EXPECT_EQ(disk.Run([gate] { return gate->Pass(1); }), why);
    EXPECT_EQ(disk.Run([gate] { return gate->Pass(2); }), why);
  }
  EXPECT_TRUE(gate->Passed().empty());
  gate->Open();
  EXPECT_TRUE(Eventually(kTimeout, [&] { return gate->Passed().size() == 2; }));
  EXPECT_EQ(gate->Passed(), (std::vector<int>{1, 2}));
  EXPECT_TRUE(Eventually(kTimeout, [&] { return gate.use_count() == 1; }))
      << "the thread has not ended";
}

}  // namespace
}  // namespace syncline
