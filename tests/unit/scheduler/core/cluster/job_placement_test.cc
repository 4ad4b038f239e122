// Goal: a queued job starts as soon as it can, and holds up the jobs behind it
// only as long as it may start. Method: one job, and members that come and go.

#include "scheduler/core/cluster/job_placement.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Decision = JobPlacement::Decision;

constexpr absl::Duration kSettle = absl::Seconds(15);

Job MakeJob(const JobSpec& spec, absl::Span<const char* const> ran_on = {},
            uint32_t attempt = 0) {
  StoredJob stored;
  stored.status.set_attempt(attempt);
  stored.status.set_job_id("j-0001");
  stored.status.set_state(QUEUED);
  *stored.status.mutable_spec() = spec;
  for (const char* const host : ran_on) {
    stored.status.add_workers()->mutable_member()->set_hostname(host);
  }
  return Job(std::move(stored),
             {.prepare_timeout = absl::Minutes(1), .grace = absl::Seconds(2)});
}

Job MakeJob(uint32_t workers, bool evaluated = false,
            const EvaluateSpec& evaluate = {}) {
  StoredJob stored;
  stored.status.set_job_id("j-0001");
  stored.status.set_state(QUEUED);
  JobSpec* const spec = stored.status.mutable_spec();
  spec->mutable_resources()->set_workers(workers);
  spec->mutable_resources()->set_ps(1);
  if (evaluated) spec->mutable_data()->mutable_test();
  *spec->mutable_evaluate() = evaluate;
  return Job(std::move(stored),
             {.prepare_timeout = absl::Minutes(1), .grace = absl::Seconds(2)});
}

class JobPlacementTest : public ::testing::Test {
 protected:
  JobPlacementTest() { placement_.OnStart(now_); }

  void Add(TaskType type, bool is_free = true) {
    Member member;
    member.mutable_task()->set_type(type);
    pool_.Add(++session_, member, is_free);
  }
  void AddWithGpu(TaskType type, bool is_free = true) {
    Member member;
    member.mutable_task()->set_type(type);
    member.mutable_gpu()->set_name("cuda:0");
    pool_.Add(++session_, member, is_free);
  }
  std::vector<SessionId> Chosen(ResourcesSpec::Device device, uint32_t count) {
    JobSpec spec;
    spec.mutable_resources()->set_device(device);
    return Chosen(MakeJob(spec), count);
  }
  std::vector<SessionId> Chosen(const Job& job, uint32_t count) {
    std::vector<SessionId> sessions;
    for (const Job::Place& place : pool_.WorkersFor(job, count)) {
      sessions.push_back(place.session);
    }
    return sessions;
  }
  void AddOn(const std::string& host) {
    Member member;
    member.mutable_task()->set_type(WORKER);
    member.set_hostname(host);
    pool_.Add(++session_, member, /*is_free=*/true);
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  JobPlacement placement_{kSettle, /*expects_evaluator=*/true};
  MemberPool pool_;
  SessionId session_ = 0;
};

TEST_F(JobPlacementTest, APoolCountsTheChiefAsAWorker) {
  Add(CHIEF);
  Add(WORKER, /*is_free=*/false);
  Add(PS);
  Add(EVALUATOR, /*is_free=*/false);
  EXPECT_EQ(pool_.total.workers, 2u);
  EXPECT_EQ(pool_.free().workers, 1u);
  EXPECT_EQ(pool_.free().ps, 1u);
  EXPECT_TRUE(pool_.has_evaluator);
  EXPECT_TRUE(pool_.evaluators.empty());
}

TEST_F(JobPlacementTest, GroupsByHostHaveAsManyWorkersOnEachHost) {
  for (const char* const host : {"a", "a", "b", "a", "b", "b", "c"}) {
    AddOn(host);  // 1, 2, 4 on a; 3, 5, 6 on b; 7 on c
  }
  JobSpec spec;
  spec.mutable_groups()->set_by_host(true);
  EXPECT_THAT(Chosen(MakeJob(spec), 3), ElementsAre(1, 2, 4));
  EXPECT_THAT(Chosen(MakeJob(spec), 4), ElementsAre(1, 2, 3, 5));
  EXPECT_THAT(Chosen(MakeJob(spec), 6), ElementsAre(1, 2, 4, 3, 5, 6));
  // As they were.
  EXPECT_THAT(Chosen(MakeJob(spec, {"a", "b", "c"}), 3), ElementsAre(1, 3, 7));
  EXPECT_THAT(Chosen(MakeJob(spec, {"x", "x", "y", "y"}), 4),
              ElementsAre(1, 2, 3, 5));
  // There is no choice: the job says why it cannot begin.
  EXPECT_THAT(Chosen(MakeJob(spec), 5), ElementsAre(1, 2, 3, 4, 5));
  // Others take the first.
  EXPECT_THAT(Chosen(MakeJob(JobSpec()), 4), ElementsAre(1, 2, 3, 4));
}

TEST_F(JobPlacementTest, GroupsByHostThatHaveRunWaitForHosts) {
  JobSpec spec;
  spec.mutable_groups()->set_by_host(true);
  spec.mutable_resources()->set_workers(4);
  Add(PS);
  for (const char* const host : {"a", "a", "a", "b"}) AddOn(host);
  now_ += absl::Hours(1);
  EXPECT_EQ(placement_.Decide(MakeJob(spec), pool_, now_), Decision::kStart)
      << "it says what is wrong";
  const Job again = MakeJob(spec, {"a", "a", "b", "b"}, /*attempt=*/1);
  EXPECT_EQ(placement_.Decide(again, pool_, now_), Decision::kPass);
  EXPECT_THAT(placement_.WaitingText(again, pool_, now_),
              HasSubstr("on each of some hosts: groups.by_host"));
  AddOn("b");
  EXPECT_EQ(placement_.Decide(again, pool_, now_), Decision::kStart);
}

TEST_F(JobPlacementTest, WhatAJobTakesIsNotThereAnyMore) {
  AddWithGpu(WORKER);
  Add(CHIEF);
  Add(WORKER);
  Add(PS);
  EXPECT_TRUE(pool_.Take(MakeJob(2), 2));
  EXPECT_EQ(pool_.free().workers, 1u);
  EXPECT_EQ(pool_.free().gpu_workers, 1u) << "those without are enough";
  EXPECT_EQ(pool_.free().ps, 0u);
  EXPECT_FALSE(pool_.Take(MakeJob(1), 1)) << "there is no ps for it";
  EXPECT_EQ(pool_.free().workers, 1u);
}

TEST_F(JobPlacementTest, AJobStartsOrWaitsForRunningOnes) {
  const Job job = MakeJob(2);
  Add(CHIEF);
  Add(WORKER, /*is_free=*/false);
  Add(PS);
  now_ += absl::Hours(1);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kHoldUp);
  EXPECT_THAT(placement_.WaitingText(job, pool_, now_),
              HasSubstr("needs 2 workers and 1 ps; free: 1 worker, 1 ps"));
  Add(WORKER);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kStart);
}

