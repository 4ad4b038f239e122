// Goal: what people read about a job is complete and plain. Method: messages
// as the scheduler sends them, text compared.

#include "scheduler/ctl/text/job_text.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

void AddTransition(JobStatus* job, JobState state, int64_t seconds,
                   const std::string& reason = "") {
  job->set_state(state);
  JobTransition* transition = job->add_transitions();
  transition->set_state(state);
  transition->mutable_time()->set_seconds(seconds);
  transition->set_reason(reason);
}

JobStatus RunningJob() {
  JobStatus job;
  job.set_job_id("j-0007");
  job.mutable_spec()->set_name("mnist");
  AddTransition(&job, QUEUED, 1000);
  AddTransition(&job, RUNNING, 1010);
  JobProgress* progress = job.mutable_progress();
  progress->set_clock(1250);
  progress->set_clocks_total(3130);
  progress->set_epoch(2);
  progress->set_epochs_total(5);
  progress->set_loss(0.12344);
  progress->set_samples_per_second(24310.4);
  progress->set_seconds_left(12.2);
  return job;
}

TEST(FormatTest, NumbersForPeople) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(5ull << 30), "5.0 GiB");
  EXPECT_EQ(FormatElapsed(absl::Seconds(7)), "0:07");
  EXPECT_EQ(FormatElapsed(absl::Milliseconds(59600)), "1:00");
  EXPECT_EQ(FormatElapsed(absl::Seconds(3723)), "1:02:03");
}

TEST(ProgressTextTest, LeavesOutWhatIsNotKnown) {
  JobProgress progress = RunningJob().progress();
  EXPECT_EQ(ProgressText(progress),
            "epoch 2/5  step 1,250/3,130  loss 0.1234  24,310 samples/s  0:12 "
            "left");
  progress.set_loss(std::nan(""));
  progress.set_seconds_left(-1);
  progress.set_clocks_total(0);
  EXPECT_EQ(ProgressText(progress), "epoch 2/5  step 1,250  24,310 samples/s");
  progress.clear_loss();
  EXPECT_EQ(ProgressText(progress), "epoch 2/5  step 1,250  24,310 samples/s");
  progress.set_loss(0);
  EXPECT_EQ(ProgressText(progress),
            "epoch 2/5  step 1,250  loss 0.0000  24,310 samples/s");
}

TEST(ProgressTextTest, SaysTheLossScale) {
  JobProgress progress;
  progress.add_workers();
  EXPECT_THAT(ProgressText(progress), Not(HasSubstr("scale")));
  progress.mutable_workers(0)->set_loss_scale(65536);
  EXPECT_THAT(ProgressText(progress), EndsWith("  loss scale 65536"));
  progress.add_workers()->set_loss_scale(0.5);
  progress.add_workers();
  EXPECT_THAT(ProgressText(progress), EndsWith("  loss scale 0.5 to 65536"));
}

TEST(ProgressTextTest, EndsWithWhatHadNoEffect) {
  JobProgress progress = RunningJob().progress();
  progress.set_skipped_clocks(1200);
  EXPECT_THAT(ProgressText(progress), EndsWith("0:12 left  1,200 skipped"));
  progress.set_dropped_blocks(3);
  EXPECT_THAT(ProgressText(progress), EndsWith("  1,200 skipped  3 dropped"));
}

TEST(JobDetailsTest, SaysWhatHadNoEffect) {
  JobStatus job = RunningJob();
  const absl::Time now = absl::FromUnixSeconds(1100);
  EXPECT_THAT(JobDetails(job, now), Not(HasSubstr("skipped")));
  job.mutable_progress()->set_skipped_clocks(12);
  EXPECT_THAT(JobDetails(job, now),
              HasSubstr("\nskipped   12 of 1250 steps were skipped: "));
  AddTransition(&job, SUCCEEDED, 1090, "all workers are done");
  job.mutable_progress()->set_skipped_clocks(1250);
  EXPECT_THAT(JobDetails(job, now),
              HasSubstr("\nWARNING   all 1250 steps were skipped: "));
  ListResponse list;
  *list.add_jobs() = job;
  EXPECT_THAT(JobTable(list, now), HasSubstr("WARNING: all 1250 steps"));
}

