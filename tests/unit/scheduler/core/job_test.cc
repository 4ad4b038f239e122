// Goal: a job goes forward through its states, ends with the best reason that
// is known, and counts late messages for nothing. Method: one job, two workers
// and a ps, messages and losses in each order that matters.

#include "scheduler/core/job.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SessionId kChief = 1;
constexpr SessionId kWorker = 2;
constexpr SessionId kPs = 3;
constexpr int kUnavailable = 14;
constexpr int kDeadlineExceeded = 4;

class JobTest : public ::testing::Test {
 protected:
  JobTest()
      : job_(Stored(), {.prepare_timeout = absl::Seconds(60),
                        .grace = absl::Seconds(2)}) {}

  static StoredJob Stored() {
    StoredJob stored;
    stored.status.set_job_id("j-0001");
    stored.status.set_state(QUEUED);
    stored.status.add_transitions()->set_state(QUEUED);
    stored.status.mutable_spec()->mutable_limits()->set_max_seconds(100);
    stored.status.mutable_spec()->mutable_training()->set_epochs(1);
    return stored;
  }
  static Job::Place At(SessionId session, TaskType type, uint32_t index) {
    Job::Place place{session, {}};
    place.member.mutable_task()->set_type(type);
    place.member.mutable_task()->set_index(index);
    place.member.set_address("h:1");
    place.member.set_incarnation(session);
    return place;
  }

  void Start() {
    job_.Start({At(kChief, CHIEF, 0), At(kWorker, WORKER, 4)}, {At(kPs, PS, 7)},
               std::nullopt, now_, &actions_);
  }
  void Prepare(SessionId session, std::vector<std::string> problems = {}) {
    JobPrepared prepared;
    for (const auto& problem : problems) prepared.add_problems(problem);
    job_.OnPrepared(session, prepared, now_, &actions_);
  }
  void StartAndRun() {
    Start();
    for (const SessionId session : {kChief, kWorker, kPs}) Prepare(session);
  }
  void Report(SessionId session, int64_t clock) {
    WorkerReport report;
    report.mutable_progress()->set_clock(clock);
    report.mutable_progress()->set_clocks_total(1000);
    job_.OnReport(session, report, now_, &actions_);
  }
  void Done(SessionId session, int code = 0, const std::string& message = "") {
    JobDone done;
    done.set_code(code);
    done.set_message(message);
    job_.OnDone(session, done, now_, &actions_);
  }
  void Gone(SessionId session, const std::string& lost = "") {
    job_.OnGone(session, lost, now_, &actions_);
  }
  void Tick(absl::Duration later) {
    now_ += later;
    job_.OnTick(now_, &actions_);
  }
  JobState state() const { return job_.status().state(); }
  std::string reason() const {
    const JobStatus& status = job_.status();
    return status.transitions(status.transitions_size() - 1).reason();
  }
  // To whom a command of this kind was sent.
  std::vector<SessionId> Told(SchedulerMessage::CommandCase command) const {
    std::vector<SessionId> sessions;
    for (const ClusterAction& action : actions_) {
      auto* send = std::get_if<SendCommand>(&action);
      if (send != nullptr && send->message.command_case() == command) {
        sessions.push_back(send->session);
      }
    }
    return sessions;
  }

  Job job_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  ClusterActions actions_;
};

TEST_F(JobTest, GoesThroughItsStates) {
  Start();
  EXPECT_EQ(state(), PREPARING);
  EXPECT_THAT(Told(SchedulerMessage::kPrepare),
              ElementsAre(kChief, kWorker, kPs));
  Prepare(kPs);
  Prepare(kPs);  // twice is once
  Prepare(kChief);
  EXPECT_EQ(state(), PREPARING);
  Prepare(kWorker);
  EXPECT_EQ(state(), RUNNING);
  EXPECT_THAT(Told(SchedulerMessage::kRun), ElementsAre(kChief, kWorker));
  Done(kWorker);
  EXPECT_FALSE(job_.stopping());
  Done(kChief);
  EXPECT_TRUE(job_.stopping());
  EXPECT_EQ(state(), RUNNING);
  Gone(kPs);
  Gone(kChief);
  EXPECT_EQ(state(), RUNNING);
  Gone(kWorker);
  EXPECT_EQ(state(), SUCCEEDED);
  EXPECT_EQ(job_.status().exit_code(), 0);
}