TEST_F(JobPlacementTest, OneWhoseCheckpointsAreEvaluatedWaitsForAnEvaluator) {
  EvaluateSpec evaluate;
  evaluate.set_checkpoints(true);
  const Job job = MakeJob(1, /*evaluated=*/true, evaluate);
  Add(CHIEF);
  Add(PS);
  now_ += absl::Hours(1);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kPass);
  EXPECT_THAT(placement_.WaitingText(job, pool_, now_),
              HasSubstr("start syncline-worker --task=evaluator"));
  Add(EVALUATOR, /*is_free=*/false);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kHoldUp);
  EXPECT_THAT(placement_.WaitingText(job, pool_, now_),
              HasSubstr("the cluster's evaluator to be free"));
  Add(EVALUATOR);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kStart);
}

// Also: it does not hold up the others for one that it could never have.
TEST_F(JobPlacementTest, AJobOfGpusWaitsForAnEvaluatorWithAGpu) {
  StoredJob stored;
  stored.status.set_job_id("j-0001");
  stored.status.set_state(QUEUED);
  JobSpec* const spec = stored.status.mutable_spec();
  spec->mutable_resources()->set_workers(1);
  spec->mutable_resources()->set_ps(1);
  spec->mutable_resources()->set_device(ResourcesSpec::CUDA);
  spec->mutable_data()->mutable_test();
  spec->mutable_evaluate()->set_checkpoints(true);
  const Job job(std::move(stored), {});
  AddWithGpu(CHIEF);
  Add(PS);
  Add(EVALUATOR);
  now_ += absl::Hours(1);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kPass);
  EXPECT_THAT(placement_.WaitingText(job, pool_, now_),
              HasSubstr("an evaluator with a GPU, which"));
  AddWithGpu(EVALUATOR, /*is_free=*/false);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kHoldUp);
  EXPECT_THAT(placement_.WaitingText(job, pool_, now_),
              HasSubstr("the cluster's evaluator to be free"));
  AddWithGpu(EVALUATOR);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kStart);
}

TEST_F(JobPlacementTest, OneThatOnlyEvaluatesNeedsNoPs) {
  EvaluateSpec evaluate;
  evaluate.set_only(true);
  const Job job = MakeJob(1, /*evaluated=*/true, evaluate);
  EXPECT_FALSE(job.WantsEvaluator());
  now_ += absl::Hours(1);
  Add(WORKER, /*is_free=*/false);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kHoldUp);
  Add(EVALUATOR);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kStart);
  pool_ = {};
  Add(WORKER);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kStart);
}

