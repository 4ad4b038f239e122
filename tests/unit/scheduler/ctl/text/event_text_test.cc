// Goal: an event is one line with its time, clock and kind. Method: texts
// compared.

#include "scheduler/ctl/text/event_text.h"

#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

TEST(EventTextTest, AnEventIsALine) {
  JobEvent event;
  event.mutable_time()->set_seconds(3600);
  event.set_kind("checkpoint");
  event.set_text("at clock 1200");
  event.set_attempt(1);
  event.set_clock(1200);
  EXPECT_EQ(EventText(event, absl::UTCTimeZone()),
            "1970-01-01 01:00:00  clock 1,200   checkpoint  at clock 1200");
  event.set_attempt(0);
  event.set_clock(0);
  event.set_kind("state");
  event.set_text("queued");
  EXPECT_EQ(EventText(event, absl::UTCTimeZone()),
            "1970-01-01 01:00:00                state       queued");
}

}  // namespace
}  // namespace syncline::ctl
