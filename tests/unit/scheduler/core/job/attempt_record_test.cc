// Goal: an attempt that is read from its record is the one that was written,
// but for the sessions of its members. Method: members of each role, written
// and read.

#include "scheduler/core/job/attempt_record.h"

#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

Participant Of(TaskType type, uint32_t rank, uint64_t incarnation) {
  Participant participant;
  participant.mutable_member()->mutable_task()->set_type(type);
  participant.mutable_member()->set_incarnation(incarnation);
  participant.set_rank(rank);
  return participant;
}

TEST(AttemptRecordTest, WhatIsReadIsWhatWasWritten) {
  JobStatus job;
  job.set_job_id("j-0004");
  job.mutable_spec()->set_name("large");
  Attempt attempt(job.spec(), absl::Seconds(2));
  attempt.pass = {.attempt = 3, .secret = "secret"};
  attempt.members.Add(1, JobMember::Role::kWorker, Of(CHIEF, 0, 11));
  attempt.members.Add(2, JobMember::Role::kWorker, Of(WORKER, 1, 12));
  attempt.members.Add(3, JobMember::Role::kEvaluator, Of(EVALUATOR, 2, 13));
  attempt.members.Add(4, JobMember::Role::kPs, Of(PS, 0, 14));
  attempt.start.clock = 800;
  attempt.start.from.emplace().set_path("/c/800");
  attempt.clocks_per_epoch = 100;
  attempt.clocks_total = 1000;
  attempt.train_samples = 64;
  const AttemptRecord record = RecordOf(job, attempt);
  EXPECT_FALSE(record.assignment().has_spec()) << "the job's record has it";
  EXPECT_EQ(record.assignment().routing().version(), 1u);
  EXPECT_EQ(record.assignment().regimes_size(), 1);

  Attempt restored(job.spec(), absl::Seconds(2));
  SessionId next = kAbsentSessions;
  RestoreAttempt(
      record, [&] { return next++; }, &restored);
  EXPECT_EQ(restored.pass.attempt, 3u);
  EXPECT_EQ(restored.pass.secret, "secret");
  ASSERT_EQ(restored.members.all().size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const JobMember& before = attempt.members.all()[i];
    const JobMember& after = restored.members.all()[i];
    EXPECT_EQ(after.session, kAbsentSessions + i);
    EXPECT_EQ(after.role, before.role);
    EXPECT_EQ(after.participant.SerializeAsString(),
              before.participant.SerializeAsString());
    EXPECT_EQ(after.stage, JobMember::Stage::kPreparing);
  }
  EXPECT_EQ(RecordOf(job, restored).SerializeAsString(),
            record.SerializeAsString());
}

}  // namespace
}  // namespace syncline::scheduler