TEST(EvaluationTextTest, ANanHasNoSign) {
  Evaluation evaluation;
  evaluation.set_epoch(3);
  evaluation.set_loss(-std::numeric_limits<double>::quiet_NaN());
  evaluation.set_auc(-std::numeric_limits<double>::quiet_NaN());
  evaluation.set_samples(1);
  EXPECT_EQ(EvaluationText(evaluation, JobSpec()),
            "epoch 3: test loss nan, AUC nan (1 samples)");
}

TEST(EvaluationTextTest, NamesTheMetricsThereAre) {
  Evaluation evaluation;
  evaluation.set_epoch(3);
  evaluation.set_loss(0.5);
  evaluation.set_samples(16281);
  EXPECT_EQ(EvaluationText(evaluation, JobSpec()),
            "epoch 3: test loss 0.5000 (16,281 samples)");
  evaluation.set_accuracy(0.8505);
  evaluation.set_auc(0.90214);
  EXPECT_EQ(EvaluationText(evaluation, JobSpec()),
            "epoch 3: test loss 0.5000, accuracy 85.05%, AUC 0.9021 (16,281 "
            "samples)");
  evaluation.clear_accuracy();
  evaluation.clear_auc();
  evaluation.set_top5_accuracy(0.9);
  evaluation.set_log_loss(0.25);
  evaluation.set_calibration(1.01);
  evaluation.set_perplexity(1.284);
  evaluation.set_mean_squared_error(0.125);
  EXPECT_EQ(EvaluationText(evaluation, JobSpec()),
            "epoch 3: test loss 0.5000, top-5 accuracy 90.00%, log loss "
            "0.2500, calibration 1.0100, perplexity 1.2840, mean squared error "
            "0.1250 (16,281 samples)");
}

// Its epochs are those of the job whose checkpoint it is.
TEST(EvaluationTextTest, AJobThatTrainsNothingHasNoEpoch) {
  JobStatus job = RunningJob();
  job.mutable_spec()->mutable_evaluate()->set_only(true);
  job.mutable_spec()->mutable_start()->set_checkpoint("/ckpt/j-0001/a");
  job.mutable_spec()->mutable_start()->set_clock(1250);
  const absl::Time now = absl::FromUnixSeconds(1100);
  ListResponse list;
  *list.add_jobs() = job;
  EXPECT_THAT(JobTable(list, now),
              AllOf(HasSubstr("evaluates /ckpt/j-0001/a, of clock 1,250"),
                    Not(HasSubstr("epoch"))));
  Evaluation* const evaluation = job.add_evaluations();
  evaluation->set_epoch(1);
  evaluation->set_clock(1250);
  evaluation->set_loss(0.5);
  evaluation->set_samples(1000);
  EXPECT_EQ(EvaluationText(*evaluation, job.spec()),
            "clock 1,250: test loss 0.5000 (1,000 samples)");
  EXPECT_THAT(JobDetails(job, now),
              AllOf(HasSubstr("results   clock 1,250: test loss 0.5000"),
                    Not(HasSubstr("epoch")), Not(HasSubstr("progress"))));
  AddTransition(&job, SUCCEEDED, 1090, "all workers are done");
  ListResponse ended;
  *ended.add_jobs() = job;
  EXPECT_THAT(JobTable(ended, now), AllOf(HasSubstr("clock 1,250: test loss"),
                                          Not(HasSubstr("epoch"))));
}

TEST(JobAgeTest, EndsWithTheJob) {
  JobStatus job = RunningJob();
  const absl::Time now = absl::FromUnixSeconds(1100);
  EXPECT_EQ(JobAge(job, now), absl::Seconds(100));
  AddTransition(&job, SUCCEEDED, 1050);
  EXPECT_EQ(JobAge(job, now), absl::Seconds(50));
  EXPECT_EQ(JobAge(JobStatus(), now), absl::ZeroDuration());
}