TEST_F(JobTest, ADoneFromAPsOrBeforeTheRunMeansNothing) {
  Start();
  Done(kChief);
  Done(kWorker);
  EXPECT_FALSE(job_.stopping());
  for (const SessionId session : {kChief, kWorker, kPs}) Prepare(session);
  Done(kPs);
  Done(kChief);
  EXPECT_FALSE(job_.stopping());
}

TEST_F(JobTest, AllProblemsOfPreparingAreTold) {
  Start();
  Prepare(kWorker, {"no file", "no gzip"});
  EXPECT_EQ(state(), PREPARING);
  Prepare(kPs);
  Prepare(kChief, {"no file"});
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(),
            "chief 0 at h:1: no file\n"
            "worker 4 at h:1: no file\nworker 4 at h:1: no gzip");
  EXPECT_EQ(job_.status().exit_code(), 1);
}

TEST_F(JobTest, AProblemDoesNotWaitForThoseWhoAreSilent) {
  Start();
  Prepare(kWorker, {"no file"});
  Tick(absl::Milliseconds(1900));
  EXPECT_EQ(state(), PREPARING);
  Tick(absl::Milliseconds(100));
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(Told(SchedulerMessage::kRun), IsEmpty());
}

// A member that has refused the job and then stops, as an orphan, what is left
// of it.
TEST_F(JobTest, AProblemIsNotHiddenByAStop) {
  Start();
  Prepare(kWorker, {"data.train: no file"});
  Done(kWorker, static_cast<int>(absl::StatusCode::kAborted), "stopped");
  EXPECT_EQ(state(), PREPARING);
  Tick(absl::Seconds(2));
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(), "worker 4 at h:1: data.train: no file");
  EXPECT_EQ(job_.status().exit_code(), 1);
}

TEST_F(JobTest, PreparingEndsWithTheNamesOfTheMissing) {
  Start();
  Prepare(kPs);
  Tick(absl::Seconds(61));
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(),
            "not prepared within 1m: chief 0 at h:1, worker 4 at h:1");
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(JobTest, TheLossOfAWorkerThatIsDoneFailsNothing) {
  StartAndRun();
  actions_.clear();
  Done(kWorker);
  EXPECT_THAT(job_.status().done_ranks(), ElementsAre(1u));
  ASSERT_FALSE(actions_.empty());
  const auto* const persist = std::get_if<PersistJob>(&actions_[0]);
  ASSERT_NE(persist, nullptr);
  EXPECT_TRUE(persist->durable) << "a restarted scheduler knows it";
  Gone(kWorker, "stream closed");
  EXPECT_EQ(state(), RUNNING);
  EXPECT_FALSE(job_.stopping());
  EXPECT_THAT(job_.Participants(), ElementsAre(kChief, kPs));
  Done(kChief);
  EXPECT_THAT(job_.status().done_ranks(), ElementsAre(0u, 1u));
  EXPECT_TRUE(job_.stopping());
  Gone(kPs);
  Gone(kChief, "silent for 5 s");
  EXPECT_EQ(state(), SUCCEEDED);
}

TEST_F(JobTest, TheLossOfAnyOtherStillFailsIt) {
  StartAndRun();
  Done(kWorker);
  Gone(kWorker, "stream closed");
  Gone(kPs, "stream closed");
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(reason(), HasSubstr("ps 7 at h:1"));
}

TEST_F(JobTest, WhoIsDoneCannotFailTheJob) {
  StartAndRun();
  Done(kWorker);
  Done(kWorker, 3, "told to stop");
  Done(kWorker);
  EXPECT_EQ(state(), RUNNING);
  EXPECT_THAT(job_.status().done_ranks(), ElementsAre(1u));
}

TEST_F(JobTest, ARestartFindsAJobThatWasDone) {
  StartAndRun();
  Done(kWorker);
  StoredJob half = Stored();
  half.status = job_.status();
  Done(kChief);
  StoredJob whole = Stored();
  whole.status = job_.status();
  EXPECT_EQ(whole.status.state(), RUNNING);
  const Job::Timing timing = {.prepare_timeout = absl::Seconds(60),
                              .grace = absl::Seconds(2)};
  Job failed(half, timing);
  failed.OnRestart(now_, &actions_);
  EXPECT_EQ(failed.status().state(), FAILED);
  EXPECT_EQ(failed.status().exit_code(), 138);
  Job succeeded(whole, timing);
  succeeded.OnRestart(now_, &actions_);
  EXPECT_EQ(succeeded.status().state(), SUCCEEDED);
  EXPECT_EQ(succeeded.status().exit_code(), 0);
}

