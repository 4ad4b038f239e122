// Goal: absent members have sessions of their own and a time by which they are
// awaited, and what became of them is said with the time of the restart.
// Method: invented times.

#include "scheduler/core/cluster/reattachment.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kStart[] = "1970-01-01T01:00:00Z";

TEST(ReattachmentTest, ItEndsAWindowAfterTheStart) {
  Reattachment reattachment(absl::Seconds(30));
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  reattachment.Begin(now);
  EXPECT_EQ(reattachment.until(), now + absl::Seconds(30));
}

TEST(ReattachmentTest, SessionsAreAbsentAndNeverTheSame) {
  Reattachment reattachment(absl::Seconds(30));
  const SessionId first = reattachment.NextSession();
  EXPECT_TRUE(IsAbsent(first));
  EXPECT_NE(reattachment.NextSession(), first);
  EXPECT_FALSE(IsAbsent(1));
}

TEST(ReattachmentTest, TextsNameTheRestart) {
  Reattachment reattachment(absl::Seconds(30));
  reattachment.Begin(absl::UnixEpoch() + absl::Hours(1));
  EXPECT_THAT(reattachment.NotBackText(),
              AllOf(HasSubstr("within 30s"), HasSubstr(kStart)));
  EXPECT_THAT(reattachment.DeadText(),
              AllOf(HasSubstr("does not answer"), HasSubstr(kStart)));
  EXPECT_THAT(reattachment.OtherText("has no job"),
              AllOf(HasSubstr("but has no job"), HasSubstr(kStart)));
}

}  // namespace
}  // namespace syncline::scheduler