TEST(JobDetailsTest, TellsWhoAndWhy) {
  JobStatus job = RunningJob();
  Participant* worker = job.add_workers();
  worker->mutable_member()->mutable_task()->set_type(CHIEF);
  worker->mutable_member()->set_address("10.0.0.1:2222");
  AddTransition(&job, FAILED, 1060, "ps 1 was lost\nlast clock 231");
  Member* evaluator = job.mutable_evaluator()->mutable_member();
  evaluator->mutable_task()->set_type(EVALUATOR);
  evaluator->set_address("10.0.0.2:2222");
  job.add_artifacts()->set_name("logs/chief-0.log");
  const std::string text = JobDetails(job, absl::FromUnixSeconds(2000));
  EXPECT_THAT(text, HasSubstr("j-0007 (mnist)"));
  EXPECT_THAT(text, HasSubstr("failed, 1:00"));
  EXPECT_THAT(text, HasSubstr("evaluator evaluator:0 at 10.0.0.2:2222"));
  EXPECT_THAT(text, HasSubstr("why       ps 1 was lost\n"));
  EXPECT_THAT(text, HasSubstr("          last clock 231\n"));
  EXPECT_THAT(text, HasSubstr("chief:0 at 10.0.0.1:2222"));
  EXPECT_THAT(text, HasSubstr("logs/chief-0.log"));
}

TEST(JobDetailsTest, SaysWhoIsInWhichGroup) {
  JobStatus job = RunningJob();
  for (uint32_t i = 0; i < 2; ++i) {
    Member* const member = job.add_workers()->mutable_member();
    member->mutable_task()->set_type(WORKER);
    member->mutable_task()->set_index(i);
    member->set_hostname("a");
  }
  const absl::Time now = absl::FromUnixSeconds(2000);
  EXPECT_THAT(JobDetails(job, now), Not(HasSubstr("group")));
  job.mutable_spec()->mutable_groups()->set_by_host(true);
  EXPECT_THAT(JobDetails(job, now),
              HasSubstr("groups    1 group of 2 workers: worker:0 (leader), "
                        "worker:1\n"));
}

TEST(JobDetailsTest, WarningsOfEarlierStatesStay) {
  JobStatus job = RunningJob();
  AddTransition(&job, RUNNING, 1020, "all are prepared\nwarning: much to do");
  EXPECT_THAT(JobDetails(job, absl::FromUnixSeconds(1100)),
              HasSubstr("          warning: much to do\n"));
  AddTransition(&job, SUCCEEDED, 1060, "all workers are done");
  EXPECT_THAT(JobDetails(job, absl::FromUnixSeconds(2000)),
              HasSubstr("warning   much to do\n"));
}

TEST(JobDetailsTest, SaysWhomARunningJobWaitsFor) {
  JobStatus job = RunningJob();
  job.set_waiting_for("evaluator 0 at h:1");
  EXPECT_THAT(JobDetails(job, absl::FromUnixSeconds(1100)),
              HasSubstr("why       waiting for evaluator 0 at h:1"));
}

TEST(JobDetailsTest, ExplainsWhatAJobHasTriedByItself) {
  JobStatus job = RunningJob();
  const auto add = [&job](int64_t clock, ConsistencySpec::Mode mode,
                          const std::string& reason, double pause) {
    RegimeTransition* const entry = job.add_regimes();
    entry->mutable_regime()->set_first_clock(clock);
    entry->mutable_regime()->mutable_consistency()->set_mode(mode);
    entry->set_reason(reason);
    entry->set_pause_seconds(pause);
  };
  add(0, ConsistencySpec::SYNC, "as submitted", 0);
  add(52, ConsistencySpec::ASYNC, "auto: trying ASYNC for 50 clocks", 0.25);
  add(102, ConsistencySpec::SYNC, "auto: back to SYNC after 50 clocks of ASYNC",
      0.5);
  add(102, ConsistencySpec::SYNC,
      "auto: SYNC stays; loss/s: ASYNC 0.019 against 0.021, not better", 0);
  EXPECT_THAT(
      JobDetails(job, absl::FromUnixSeconds(1100)),
      HasSubstr("regimes   from clock 0  SYNC (as submitted)\n"
                "          from clock 52  ASYNC (auto: trying ASYNC for 50 "
                "clocks, pause 0.250 s)\n"
                "          from clock 102  SYNC (auto: back to SYNC after 50 "
                "clocks of ASYNC, pause 0.500 s)\n"
                "          stays  SYNC (auto: SYNC stays; loss/s: ASYNC 0.019 "
                "against 0.021, not better)\n"));
}