TEST_F(JobTest, WhileItPreparesItSaysWhoHasNotAnswered) {
  Start();
  EXPECT_EQ(job_.status().waiting_for(),
            "chief 0 at h:1; worker 4 at h:1; ps 7 at h:1");
  Prepare(kPs);
  Prepare(kChief);
  WorkerReport report;
  report.set_activity("reading data.train");
  job_.OnReport(kWorker, report, now_, &actions_);
  EXPECT_EQ(job_.status().waiting_for(), "worker 4 at h:1: reading data.train");
  Tick(absl::Seconds(61));
  EXPECT_THAT(reason(), HasSubstr("worker 4 at h:1: reading data.train"));
}

// A report that was on its way, or that a daemon repeats.
TEST_F(JobTest, NobodyWaitsForAMemberThatIsDone) {
  StartAndRun();
  Done(kWorker);
  WorkerReport report;
  report.set_activity("reading a.csv");
  job_.OnReport(kWorker, report, now_, &actions_);
  EXPECT_EQ(job_.status().waiting_for(), "");
}

TEST_F(JobTest, ItSaysWhereResultsAreThatCannotBeStored) {
  StartAndRun();
  EXPECT_EQ(job_.status().waiting_for(), "");
  Done(kWorker);
  WorkerReport report;
  report.set_activity("trained.onnx is on host a as /w/trained.onnx");
  actions_.clear();
  job_.OnReport(kChief, report, now_, &actions_);
  const std::string where =
      "chief 0 at h:1: trained.onnx is on host a as /w/trained.onnx";
  EXPECT_EQ(job_.status().waiting_for(), where);
  // As a scheduler that starts anew reads it.
  StoredJob stored = Stored();
  stored.status = job_.status();
  Job restarted(stored, {});
  restarted.OnRestart(now_, &actions_);
  EXPECT_THAT(restarted.status().transitions().rbegin()->reason(),
              HasSubstr(where));
  // Unset is "as before"; empty, that it is over.
  Report(kChief, 10);
  EXPECT_EQ(job_.status().waiting_for(), where);
  report.set_activity("");
  job_.OnReport(kChief, report, now_, &actions_);
  EXPECT_EQ(job_.status().waiting_for(), "");
  report.set_activity(std::string(5000, 'x'));
  job_.OnReport(kChief, report, now_, &actions_);
  EXPECT_LT(job_.status().waiting_for().size(), 1100u);
  Tick(absl::Seconds(101));
  EXPECT_THAT(reason(), AllOf(HasSubstr("limits.max_seconds"),
                              HasSubstr("the job waited for chief 0")));
}

TEST_F(JobTest, ALostMemberIsNamedWithItsLastClock) {
  StartAndRun();
  Report(kChief, 240);
  Report(kWorker, 231);
  Gone(kPs, "stream closed");
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(),
            "ps 7 at h:1 (incarnation 0x1d0b) was lost: stream "
            "closed; last clock 231");
  EXPECT_EQ(job_.status().exit_code(), 138);
  EXPECT_THAT(job_.Participants(), ElementsAre(kChief, kWorker));
}

TEST_F(JobTest, ALostWorkersOwnClockIsTold) {
  StartAndRun();
  Report(kChief, 240);
  Gone(kChief, "silent for 5.2 s");
  EXPECT_THAT(reason(), AllOf(HasSubstr("chief 0"), HasSubstr("clock 240")));
}

TEST_F(JobTest, ALossIsABetterReasonThanTheComplaintOfAWorker) {
  StartAndRun();
  Done(kWorker, kUnavailable, "connection refused");
  EXPECT_EQ(state(), RUNNING);
  Tick(absl::Seconds(1));
  Gone(kPs, "stream closed");
  EXPECT_THAT(reason(), HasSubstr("ps 7"));
}

TEST_F(JobTest, AComplaintWithoutALossIsTheReasonAfterAMoment) {
  StartAndRun();
  Done(kWorker, kUnavailable, "connection refused");
  Tick(absl::Seconds(2));
  EXPECT_EQ(reason(), "worker 4 at h:1: connection refused");
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(JobTest, AnyOtherFailureEndsTheJobAtOnce) {
  StartAndRun();
  Done(kChief, 3, "label 11 is out of range");
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(), "chief 0 at h:1: label 11 is out of range");
  EXPECT_EQ(job_.status().exit_code(), 1);
  Done(kWorker, 3, "another");  // the first one counts
  EXPECT_THAT(reason(), HasSubstr("label 11"));
}

