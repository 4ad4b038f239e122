// Goal: the bytes of calls that must wait are counted once, and no longer when
// the call has ended or its payload is released. Method: calls that hold known
// parts of a budget.

#include "server/shard/pending_calls.h"

#include <memory>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

class PendingCallsTest : public ::testing::Test {
 protected:
  // A call whose payload holds 100 bytes, and its list of blocks 10.
  CallToken Add() {
    const CallToken token = calls_.Add();
    PendingCall& call = calls_.At(token);
    EXPECT_OK(budget_->Acquire(100, &call.payload.hold));
    EXPECT_OK(budget_->Acquire(10, &call.pull_hold));
    return token;
  }

  const std::shared_ptr<InFlightBudget> budget_ =
      std::make_shared<InFlightBudget>(1000);
  PendingCalls calls_;
};

TEST_F(PendingCallsTest, EachCallHasATokenUntilItIsExtracted) {
  const CallToken first = Add();
  const CallToken second = Add();
  EXPECT_NE(first, second);
  EXPECT_NE(calls_.Find(first), nullptr);
  calls_.At(second).rank = 7;
  EXPECT_EQ(calls_.Extract(second).rank, 7u);
  EXPECT_EQ(calls_.Find(second), nullptr);
  EXPECT_EQ(budget_->used_bytes(), 110u);
}

TEST_F(PendingCallsTest, ParkedBytesFollowTheCall) {
  const CallToken token = Add();
  PendingCall& call = calls_.At(token);
  EXPECT_EQ(call.BytesHeld(), 110u);
  EXPECT_EQ(calls_.parked_bytes(), 0u);
  calls_.SetParkedBytes(&call, call.BytesHeld());
  calls_.SetParkedBytes(&call, call.BytesHeld());  // counts once
  EXPECT_EQ(calls_.parked_bytes(), 110u);
  // The payload goes, the list of blocks stays.
  calls_.ReleasePayload(&call);
  EXPECT_EQ(budget_->used_bytes(), 10u);
  EXPECT_EQ(calls_.parked_bytes(), 0u);
  calls_.SetParkedBytes(&call, call.BytesHeld());
  EXPECT_EQ(calls_.parked_bytes(), 10u);
  calls_.Extract(token);
  EXPECT_EQ(calls_.parked_bytes(), 0u);
  EXPECT_EQ(budget_->used_bytes(), 0u);
}

TEST_F(PendingCallsTest, KeysOfRowsCount) {
  const CallToken token = Add();
  PendingCall& call = calls_.At(token);
  call.pulled_rows = std::make_shared<CallRows>();
  ASSERT_OK(budget_->Acquire(30, &call.pulled_rows->hold));
  call.payload.pushed = std::make_shared<CallRows>();
  ASSERT_OK(budget_->Acquire(50, &call.payload.pushed->hold));
  EXPECT_EQ(call.BytesHeld(), 190u);
}

TEST_F(PendingCallsTest, AFrozenProcessExtendsDeadlines) {
  const absl::Time deadline = absl::FromUnixSeconds(100);
  const CallToken token = Add();
  calls_.At(token).deadline = deadline;
  calls_.ExtendDeadlines(absl::Seconds(3));
  EXPECT_EQ(calls_.At(token).deadline, deadline + absl::Seconds(3));
}

}  // namespace
}  // namespace syncline::ps
