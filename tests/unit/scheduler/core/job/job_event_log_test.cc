// Goal: what has happened to a job is in its log once, in order, within bounds,
// and goes on where a scheduler before has left off. Method: records that
// change, observed after each change.

#include "scheduler/core/job/job_event_log.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cuts/cut_id.h"
#include "common/job/checkpoint_trouble.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobEventLogTest : public ::testing::Test {
 protected:
  JobEventLogTest() { Transition(QUEUED, ""); }

  void Transition(JobState state, const std::string& reason) {
    now_ += absl::Seconds(1);
    if (state == PREPARING) job_.set_attempt(job_.attempt() + 1);
    job_.set_state(state);
    JobTransition* const transition = job_.add_transitions();
    transition->set_state(state);
    transition->set_reason(reason);
    *transition->mutable_time() = ToTimestamp(now_);
  }
  void Checkpoint(int64_t clock) {
    CheckpointInfo* const whole = job_.add_checkpoints();
    whole->set_path(absl::StrCat("/c/", clock));
    whole->set_clock(clock);
    whole->set_attempt(job_.attempt());
  }
  // The new events, after the log has observed the job: "kind: text".
  std::vector<std::string> Observe(int64_t clock = 0) {
    log_.Observe(job_, clock, now_);
    std::vector<std::string> texts;
    StoredEvent event;
    uint64_t left_out = 0;
    while (log_.TakeNew(&event, &left_out)) {
      stored_.push_back(event);
      texts.push_back(
          absl::StrCat(event.event.kind(), ": ", event.event.text()));
    }
    return texts;
  }

  JobStatus job_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  JobEventLog log_;
  std::vector<StoredEvent> stored_;
};

TEST_F(JobEventLogTest, EachChangeOfTheRecordIsOneEvent) {
  EXPECT_THAT(Observe(), ElementsAre("state: queued"));
  Participant* const worker = job_.add_workers();
  worker->mutable_member()->mutable_task()->set_type(CHIEF);
  worker->mutable_member()->set_address("h:1");
  Transition(PREPARING, "on 1 worker and 1 ps");
  EXPECT_THAT(Observe(),
              ElementsAre("attempt: attempt 1 is prepared on 1 worker and 1 "
                          "ps: chief 0 at h:1"));
  Transition(RUNNING, "all participants are prepared\nwarning: few samples");
  EXPECT_THAT(Observe(), ElementsAre("state: running: all participants are "
                                     "prepared; warning: few samples"));
  EXPECT_THAT(Observe(), IsEmpty());
  Checkpoint(40);
  EXPECT_THAT(Observe(), ElementsAre("checkpoint: at clock 40, 0 bytes in "
                                     "0.0 s, in /c/40"));
  Evaluation* const evaluation = job_.add_evaluations();
  evaluation->set_epoch(1);
  evaluation->set_clock(50);
  evaluation->set_loss(0.25);
  EXPECT_THAT(Observe(),
              ElementsAre("evaluation: at clock 50, epoch 1: test loss 0.25"));
  job_.set_waiting_for("rank 1; no checkpoint: at clock 60: disk full");
  EXPECT_THAT(Observe(),
              ElementsAre("checkpoint: no checkpoint: at clock 60: disk full"));
  EXPECT_THAT(Observe(), IsEmpty());
  RegimeTransition* const regime = job_.add_regimes();
  regime->set_error("a worker was gone");
  EXPECT_THAT(Observe(), ElementsAre("regime: not changed: a worker was gone"));
  Transition(SUCCEEDED, "all workers are done");
  EXPECT_THAT(Observe(), ElementsAre("state: succeeded: all workers are done"));
}

TEST_F(JobEventLogTest, ACheckpointWithoutResidualsSaysSo) {
  Observe();
  job_.mutable_spec()->set_strategy(ALL_REDUCE);
  job_.mutable_spec()->mutable_compression()->set_kind(CompressionSpec::DGC);
  Checkpoint(40);
  const uint64_t cut = MakeCutId(/*attempt=*/1, /*largest_clock=*/40,
                                 CutSeries::kChief, kSavedAloneCut);
  job_.mutable_checkpoints(0)->set_path(
      absl::StrFormat("/c/%012d-%016x", 40, cut));
  EXPECT_THAT(Observe(),
              ElementsAre(AllOf(HasSubstr("checkpoint: at clock 40"),
                                HasSubstr("the chief has saved it by itself: "
                                          "residuals of compression begin "
                                          "anew"))));
}

// Epochs are those of the job that made the checkpoint.
TEST_F(JobEventLogTest, AJobThatTrainsNothingHasNoEpochs) {
  job_.mutable_spec()->mutable_evaluate()->set_only(true);
  Observe();
  Evaluation* const evaluation = job_.add_evaluations();
  evaluation->set_epoch(1);
  evaluation->set_clock(50);
  evaluation->set_loss(0.25);
  EXPECT_THAT(Observe(),
              ElementsAre("evaluation: at clock 50: test loss 0.25"));
}

