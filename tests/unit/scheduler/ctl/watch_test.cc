// Goal: the last lines of a watched job say how it ended, and why where there
// is more to say. Method: jobs in final states. Watching itself:
// tests/cluster/commands_test.cc.

#include "scheduler/ctl/watch.h"

#include <cstdint>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PrintOutcomeTest : public ::testing::Test {
 protected:
  void End(JobState state, const std::string& reason, int64_t clock) {
    job_.set_state(state);
    job_.mutable_progress()->set_clock(clock);
    job_.mutable_progress()->set_clocks_total(100);
    JobTransition* const transition = job_.add_transitions();
    transition->set_state(state);
    transition->set_reason(reason);
  }
  // The text that a person reads on both streams.
  std::string Said() {
    std::ostringstream out;
    PrintOutcome(job_, Console{.out = out, .err = out});
    return out.str();
  }

  JobStatus job_;
};

TEST_F(PrintOutcomeTest, AJobThatEndedEarlySaysWhy) {
  End(SUCCEEDED, "all workers are done; it ended early: LOSS is no better", 40);
  EXPECT_THAT(Said(), HasSubstr(" succeeded after 0:00\n  all workers are "
                                "done; it ended early: LOSS is no better\n"));
}

TEST_F(PrintOutcomeTest, AJobThatMadeAllStepsNeedsNoReason) {
  End(SUCCEEDED, "all workers are done", 100);
  EXPECT_THAT(Said(), Not(HasSubstr("all workers")));
}

TEST_F(PrintOutcomeTest, FilesThatWereNotStoredAreNamed) {
  End(SUCCEEDED, "all workers are done\nworker 1: not stored: log", 100);
  EXPECT_THAT(Said(), HasSubstr("\n  worker 1: not stored: log\n"));
}

// However it ended.
TEST_F(PrintOutcomeTest, WorkersThatWereLeftBehindAreNamed) {
  job_.mutable_spec()->mutable_consistency()->set_mode(
      ConsistencySpec::SYNC_WITH_BACKUPS);
  Blame* const blame = job_.mutable_progress()->add_blame();
  blame->set_rank(2);
  blame->set_left_behind_clocks(7);
  End(FAILED, "disk full", 40);
  EXPECT_THAT(Said(), HasSubstr("  disk full\n  rank 2 was left behind at 7 "
                                "clocks"));
  End(SUCCEEDED, "all workers are done", 100);
  EXPECT_THAT(Said(), HasSubstr("rank 2 was left behind at 7 clocks"));
}

TEST_F(PrintOutcomeTest, AFailedJobSaysWhy) {
  End(FAILED, "disk full\nat worker 1", 40);
  EXPECT_THAT(Said(), HasSubstr(" failed after 0:00:\n  disk full\n  at "
                                "worker 1\n"));
}

}  // namespace
}  // namespace syncline::ctl