TEST_F(JobTest, AMemberThatIsToldToStopIsWorthARetry) {
  StartAndRun();
  Done(kPs, 10, "stopped by SIGTERM");
  EXPECT_EQ(reason(), "ps 7 at h:1: stopped by SIGTERM");
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(JobTest, ALossAfterTheWorkIsDoneDoesNotUndoIt) {
  StartAndRun();
  Done(kChief);
  Done(kWorker);
  Gone(kPs, "stream closed");
  Gone(kChief);
  Gone(kWorker, "did not release");
  EXPECT_EQ(state(), SUCCEEDED);
}

TEST_F(JobTest, TheTimeLimitIsNamed) {
  StartAndRun();
  Tick(absl::Seconds(101));
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(reason(), HasSubstr("limits.max_seconds"));
  EXPECT_EQ(job_.status().exit_code(), 1);
}

TEST_F(JobTest, CancellingKeepsTheProgress) {
  StartAndRun();
  Report(kChief, 7);
  Report(kWorker, 5);
  job_.Cancel("enough", now_, &actions_);
  EXPECT_EQ(state(), CANCELLED);
  EXPECT_EQ(reason(), "enough");
  EXPECT_EQ(job_.status().progress().clock(), 5);
  Report(kChief, 9);
  Gone(kPs, "stream closed");
  EXPECT_EQ(state(), CANCELLED);
  EXPECT_EQ(job_.StopReason(), "CANCELLED: enough");
}

// The largest count of skipped clocks, because all ps skip the same; blocks are
// of one ps each.
TEST_F(JobTest, WhatThePsHaveSkippedIsInTheProgress) {
  constexpr SessionId kOtherPs = 4;
  job_.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7), At(kOtherPs, PS, 8)},
             std::nullopt, now_, &actions_);
  for (const SessionId session : {kChief, kPs, kOtherPs}) Prepare(session);
  Report(kChief, 7);
  const auto skip = [this](SessionId session, uint64_t clocks,
                           uint64_t blocks) {
    PsReport report;
    report.set_skipped_clocks(clocks);
    report.set_dropped_blocks(blocks);
    job_.OnPsReport(session, report, now_, &actions_);
  };
  skip(kPs, 3, 10);
  actions_.clear();
  skip(kOtherPs, 2, 1);
  EXPECT_EQ(actions_.size(), 2u) << "kept, and told";
  skip(kOtherPs, 2, 1);
  EXPECT_EQ(actions_.size(), 2u) << "nothing new";
  JobProgress progress = job_.Status(now_).progress();
  EXPECT_EQ(progress.clock(), 7);
  EXPECT_EQ(progress.skipped_clocks(), 3u);
  EXPECT_EQ(progress.dropped_blocks(), 11u);
  EXPECT_THAT(job_.TableStatus(now_)->ps(), IsEmpty());
  skip(kChief, 100, 0);
  EXPECT_EQ(job_.Status(now_).progress().skipped_clocks(), 3u);

  // A later scheduler knows it too.
  StoredJob stored = Stored();
  stored.status = job_.status();
  Job restarted(stored, {.prepare_timeout = absl::Seconds(60),
                         .grace = absl::Seconds(2)});
  restarted.OnRestart(now_, &actions_);
  EXPECT_EQ(restarted.Status(now_).progress().skipped_clocks(), 3u);

  job_.Cancel("enough", now_, &actions_);
  skip(kPs, 4, 10);
  progress = job_.Status(now_).progress();
  EXPECT_EQ(progress.clock(), 7);
  EXPECT_EQ(progress.skipped_clocks(), 4u);
}

