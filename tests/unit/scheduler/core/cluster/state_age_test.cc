// Goal: a state that is older than its cluster is found out, and the epoch goes
// on above all that daemons have seen; a stranger's numbers change nothing.
// Method: registrations with numbers.

#include "scheduler/core/cluster/state_age.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

Register Seen(uint64_t epoch, uint32_t attempt = 0) {
  Register request;
  request.set_scheduler_epoch(epoch);
  request.set_attempt(attempt);
  return request;
}

TEST(StateAgeTest, DaemonsOfEarlierSchedulersAreExpected) {
  StateAge age(/*previous_epoch=*/5, /*epoch=*/9);
  for (const uint64_t epoch : {0, 1, 5, 9}) {
    const StateAge::Finding finding =
        age.OnRegister(Seen(epoch, 7), {.largest = 7});
    EXPECT_FALSE(finding.state_is_old) << epoch;
  }
  EXPECT_EQ(age.epoch(), 9u);
  EXPECT_EQ(age.attempt_floor(), 0u);
}

TEST(StateAgeTest, AnUnknownSchedulerMeansThatTheStateIsOld) {
  StateAge age(5, 9);
  const StateAge::Finding finding = age.OnRegister(Seen(6, 3), {});
  EXPECT_TRUE(finding.state_is_old);
  EXPECT_FALSE(finding.is_replaced);
  EXPECT_EQ(age.attempt_floor(), 3u);
}

// The backup was made by the scheduler that all of them have seen last.
TEST(StateAgeTest, AnAttemptThatTheStateDoesNotKnowTellsToo) {
  StateAge age(/*previous_epoch=*/5, /*epoch=*/9);
  Register request = Seen(5, /*attempt=*/4);
  EXPECT_FALSE(age.OnRegister(request, {.largest = 4}).state_is_old);
  EXPECT_EQ(age.attempt_floor(), 0u);
  // Of which job it was is not known, and the record may have been deleted.
  EXPECT_FALSE(age.OnRegister(request, {.largest = 3}).state_is_old);
  EXPECT_EQ(age.attempt_floor(), 4u);
  request = Seen(5, 6);
  request.mutable_held()->set_attempt(6);
  EXPECT_TRUE(age.OnRegister(request, {.attempt_of_job = 2, .largest = 8})
                  .state_is_old);
  EXPECT_EQ(age.attempt_floor(), 6u);
}

TEST(StateAgeTest, ASchedulerWithALargerEpochHasReplacedThisOne) {
  StateAge age(5, 9);
  EXPECT_TRUE(age.OnRegister(Seen(20, 2), {}).is_replaced);
  EXPECT_EQ(age.epoch(), 9u);
  EXPECT_EQ(age.attempt_floor(), 0u);
}

TEST(StateAgeTest, NumbersThatNoSchedulerHasGivenAreIgnored) {
  StateAge age(5, 9);
  EXPECT_FALSE(age.OnRegister(Seen(std::numeric_limits<uint64_t>::max()), {})
                   .state_is_old);
  // The largest; there is none after it.
  EXPECT_FALSE(age.OnRegister(Seen(33'450'451'200'000), {}).state_is_old);
  age.OnRegister(Seen(6, std::numeric_limits<uint32_t>::max()), {});
  EXPECT_EQ(age.attempt_floor(), 0u);
  Register request;
  request.set_job_number(42);
  EXPECT_EQ(StateAge::JobNumberOf(request), 42u);
  request.set_job_number(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(StateAge::JobNumberOf(request), 0u);
}

TEST(NextEpochTest, ItIsLargerThanTheLastOneAndThanThoseOfOlderDays) {
  const absl::Time now = absl::FromUnixMillis(1'800'000'000'000);
  EXPECT_EQ(NextEpoch(0, now), 1'800'000'000'000u);
  EXPECT_EQ(NextEpoch(1'900'000'000'000, now), 1'900'000'000'001u);
  EXPECT_EQ(NextEpoch(0, absl::UnixEpoch() - absl::Hours(1)), 1u);
  // A clock in the year 9999 leaves room for what daemons may report.
  StateAge age(0, NextEpoch(0, now));
  const uint64_t far = NextEpoch(0, absl::FromUnixSeconds(253'402'300'799));
  EXPECT_TRUE(age.OnRegister(Seen(far), {}).is_replaced);
}

}  // namespace
}  // namespace syncline::scheduler