TEST_F(JobPlacementTest, WorkersOfOneKindAreChosenWhereThereAreEnough) {
  using R = ResourcesSpec;
  Add(CHIEF);          // 1
  AddWithGpu(WORKER);  // 2
  Add(WORKER);         // 3
  AddWithGpu(WORKER);  // 4
  Add(WORKER);         // 5
  EXPECT_THAT(Chosen(R::CUDA, 1), ElementsAre(2));
  EXPECT_THAT(Chosen(R::CUDA, 2), ElementsAre(2, 4));
  EXPECT_THAT(Chosen(R::CPU, 3), ElementsAre(1, 3, 5));
  EXPECT_THAT(Chosen(R::CPU, 4), ElementsAre(1, 3, 5, 2));
  EXPECT_THAT(Chosen(R::AUTO, 2), ElementsAre(2, 4));
  EXPECT_THAT(Chosen(R::AUTO, 3), ElementsAre(1, 3, 5));
  EXPECT_THAT(Chosen(R::AUTO, 4), ElementsAre(2, 4, 1, 3));
}

TEST_F(JobPlacementTest, AJobForGpusWaitsForThem) {
  StoredJob stored;
  stored.status.set_job_id("j-0001");
  ResourcesSpec* const resources =
      stored.status.mutable_spec()->mutable_resources();
  resources->set_workers(2);
  resources->set_ps(1);
  resources->set_device(ResourcesSpec::CUDA);
  const Job job(std::move(stored), {});
  Add(CHIEF);
  AddWithGpu(WORKER);
  Add(PS);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kHoldUp);
  now_ += kSettle;
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kPass);
  EXPECT_THAT(placement_.WaitingText(job, pool_, now_),
              HasSubstr("needs 2 workers with a GPU and 1 ps; free: 2 workers "
                        "(1 with a GPU), 1 ps; more than this cluster has"));
  AddWithGpu(WORKER, /*is_free=*/false);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kHoldUp);
  AddWithGpu(WORKER);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kStart);
}

TEST_F(JobPlacementTest, AnEvaluatorWithoutAGpuIsNotForAJobOfGpus) {
  Add(EVALUATOR);
  EXPECT_EQ(pool_.EvaluatorFor(ResourcesSpec::CUDA), std::nullopt);
  EXPECT_NE(pool_.EvaluatorFor(ResourcesSpec::AUTO), std::nullopt);
  AddWithGpu(EVALUATOR);
  ASSERT_NE(pool_.EvaluatorFor(ResourcesSpec::CUDA), std::nullopt);
  EXPECT_EQ(pool_.EvaluatorFor(ResourcesSpec::CUDA)->session, SessionId{2});
}

TEST_F(JobPlacementTest, AJobThatIsTooLargeHoldsNoneUpOnceTheClusterIsThere) {
  const Job job = MakeJob(3);
  Add(CHIEF);
  Add(PS);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kHoldUp);
  now_ += kSettle;
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kPass);
  // A member that comes and goes all the time settles nothing.
  placement_.OnMemberLost(now_);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kPass);
  // Once it has fitted, it is waited for again after a loss.
  MemberPool large = pool_;
  large.total.workers = 3;
  EXPECT_EQ(placement_.Decide(job, large, now_), Decision::kHoldUp);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kHoldUp);
  now_ += kSettle;
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kPass);
}

TEST_F(JobPlacementTest, AnEvaluatorIsAwaitedWhileTheClusterComesTogether) {
  const Job job = MakeJob(1, /*evaluated=*/true);
  Add(CHIEF);
  Add(PS);
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kHoldUp);
  EXPECT_THAT(placement_.WaitingText(job, pool_, now_), HasSubstr("evaluator"));
  EXPECT_EQ(placement_.Decide(MakeJob(1), pool_, now_), Decision::kStart);
  MemberPool with_evaluator = pool_;
  with_evaluator.has_evaluator = true;
  EXPECT_EQ(placement_.Decide(job, with_evaluator, now_), Decision::kStart);
  now_ += kSettle;
  EXPECT_EQ(placement_.Decide(job, pool_, now_), Decision::kStart);
}

// A job whose next attempt is put off: behind it others wait as long as they do
// for members that may come, and no longer.
TEST_F(JobPlacementTest, AnAttemptIsNotBegunBeforeItsTime) {
  for (const double backoff : {5.0, 60.0}) {
    StoredJob stored;
    stored.status.set_job_id("j-0001");
    stored.status.set_state(QUEUED);
    stored.status.mutable_spec()->mutable_restart()->set_backoff_seconds(
        backoff);
    for (const JobState state : {QUEUED, PREPARING, QUEUED}) {
      JobTransition* const transition = stored.status.add_transitions();
      transition->set_state(state);
      *transition->mutable_time() = ToTimestamp(now_);
    }
    const Job job(std::move(stored), {});
    Add(WORKER);
    Add(PS);
    EXPECT_EQ(placement_.Decide(job, pool_, now_),
              backoff > 15 ? Decision::kPass : Decision::kHoldUp);
    EXPECT_THAT(placement_.WaitingText(job, pool_, now_),
                HasSubstr("its next attempt, which begins "));
    const absl::Time due = now_ + absl::Seconds(backoff);
    EXPECT_EQ(placement_.Decide(job, pool_, due - absl::Seconds(1)),
              Decision::kHoldUp);
    EXPECT_EQ(placement_.Decide(job, pool_, due), Decision::kStart);
  }
}

}  // namespace
}  // namespace syncline::scheduler