// The most frequent keys of a table matter less than the table.
TEST_F(JobTest, ATableStatusHasAsManyHotKeysAsFitAndNoMoreThanFits) {
  StartAndRun();
  const auto report = [&](int tables) {
    PsReport said;
    for (int t = 0; t < tables; ++t) {
      ShardStatus::Table* const table = said.add_tables();
      table->set_name(std::string(200, 'n'));
      table->set_pushed_rows(1);
      for (int64_t key = 0; key < 16; ++key) {
        table->add_hot_keys()->set_key(key);
        table->mutable_hot_keys(static_cast<int>(key))->set_pushes(100 - key);
      }
    }
    job_.OnPsReport(kPs, said, now_, &actions_);
    return job_.TableStatus(now_);
  };
  auto status = report(1000);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->ps(0).tables(999).hot_keys_size(), 16);
  status = report(15'000);
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->ps(0).tables_size(), 15'000);
  ASSERT_EQ(status->ps(0).tables(7).hot_keys_size(), 4);
  EXPECT_EQ(status->ps(0).tables(7).hot_keys(0).pushes(), 100u);
  status = report(40'000);
  EXPECT_EQ(status.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      status.status().message(),
      AllOf(HasSubstr("j-0001"), HasSubstr("40000"), HasSubstr("/metrics")));
}

TEST_F(JobTest, StrangersAreIgnored) {
  StartAndRun();
  Done(99, 3, "I am not of this job");
  Gone(99, "stream closed");
  Report(99, 1);
  EXPECT_EQ(state(), RUNNING);
}

TEST_F(JobTest, OnlyTheChiefEvaluatesAndTheListIsBounded) {
  StartAndRun();
  WorkerReport report;
  for (uint32_t epoch = 1; epoch <= 10'000; ++epoch) {
    report.mutable_evaluation()->set_epoch(epoch);
    job_.OnReport(kChief, report, now_, &actions_);
    job_.OnReport(kWorker, report, now_, &actions_);
  }
  const auto& evaluations = job_.status().evaluations();
  EXPECT_LE(evaluations.size(), 4096);
  EXPECT_GE(evaluations.size(), 1024);
  EXPECT_EQ(evaluations[0].epoch(), 1);
  EXPECT_EQ(evaluations[evaluations.size() - 1].epoch(), 10'000);
  for (int i = 1; i < evaluations.size(); ++i) {
    EXPECT_LT(evaluations[i - 1].epoch(), evaluations[i].epoch());
  }
}

// Its step time-out is the default, so its limit is ten minutes.
TEST_F(JobTest, AChiefThatHangsAfterItsLastClockFailsTheJob) {
  StoredJob stored = Stored();
  stored.status.mutable_spec()->mutable_limits()->clear_max_seconds();
  Job job(std::move(stored),
          {.prepare_timeout = absl::Seconds(60), .grace = absl::Seconds(2)});
  job.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, now_,
            &actions_);
  JobPrepared prepared;
  prepared.set_clocks_total(9);
  job.OnPrepared(kChief, prepared, now_, &actions_);
  job.OnPrepared(kPs, JobPrepared(), now_, &actions_);
  WorkerReport report;
  report.mutable_progress()->set_clock(9);
  job.OnReport(kChief, report, now_, &actions_);
  // Its results may take much longer, while it says that they come forward.
  const auto says = [&](const std::string& activity) {
    WorkerReport said;
    said.set_activity(activity);
    job.OnReport(kChief, said, now_, &actions_);
  };
  for (int i = 1; i <= 10; ++i) {
    says(absl::StrCat("writing trained.onnx, ", i, " bytes so far"));
    now_ += absl::Minutes(10);
    job.OnTick(now_, &actions_);
    ASSERT_EQ(job.status().state(), RUNNING);
  }
  EXPECT_THAT(job.status().waiting_for(),
              HasSubstr("writing trained.onnx, 10 bytes so far"));
  says("writing trained.onnx, 10 bytes so far");
  now_ += absl::Seconds(1);
  job.OnTick(now_, &actions_);
  ASSERT_EQ(job.status().state(), FAILED);
  EXPECT_EQ(job.status().exit_code(), 138);
  EXPECT_THAT(
      job.status().transitions().rbegin()->reason(),
      AllOf(HasSubstr("chief 0 at h:1 has not come forward for 601.0 s"),
            HasSubstr("it has closed clock 9, its last one, but is not done"),
            HasSubstr("it said last: writing trained.onnx, 10 bytes so far"),
            HasSubstr("the limit is 600.0 s")));
}

// A daemon that has registered again repeats what may not have arrived.
TEST_F(JobTest, ARepeatedEvaluationIsOne) {
  StartAndRun();
  WorkerReport report;
  Evaluation* const evaluation = report.mutable_evaluation();
  for (const auto& [epoch, clock, final] : {std::tuple(1, 10, false),
                                            {2, 20, false},
                                            {1, 10, false},
                                            {2, 20, false},
                                            {2, 20, true},
                                            {2, 20, true}}) {
    evaluation->set_epoch(epoch);
    evaluation->set_clock(clock);
    evaluation->set_final(final);
    job_.OnReport(kChief, report, now_, &actions_);
  }
  ASSERT_EQ(job_.status().evaluations_size(), 3);
  EXPECT_EQ(job_.status().evaluations(0).clock(), 10);
  EXPECT_EQ(job_.status().evaluations(1).clock(), 20);
  EXPECT_TRUE(job_.status().evaluations(2).final());
}

void AddSource(JobPrepared* prepared, const std::string& field,
               const std::string& file) {
  DataFingerprint::Source* source = prepared->mutable_data()->add_sources();
  source->set_field(field);
  source->set_file_count(1);
  source->add_files()->set_name(file);
}

TEST_F(JobTest, MembersWithOtherDataFailTheJobBeforeItRuns) {
  Start();
  JobPrepared prepared;
  AddSource(&prepared, "data.train", "b.csv");
  job_.OnPrepared(kWorker, prepared, now_, &actions_);
  prepared = {};
  AddSource(&prepared, "data.train", "a.csv");
  AddSource(&prepared, "data.test", "t.csv");
  job_.OnPrepared(kChief, prepared, now_, &actions_);
  EXPECT_EQ(state(), PREPARING) << "others may have something to say";
  Prepare(kPs);
  EXPECT_EQ(state(), FAILED);
  EXPECT_THAT(Told(SchedulerMessage::kRun), IsEmpty());
  EXPECT_EQ(job_.status().exit_code(), 1);
  EXPECT_THAT(reason(), AllOf(HasSubstr("chief 0 at h:1: data.train: "),
                              HasSubstr("\"b.csv\" is missing here"),
                              HasSubstr("worker 4 at h:1 has it")));
}

TEST_F(JobTest, AStepLargerThanTheDataIsAWarning) {
  StoredJob stored = Stored();
  stored.status.mutable_spec()->mutable_training()->set_batch_size(50);
  const auto reason_with = [&](uint64_t samples) {
    Job job(stored, {});
    job.Start({At(kChief, CHIEF, 0), At(kWorker, WORKER, 4)}, {At(kPs, PS, 7)},
              std::nullopt, now_, &actions_);
    JobPrepared prepared;
    AddSource(&prepared, "data.train", "a.csv");
    prepared.mutable_data()->mutable_sources(0)->set_samples(samples);
    for (const SessionId session : {kChief, kWorker, kPs}) {
      job.OnPrepared(session, prepared, now_, &actions_);
    }
    EXPECT_EQ(job.status().state(), RUNNING);
    return job.status().transitions(2).reason();
  };
  EXPECT_EQ(reason_with(100), "all participants are prepared");
  EXPECT_EQ(reason_with(99),
            "all participants are prepared\n"
            "warning: a step takes 100 samples (2 workers, "
            "training.batch_size 50), but data.train has 99: each pass over "
            "the data is one smaller step");
}

TEST_F(JobTest, AReasonIsUtf8) {
  Start();
  Gone(kWorker, "\xe4 is Latin-1");
  EXPECT_THAT(reason(), HasSubstr("\\xe4 is Latin-1"));
}

TEST_F(JobTest, MembersWithTheSameDataRun) {
  Start();
  JobPrepared prepared;
  AddSource(&prepared, "data.train", "a.csv");
  job_.OnPrepared(kWorker, prepared, now_, &actions_);
  AddSource(&prepared, "data.test", "t.csv");
  job_.OnPrepared(kChief, prepared, now_, &actions_);
  Prepare(kPs);
  EXPECT_EQ(state(), RUNNING);
}

class EvaluatedJobTest : public JobTest {
 protected:
  static constexpr SessionId kEvaluator = 5;

  void SetUp() override {
    job_.Start({At(kChief, CHIEF, 0), At(kWorker, WORKER, 4)}, {At(kPs, PS, 7)},
               At(kEvaluator, EVALUATOR, 1), now_, &actions_);
  }
  void Run() {
    JobPrepared prepared;
    prepared.set_clocks_per_epoch(30);
    prepared.set_clocks_total(70);
    job_.OnPrepared(kChief, prepared, now_, &actions_);
    for (const SessionId session : {kWorker, kPs, kEvaluator}) {
      Prepare(session);
    }
  }
};

TEST_F(EvaluatedJobTest, TheEvaluatorHasTheRankAfterTheWorkers) {
  EXPECT_EQ(job_.status().evaluator().rank(), 2u);
  EXPECT_EQ(job_.status().workers_size(), 2);
  EXPECT_EQ(reason(), "on 2 workers and 1 ps, evaluated by evaluator 1");
  EXPECT_THAT(Told(SchedulerMessage::kPrepare),
              ElementsAre(kChief, kWorker, kEvaluator, kPs));
}

TEST_F(EvaluatedJobTest, IsTheLengthThatTheChiefSays) {
  Run();
  EXPECT_THAT(Told(SchedulerMessage::kRun),
              ElementsAre(kChief, kWorker, kEvaluator));
  const RunJob& run = std::get<SendCommand>(actions_.back()).message.run();
  EXPECT_EQ(run.clocks_per_epoch(), 30);
  EXPECT_EQ(run.clocks_total(), 70);
}

TEST_F(EvaluatedJobTest, IsDoneWhenItsLastEvaluationIsThere) {
  Run();
  Done(kChief);
  Done(kWorker);
  EXPECT_FALSE(job_.stopping());
  EXPECT_EQ(job_.status().waiting_for(), "evaluator 1 at h:1");
  Done(kEvaluator);
  EXPECT_TRUE(job_.stopping());
  for (const SessionId session : {kChief, kWorker, kPs}) Gone(session);
  EXPECT_EQ(state(), RUNNING);
  Gone(kEvaluator);
  EXPECT_EQ(state(), SUCCEEDED);
  EXPECT_EQ(job_.status().waiting_for(), "");
  EXPECT_EQ(reason(), "all workers and the evaluator are done");
}

TEST_F(EvaluatedJobTest, OnlyTheEvaluatorsEvaluationsCount) {
  Run();
  WorkerReport report;
  report.mutable_evaluation()->set_epoch(1);
  report.mutable_progress()->set_clock(9);
  for (const SessionId session : {kChief, kWorker, kEvaluator}) {
    job_.OnReport(session, report, now_, &actions_);
  }
  EXPECT_EQ(job_.status().evaluations_size(), 1);
  EXPECT_EQ(job_.Status(now_).progress().workers_size(), 2);
}

TEST_F(EvaluatedJobTest, ALostEvaluatorIsNamedWithTheJobsClock) {
  Run();
  Report(kChief, 12);
  Report(kWorker, 11);
  Gone(kEvaluator, "stream closed");
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(reason(),
            "evaluator 1 at h:1 (incarnation 0x6303) was lost: "
            "stream closed; last clock 11");
  EXPECT_EQ(job_.status().exit_code(), 138);
}

TEST_F(EvaluatedJobTest, TheEvaluatorHasNoStepsToProfile) {
  Run();
  EXPECT_TRUE(job_.WorkerSession(1).ok());
  const absl::Status refused = job_.WorkerSession(2).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("rank 2 is its evaluator, which does no steps"));
}