TEST(JobRegistryTest, OneLinePerJobUnderTheHead) {
  ListResponse jobs;
  *jobs.add_jobs() = RunningJob();
  JobStatus* waiting = jobs.add_jobs();
  waiting->set_job_id("j-0008");
  waiting->set_waiting_for("3 workers, 1 is free");
  AddTransition(waiting, QUEUED, 1000);
  JobStatus* failed = jobs.add_jobs();
  failed->set_job_id("j-0009");
  AddTransition(failed, FAILED, 1000, "first line\nsecond line");
  const std::string text = JobTable(jobs, absl::FromUnixSeconds(1100));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_THAT(text, HasSubstr("3 workers, 1 is free"));
  EXPECT_THAT(text, HasSubstr("first line"));
  EXPECT_THAT(text, testing::Not(HasSubstr("second line")));
  EXPECT_THAT(text, testing::Not(HasSubstr("TENANT")));
  failed->set_tenant("acme");
  EXPECT_THAT(JobTable(jobs, absl::FromUnixSeconds(1100)),
              AllOf(HasSubstr("TENANT"), HasSubstr("acme")));
  EXPECT_THAT(JobDetails(*failed, absl::FromUnixSeconds(1100)),
              HasSubstr("tenant    acme\n"));
}

// The last thing a chief does is to evaluate: at the end its rate is that of
// the whole job.
TEST(JobDetailsTest, RatesOfAnEndedJobAreThoseOfTheWholeOfIt) {
  JobStatus job = RunningJob();
  auto* worker = job.mutable_progress()->add_workers();
  worker->set_samples(6000);
  worker->set_samples_per_second(0);
  worker->set_compute_seconds(2);
  worker->set_push_seconds(0.5);
  worker->set_wait_seconds(2);
  worker->set_pull_seconds(1);
  worker->set_data_seconds(0.5);
  EXPECT_THAT(JobDetails(job, absl::FromUnixSeconds(2000)),
              HasSubstr(", 0 samples/s"));
  job.mutable_progress()->set_clocks_total(100);
  job.set_state(SUCCEEDED);
  AddTransition(&job, SUCCEEDED, 1100);
  const std::string text = JobDetails(job, absl::FromUnixSeconds(2000));
  EXPECT_THAT(text, HasSubstr("rank 0: step 0, 1,000 samples/s"));
  EXPECT_THAT(text, HasSubstr("  1,000 samples/s\n"));
  job.mutable_spec()->mutable_data()->set_sharing(DataSpec::LEASED);
  EXPECT_THAT(JobDetails(job, absl::FromUnixSeconds(2000)),
              HasSubstr("rank 0: step 0, 6,000 samples, 1,000 samples/s"));
}

TEST(JobDetailsTest, AWorkersComputingIsShownByPartsWhereItTellsThem) {
  JobStatus job = RunningJob();
  WorkerProgress* const worker = job.mutable_progress()->add_workers();
  worker->set_compute_seconds(6);
  worker->set_wait_seconds(4);
  const auto details = [&] {
    return JobDetails(job, absl::FromUnixSeconds(2000));
  };
  EXPECT_THAT(details(), HasSubstr("; compute 60%, push 0%"));
  worker->set_forward_seconds(1);
  worker->set_backward_seconds(3);
  EXPECT_THAT(details(),
              HasSubstr("; compute 60% (forward 25%, backward 75%), push 0%"));
  worker->set_update_seconds(1);
  EXPECT_THAT(details(), HasSubstr("; compute 60% (forward 20%, backward 60%, "
                                   "update 20%), push 0%"));
}

TEST(JobDetailsTest, NameTheWorkerThatTheOthersWaitFor) {
  JobStatus job = RunningJob();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    WorkerProgress* const worker = job.mutable_progress()->add_workers();
    worker->set_rank(rank);
    worker->set_compute_seconds(rank == 1 ? 9 : 5);
    worker->set_wait_seconds(rank == 1 ? 1 : 5);
  }
  const std::string text = JobDetails(job, absl::FromUnixSeconds(2000));
  EXPECT_THAT(text, HasSubstr("wait 50%, pull 0%, data 0%\n"));
  EXPECT_THAT(text, HasSubstr("wait 10%, pull 0%, data 0%  <- the others wait "
                              "for it\n"));
}

