// Goal: a stream that has given something is opened again where its scheduler
// cannot be reached, for 20 s since it last gave something. Method: events with
// times of their own.

#include "scheduler/ctl/reconnects.h"

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ctl {
namespace {

const absl::Status kGone = absl::UnavailableError("no scheduler answers");

TEST(ReconnectsTest, AStreamThatHasGivenSomethingIsOpenedAgain) {
  InterruptSignals interrupts;
  Reconnects reconnects;
  absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(reconnects.Await(kGone, now, &interrupts), kGone)
      << "it has never been there";
  reconnects.OnHeard();
  const absl::Status ended = absl::NotFoundError("no such job");
  EXPECT_EQ(reconnects.Await(ended, now, &interrupts), ended);
  for (int tries = 0; tries < 3; ++tries) {
    now += absl::Hours(1);
    reconnects.OnHeard();
    EXPECT_OK(reconnects.Await(kGone, now, &interrupts));
    now += absl::Seconds(20);
    EXPECT_OK(reconnects.Await(kGone, now, &interrupts));
  }
  now += absl::Seconds(1);
  EXPECT_EQ(reconnects.Await(kGone, now, &interrupts), kGone);
}

}  // namespace
}  // namespace syncline::ctl