TEST_F(JobTest, AClockThatIsSetBackDoesNotTurnTheHistoryAround) {
  Start();
  now_ -= absl::Minutes(5);
  job_.Cancel("", now_, &actions_);
  const auto& transitions = job_.status().transitions();
  EXPECT_GE(transitions[2].time().seconds(), transitions[1].time().seconds());
}

TEST_F(JobTest, AnArtifactThatComesAgainReplacesTheFirst) {
  Artifact artifact;
  artifact.set_name("trained.onnx");
  artifact.set_size_bytes(1);
  job_.AddArtifact(artifact, &actions_);
  artifact.set_size_bytes(2);
  job_.AddArtifact(artifact, &actions_);
  ASSERT_EQ(job_.status().artifacts_size(), 1);
  EXPECT_EQ(job_.status().artifacts(0).size_bytes(), 2);
}

// One of the pair then says that somebody else has not come; the cause is said
// first.
TEST_F(JobTest, APairThatIsApartIsNamed) {
  StartAndRun();
  const auto report = [&](double seconds) {
    PeerUnreachable unreachable;
    unreachable.mutable_peer()->set_incarnation(kPs);
    unreachable.set_seconds(seconds);
    unreachable.set_error("connection refused");
    job_.OnUnreachable(kWorker, unreachable, now_);
  };
  report(5);
  Tick(absl::Seconds(2));
  EXPECT_EQ(state(), RUNNING);
  Done(kChief, kDeadlineExceeded, "missing: worker:4");
  EXPECT_EQ(state(), RUNNING) << "a loss may still be noticed";
  Tick(absl::Seconds(2));
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().exit_code(), 138);
  EXPECT_THAT(
      reason(),
      AllOf(HasSubstr("worker 4 at h:1 cannot reach ps 7 at h:1 since "),
            HasSubstr("connection refused"), HasSubstr("missing: worker:4")));
}

