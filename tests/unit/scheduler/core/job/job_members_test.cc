// Goal: the members of a job are told apart by role, rank and stage, and the
// texts name those that the job waits for.
// Method: two workers, an evaluator and a ps, step by step through a job.

#include "scheduler/core/job/job_members.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Role = JobMember::Role;
using Stage = JobMember::Stage;

constexpr SessionId kChief = 1;
constexpr SessionId kWorker = 2;
constexpr SessionId kEvaluator = 3;
constexpr SessionId kPs = 4;

class JobMembersTest : public ::testing::Test {
 protected:
  void Add(SessionId session, Role role, TaskType type, uint32_t rank) {
    Participant participant;
    participant.set_rank(rank);
    participant.mutable_member()->mutable_task()->set_type(type);
    participant.mutable_member()->set_address("h:" + std::to_string(session));
    members_.Add(session, role, participant);
  }
  void AddAll(bool evaluator = true) {
    Add(kChief, Role::kWorker, CHIEF, 0);
    Add(kWorker, Role::kWorker, WORKER, 1);
    if (evaluator) Add(kEvaluator, Role::kEvaluator, EVALUATOR, 2);
    Add(kPs, Role::kPs, PS, 0);
  }
  void SetStage(Stage stage) {
    for (const JobMember& member : members_.all()) {
      members_.Find(member.session)->stage = stage;
    }
  }

  JobMembers members_;
};

TEST_F(JobMembersTest, AMemberThatHasGoneIsNotFound) {
  AddAll();
  members_.Find(kWorker)->stage = Stage::kGone;
  EXPECT_EQ(members_.Find(kWorker), nullptr);
  EXPECT_EQ(members_.Find(99), nullptr);
  EXPECT_THAT(members_.Sessions(), ElementsAre(kChief, kEvaluator, kPs));
  EXPECT_FALSE(members_.AllAre(Stage::kGone));
}

TEST_F(JobMembersTest, TheChiefEvaluatesWhereThereIsNoEvaluator) {
  AddAll(/*evaluator=*/false);
  EXPECT_TRUE(members_.Evaluates(*members_.Find(kChief)));
  EXPECT_FALSE(members_.Evaluates(*members_.Find(kWorker)));
  Add(kEvaluator, Role::kEvaluator, EVALUATOR, 2);
  EXPECT_FALSE(members_.Evaluates(*members_.Find(kChief)));
  EXPECT_TRUE(members_.Evaluates(*members_.Find(kEvaluator)));
}

TEST_F(JobMembersTest, TheWorkIsDoneWhenTheEvaluatorIsDoneToo) {
  AddAll();
  members_.Find(kChief)->done = true;
  EXPECT_FALSE(members_.WorkersAreDone());
  members_.Find(kWorker)->done = true;
  EXPECT_TRUE(members_.WorkersAreDone());
  EXPECT_FALSE(members_.WorkIsDone());
  members_.Find(kEvaluator)->done = true;
  EXPECT_TRUE(members_.WorkIsDone());
}

TEST_F(JobMembersTest, AWorkerIsFoundByRankWhileItHasStepsToDo) {
  AddAll();
  EXPECT_EQ(members_.WorkerSession(1, "j-1").status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "it prepares";
  SetStage(Stage::kPrepared);
  EXPECT_EQ(*members_.WorkerSession(1, "j-1"), kWorker);
  members_.Find(kWorker)->done = true;
  EXPECT_EQ(members_.WorkerSession(1, "j-1").status().message(),
            "worker 1 of job j-1 has no step to do");
  EXPECT_THAT(
      members_.WorkerSession(2, "j-1").status().message(),
      AllOf(HasSubstr("it has 2"), HasSubstr("rank 2 is its evaluator")));
  EXPECT_EQ(members_.WorkerSession(3, "j-1").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(JobMembersTest, ProblemsAreOfAllMembersALineEach) {
  AddAll();
  members_.Find(kChief)->problems = {"no data", "no memory"};
  members_.Find(kPs)->problems = {"no memory"};
  EXPECT_EQ(members_.ProblemsText(),
            "chief 0 at h:1: no data\nchief 0 at h:1: no memory\n"
            "ps 0 at h:4: no memory");
}

TEST_F(JobMembersTest, SaysWhomAJobWaitsFor) {
  AddAll();
  for (const SessionId session : {kWorker, kPs}) {
    members_.Find(session)->stage = Stage::kPrepared;
  }
  members_.Find(kChief)->activity = "reading";
  EXPECT_EQ(members_.WaitingText(PREPARING),
            "chief 0 at h:1: reading; evaluator 0 at h:3");
  EXPECT_EQ(members_.UnpreparedText(),
            "chief 0 at h:1: reading, evaluator 0 at h:3");
  SetStage(Stage::kPrepared);
  EXPECT_EQ(members_.WaitingText(RUNNING), "chief 0 at h:1: reading");
  for (const SessionId session : {kChief, kWorker}) {
    members_.Find(session)->done = true;
    members_.Find(session)->activity.clear();
  }
  EXPECT_EQ(members_.WaitingText(RUNNING), "evaluator 0 at h:3");
  members_.Find(kEvaluator)->done = true;
  EXPECT_EQ(members_.WaitingText(RUNNING), "");
}

}  // namespace
}  // namespace syncline::scheduler
