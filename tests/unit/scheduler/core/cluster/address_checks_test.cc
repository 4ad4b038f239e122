// Goal: a member counts when its address has answered as that process, and not
// before; who does not is asked again, ever less often. Method: answers by
// hand, time as a number.

#include "scheduler/core/cluster/address_checks.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Outcome = AddressChecks::Outcome;

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(AddressChecksTest, AYesHoldsForTheSession) {
  AddressChecks checks(/*required=*/true);
  checks.Add(1, kStart);
  EXPECT_FALSE(checks.Confirmed(1));
  EXPECT_EQ(checks.Trouble(1), "it is being asked");
  EXPECT_THAT(checks.TakeDue(kStart), ElementsAre(1));
  EXPECT_THAT(checks.TakeDue(kStart + absl::Hours(1)), IsEmpty());  // asked
  EXPECT_EQ(checks.OnAnswer(1, "h:1", absl::OkStatus(), kStart),
            Outcome::kConfirmed);
  EXPECT_TRUE(checks.Confirmed(1));
  EXPECT_EQ(checks.Trouble(1), "");
  EXPECT_THAT(checks.TakeDue(kStart + absl::Hours(1)), IsEmpty());
  EXPECT_EQ(checks.OnAnswer(1, "h:1", absl::UnavailableError("x"), kStart),
            Outcome::kIgnored);
  checks.Remove(1);
  EXPECT_FALSE(checks.Confirmed(1));
}

TEST(AddressChecksTest, ANoIsAskedAgainEverLessOften) {
  AddressChecks checks(/*required=*/true);
  checks.Add(1, kStart);
  ASSERT_THAT(checks.TakeDue(kStart), ElementsAre(1));
  absl::Time now = kStart;
  absl::Duration last;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(
        checks.OnAnswer(1, "h:1", absl::UnavailableError("no route"), now),
        i == 0 ? Outcome::kFirstFailure : Outcome::kFailure);
    const absl::Time answered = now;
    while (checks.TakeDue(now).empty()) now += absl::Milliseconds(100);
    EXPECT_GE(now - answered, last);
    last = now - answered;
  }
  EXPECT_EQ(last, absl::Seconds(10));
}

TEST(AddressChecksTest, TroubleSaysWhatToDo) {
  AddressChecks checks(/*required=*/true);
  checks.Add(1, kStart);
  checks.OnAnswer(1, "10.0.0.9:1", absl::UnavailableError("no route"), kStart);
  EXPECT_THAT(checks.Trouble(1),
              AllOf(HasSubstr("nothing answers the scheduler at 10.0.0.9:1 "
                              "(no route)"),
                    HasSubstr("--advertise")));
  checks.OnAnswer(1, "h:1", absl::FailedPreconditionError("x"), kStart);
  EXPECT_THAT(checks.Trouble(1), HasSubstr("another process answers at h:1"));
  checks.OnAnswer(1, "h:1", absl::UnimplementedError("x"), kStart);
  EXPECT_THAT(checks.Trouble(1), HasSubstr("no Syncline daemon"));
}

TEST(AddressChecksTest, WhereTheyAreNotRequiredAllCount) {
  AddressChecks checks(/*required=*/false);
  checks.Add(1, kStart);
  EXPECT_THAT(checks.TakeDue(kStart), IsEmpty());
  EXPECT_TRUE(checks.Confirmed(1));
  EXPECT_EQ(checks.Trouble(1), "");
}

TEST(AddressChecksTest, AnswersForThoseWhoLeftAreIgnored) {
  AddressChecks checks(/*required=*/true);
  EXPECT_EQ(checks.OnAnswer(7, "h:1", absl::OkStatus(), kStart),
            Outcome::kIgnored);
  EXPECT_FALSE(checks.Confirmed(7));
}

}  // namespace
}  // namespace syncline::scheduler