TEST_F(JobTest, APairThatStaysApartFailsTheJob) {
  StartAndRun();
  // limits.step_timeout_seconds is 60: a network that is back by then is none
  // of the job's business.
  for (int seconds = 2; seconds <= 60; seconds += 2) {
    ASSERT_EQ(state(), RUNNING) << seconds;
    PeerUnreachable unreachable;
    unreachable.mutable_peer()->set_incarnation(kPs);
    unreachable.set_seconds(seconds);
    job_.OnUnreachable(kWorker, unreachable, now_);
    Tick(absl::Seconds(2));
  }
  EXPECT_EQ(state(), FAILED);
  EXPECT_EQ(job_.status().exit_code(), 138);
  EXPECT_THAT(reason(), HasSubstr("worker 4 at h:1 cannot reach ps 7 at h:1"));
}

TEST_F(JobTest, OnlyMembersOfTheJobCanBeOutOfReach) {
  StartAndRun();
  PeerUnreachable unreachable;
  unreachable.mutable_peer()->set_incarnation(12345);
  unreachable.set_seconds(1000);
  job_.OnUnreachable(kWorker, unreachable, now_);
  unreachable.mutable_peer()->set_incarnation(kPs);
  job_.OnUnreachable(/*session=*/99, unreachable, now_);
  Tick(absl::Seconds(1));
  EXPECT_EQ(state(), RUNNING);
}