TEST_F(JobEventLogTest, WhatAJobTriesByItselfIsTold) {
  const auto add = [this](int64_t clock, ConsistencySpec::Mode mode,
                          const std::string& reason) {
    RegimeTransition* const entry = job_.add_regimes();
    entry->mutable_regime()->set_first_clock(clock);
    entry->mutable_regime()->mutable_consistency()->set_mode(mode);
    entry->set_reason(reason);
  };
  Observe();
  add(0, ConsistencySpec::SYNC, "as submitted");
  add(12, ConsistencySpec::ASYNC, "auto: trying ASYNC for 10 clocks");
  add(22, ConsistencySpec::SYNC, "auto: back to SYNC after 10 clocks of ASYNC");
  add(22, ConsistencySpec::SYNC, "auto: SYNC stays; loss/s: ASYNC 1 against 2");
  EXPECT_THAT(
      Observe(),
      ElementsAre("regime: changed: ASYNC; auto: trying ASYNC for 10 clocks",
                  "regime: changed: SYNC; auto: back to SYNC after 10 clocks "
                  "of ASYNC",
                  "regime: stays: SYNC; auto: SYNC stays; loss/s: ASYNC 1 "
                  "against 2"));
}

TEST_F(JobEventLogTest, AnAttemptThatGoesBackMakesItsOwnEvents) {
  Transition(PREPARING, "");
  Transition(RUNNING, "");
  Checkpoint(40);
  Checkpoint(80);
  job_.add_evaluations()->set_clock(90);
  EXPECT_EQ(Observe().size(), 5u);
  // The last checkpoint was damaged.
  job_.mutable_checkpoints()->RemoveLast();
  job_.clear_evaluations();
  Transition(QUEUED, "lost");
  EXPECT_THAT(Observe(), ElementsAre("state: queued: lost"));
  Transition(PREPARING, "on 1 worker and 1 ps, attempt 2, from clock 0");
  Checkpoint(80);
  job_.add_evaluations()->set_clock(90);
  EXPECT_THAT(Observe(),
              ElementsAre(HasSubstr("checkpoint: at clock 80"),
                          HasSubstr("evaluation: at clock 90"),
                          HasSubstr("attempt 2 is prepared on 1 worker and 1 "
                                    "ps, from clock 0: ")));
}

TEST_F(JobEventLogTest, AFullHistoryOfRegimesLosesNoEvent) {
  Observe();
  for (int i = 0; i < 3; ++i) {
    job_.add_regimes()->set_reason(absl::StrCat("change ", i));
  }
  EXPECT_EQ(Observe().size(), 3u);
  job_.mutable_regimes()->DeleteSubrange(1, 1);
  job_.add_regimes()->set_reason("change 3");
  EXPECT_THAT(Observe(), ElementsAre(HasSubstr("; change 3")));
  EXPECT_THAT(Observe(), IsEmpty());
  // The last one was a failure, which goes first.
  job_.mutable_regimes()->RemoveLast();
  job_.add_regimes()->set_reason("change 4");
  EXPECT_THAT(Observe(), ElementsAre(HasSubstr("; change 4")));
  log_ = JobEventLog(stored_, job_);
  EXPECT_THAT(Observe(), IsEmpty());
}

TEST_F(JobEventLogTest, ARecordThatForgetsTransitionsLosesNoEvent) {
  for (int i = 0; i < 299; ++i) Transition(RUNNING, "");
  Observe();
  job_.mutable_transitions()->DeleteSubrange(1, 3);
  Transition(QUEUED, "the next one");
  EXPECT_THAT(Observe(), ElementsAre("state: queued: the next one"));
}

TEST_F(JobEventLogTest, TheOldestAreLeftOut) {
  Observe();
  for (size_t i = 0; i < JobEventLog::kMax + 9; ++i) {
    log_.Add("member", absl::StrCat("event ", i), job_, 1, now_);
    if (i == 3) Observe();
  }
  EXPECT_EQ(log_.left_out(), 10u);
  StoredEvent event;
  uint64_t left_out = 0;
  std::vector<uint64_t> forgotten;
  while (log_.TakeNew(&event, &left_out)) {
    if (left_out > 0) forgotten.push_back(left_out);
  }
  EXPECT_THAT(forgotten, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  const auto all = log_.From(0);
  ASSERT_EQ(all.size(), JobEventLog::kMax);
  EXPECT_EQ(all[0].number, 11u);
  EXPECT_EQ(log_.From(all.back().number).size(), 1u);
}

TEST_F(JobEventLogTest, TextsAreBounded) {
  log_.Add("member", std::string(5000, 'x') + "\xff", job_, 1, now_);
  EXPECT_LE(log_.From(0)[0].event.text().size(), JobEventLog::kTextBytesMax);
}

TEST_F(JobEventLogTest, ALaterSchedulerGoesOn) {
  Transition(PREPARING, "");
  Checkpoint(40);
  Observe();
  // This one did not get to the disk.
  Transition(RUNNING, "late");
  log_ = JobEventLog(stored_, job_);
  EXPECT_THAT(Observe(), ElementsAre("state: running: late"));
  const auto all = log_.From(0);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[3].number, 4u);
  // A record of before there were events.
  log_ = JobEventLog({}, job_);
  EXPECT_EQ(Observe().size(), 3u);
}

}  // namespace
}  // namespace syncline::scheduler