TEST(CapacityWarningTest, OnlyWhereTheClusterIsTooSmall) {
  ClusterStatus cluster;
  cluster.add_members()->mutable_member()->mutable_task()->set_type(CHIEF);
  auto* engaged = cluster.add_members();
  engaged->mutable_member()->mutable_task()->set_type(WORKER);
  engaged->set_job_id("j-0001");
  cluster.add_members()->mutable_member()->mutable_task()->set_type(EVALUATOR);
  cluster.add_members()->mutable_member()->mutable_task()->set_type(PS);
  JobSpec spec;
  EXPECT_EQ(CapacityWarning(spec, cluster), "");
  spec.mutable_resources()->set_workers(2);
  EXPECT_EQ(CapacityWarning(spec, cluster), "");
  spec.mutable_resources()->set_workers(3);
  EXPECT_THAT(CapacityWarning(spec, cluster),
              HasSubstr("needs 3 workers and 1 ps, but the cluster has 2 "
                        "workers (1 free) and 1 ps (1 free)"));
  spec.mutable_resources()->set_workers(1);
  spec.mutable_resources()->set_ps(2);
  EXPECT_THAT(CapacityWarning(spec, cluster), HasSubstr("1 worker and 2 ps"));
}

TEST(CapacityWarningTest, AMemberThatIsNotConfirmedDoesNotCount) {
  ClusterStatus cluster;
  cluster.add_members()->mutable_member()->mutable_task()->set_type(CHIEF);
  auto* unconfirmed = cluster.add_members();
  unconfirmed->mutable_member()->mutable_task()->set_type(PS);
  unconfirmed->set_job_id("(not confirmed: nothing answers)");
  EXPECT_THAT(CapacityWarning(JobSpec(), cluster),
              HasSubstr("has 1 worker (1 free) and 0 ps (0 free)"));
  unconfirmed->set_job_id("(in use)");  // by a job of another tenant
  EXPECT_EQ(CapacityWarning(JobSpec(), cluster), "");
  unconfirmed->clear_job_id();
  EXPECT_EQ(CapacityWarning(JobSpec(), cluster), "");
}

TEST(CapacityWarningTest, AWorkerWithoutAGpuIsNoneForAJobOfGpus) {
  ClusterStatus cluster;
  cluster.add_members()->mutable_member()->mutable_task()->set_type(WORKER);
  cluster.add_members()->mutable_member()->mutable_task()->set_type(PS);
  JobSpec spec;
  spec.mutable_resources()->set_device(ResourcesSpec::CUDA);
  EXPECT_THAT(CapacityWarning(spec, cluster),
              HasSubstr("needs 1 worker with a GPU and 1 ps, but the cluster "
                        "has 0 workers with a GPU (0 free) and 1 ps"));
  cluster.mutable_members(0)->mutable_member()->mutable_gpu()->set_name(
      "cuda:0");
  EXPECT_EQ(CapacityWarning(spec, cluster), "");
}

TEST(ClusterTableTest, ShowsTheDeviceOfWorkers) {
  ClusterStatus cluster;
  Member* const worker = cluster.add_members()->mutable_member();
  worker->mutable_task()->set_type(WORKER);
  worker->mutable_gpu()->set_name("cuda:1");
  worker->mutable_gpu()->set_model("NVIDIA H200");
  cluster.add_members()->mutable_member()->mutable_task()->set_type(CHIEF);
  EXPECT_THAT(ClusterTable(cluster), HasSubstr("cuda:1 NVIDIA H200"));
  EXPECT_THAT(ClusterTable(cluster), HasSubstr("cpu"));
}

TEST(ClusterTableTest, ShowsWhoIsFree) {
  ClusterStatus cluster;
  cluster.set_scheduler_address("h:7070");
  auto* entry = cluster.add_members();
  entry->mutable_member()->mutable_task()->set_type(PS);
  entry->mutable_member()->mutable_task()->set_index(1);
  entry->mutable_member()->set_address("h:2222");
  const std::string text = ClusterTable(cluster);
  EXPECT_THAT(text, HasSubstr("h:7070"));
  EXPECT_THAT(text, HasSubstr("ps:1"));
  EXPECT_THAT(text, HasSubstr("free"));
}

TEST(ClusterTableTest, SaysBelowWhyAMemberIsNotConfirmed) {
  ClusterStatus cluster;
  auto* entry = cluster.add_members();
  entry->mutable_member()->mutable_task()->set_type(PS);
  entry->mutable_member()->set_address("h:2222");
  entry->set_job_id("(not confirmed: nothing answers (no route))");
  const std::string text = ClusterTable(cluster);
  EXPECT_THAT(text, HasSubstr("none, see below"));
  EXPECT_THAT(
      text, ::testing::EndsWith("\nps:0 is not confirmed: nothing answers (no "
                                "route)\n"));
}

}  // namespace
}  // namespace syncline::ctl