// A job of a chief and a ps whose chief may stand still for 10 s.
class StandstillTest : public JobTest {
 protected:
  StandstillTest()
      : chiefs_(Impatient(), {.prepare_timeout = absl::Seconds(60),
                              .grace = absl::Seconds(2)}) {
    chiefs_.Start({At(kChief, CHIEF, 0)}, {At(kPs, PS, 7)}, std::nullopt, now_,
                  &actions_);
    JobPrepared prepared;
    prepared.set_clocks_per_epoch(100);
    prepared.set_clocks_total(100);
    chiefs_.OnPrepared(kChief, prepared, now_, &actions_);
    chiefs_.OnPrepared(kPs, JobPrepared(), now_, &actions_);
  }
  static StoredJob Impatient() {
    StoredJob stored = Stored();
    stored.status.mutable_spec()->mutable_limits()->set_max_seconds(0);
    stored.status.mutable_spec()->mutable_limits()->set_step_timeout_seconds(1);
    return stored;
  }
  void Pass(absl::Duration time) {
    now_ += time;
    chiefs_.OnTick(now_, &actions_);
  }

  Job chiefs_;
};

TEST_F(StandstillTest, AWorkerThatStandsStillFailsTheJob) {
  WorkerReport report;
  report.mutable_progress()->set_clock(3);
  chiefs_.OnReport(kChief, report, now_, &actions_);
  Pass(absl::Seconds(10));
  EXPECT_EQ(chiefs_.status().state(), RUNNING);
  Pass(absl::Seconds(1));
  EXPECT_EQ(chiefs_.status().state(), FAILED);
  EXPECT_EQ(chiefs_.status().exit_code(), 138);
  EXPECT_THAT(chiefs_.status().transitions().rbegin()->reason(),
              AllOf(HasSubstr("chief 0 at h:1"), HasSubstr("clock 3")));
}

// A daemon says its evaluations again each time that its stream has broken.
TEST_F(StandstillTest, AnEvaluationIsProgressOnce) {
  WorkerReport report;
  report.mutable_evaluation()->set_epoch(1);
  Pass(absl::Seconds(6));
  chiefs_.OnReport(kChief, report, now_, &actions_);
  Pass(absl::Seconds(6));
  EXPECT_EQ(chiefs_.status().state(), RUNNING);
  report.mutable_progress()->set_clock(0);
  chiefs_.OnReport(kChief, report, now_, &actions_);
  Pass(absl::Seconds(5));
  EXPECT_EQ(chiefs_.status().state(), FAILED);
}

// A record that is cut within a character is one that nobody can parse.
TEST_F(JobTest, ALongReasonIsCutBetweenCharacters) {
  for (const char* padding : {"", "x"}) {
    Job job(Stored(),
            {.prepare_timeout = absl::Seconds(60), .grace = absl::Seconds(2)});
    std::string reason = padding;
    for (int i = 0; i < 10'000; ++i) reason += "\u00e9";
    job.Fail(reason, 1, now_, &actions_);
    JobStatus read;
    ASSERT_TRUE(read.ParseFromString(job.status().SerializeAsString()));
    EXPECT_THAT(read.transitions(1).reason(),
                ::testing::EndsWith("\u00e9 ..."));
  }
}

}  // namespace
}  // namespace syncline::scheduler
