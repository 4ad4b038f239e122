// Goal: `synctl local` gives a job time to end where it must end, and all the
// time it wants where it goes on.

#include "scheduler/ctl/local_end.h"

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ctl {
namespace {

const absl::Status kDead = absl::UnavailableError("worker-1 was killed");

class LocalEndTest : public testing::Test {
 protected:
  const absl::Time start_ = absl::UnixEpoch();
  const absl::Time in_time_ = start_ + LocalEnd::kTimeout;
  const absl::Time late_ = in_time_ + absl::Milliseconds(1);
  LocalEnd end_;
};

TEST_F(LocalEndTest, AJobWhoseDaemonsLiveTakesItsTime) {
  end_.SetAlive(absl::OkStatus(), start_);
  for (const JobState state : {QUEUED, RUNNING, SUCCEEDED}) {
    EXPECT_OK(end_.Check(state, start_ + absl::Hours(1000)));
  }
}

TEST_F(LocalEndTest, AJobHasTimeToEndAfterADeath) {
  end_.SetAlive(kDead, start_);
  end_.SetAlive(kDead, in_time_);
  EXPECT_OK(end_.Check(RUNNING, in_time_));
  EXPECT_EQ(end_.Check(RUNNING, late_), kDead);
  EXPECT_EQ(end_.Check(FAILED, late_), kDead);  // its stream never closes
}

TEST_F(LocalEndTest, AQueuedJobNeverBegins) {
  end_.SetAlive(kDead, start_);
  EXPECT_EQ(end_.Check(QUEUED, start_), kDead);
}

TEST_F(LocalEndTest, AJobThatGoesOnWithoutADaemonIsNotEnded) {
  end_.SetAlive(kDead, start_);
  // The scheduler has said that the job goes on without it.
  end_.SetAlive(absl::OkStatus(), in_time_);
  EXPECT_OK(end_.Check(RUNNING, start_ + absl::Hours(1)));
  // Another death has a time of its own.
  end_.SetAlive(kDead, start_ + absl::Hours(1));
  EXPECT_OK(end_.Check(RUNNING, in_time_ + absl::Hours(1)));
  EXPECT_EQ(end_.Check(RUNNING, late_ + absl::Hours(1)), kDead);
}

TEST_F(LocalEndTest, AJobHasTimeToEndAfterCtrlC) {
  EXPECT_FALSE(end_.interrupted());
  end_.Interrupt(start_);
  EXPECT_TRUE(end_.interrupted());
  for (const JobState state : {QUEUED, RUNNING}) {
    EXPECT_OK(end_.Check(state, in_time_));
    EXPECT_TRUE(absl::IsCancelled(end_.Check(state, late_)));
  }
  // A death behind it gives the job no more of it.
  end_.SetAlive(kDead, in_time_);
  EXPECT_EQ(end_.Check(RUNNING, late_), kDead);
}

}  // namespace
}  // namespace syncline::ctl
