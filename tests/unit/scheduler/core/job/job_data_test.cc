// Goal: members whose data differ never train together, and data smaller than a
// step are warned of. Method: the fingerprints of two members, equal or not.

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/job/job.h"
#include "tests/unit/scheduler/core/job/job_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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
              std::nullopt, "secret", now_, &actions_);
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

TEST_F(JobTest, DataThatChangeBetweenAttemptsAreAWarning) {
  RestartSpec restart;
  restart.set_max(5);
  StoredJob stored = Stored(restart);
  stored.status.mutable_spec()->mutable_checkpoint()->set_every_clocks(10);
  Job job(stored, Options());
  const auto run = [&](uint32_t crc, uint64_t samples) {
    job.Start({At(kChief, CHIEF, 0), At(kWorker, WORKER, 4)}, {At(kPs, PS, 7)},
              std::nullopt, "secret", now_, &actions_);
    JobPrepared prepared;
    for (const char* field : {"data.train", "data.test"}) {
      AddSource(&prepared, field, "a.csv");
      DataFingerprint::Source& source =
          *prepared.mutable_data()->mutable_sources()->rbegin();
      source.set_samples(samples);
      source.set_crc32c(source.field() == "data.train" ? crc : 1);
    }
    for (const SessionId session : {kChief, kWorker, kPs}) {
      job.OnPrepared(session, prepared, now_, &actions_);
    }
    EXPECT_EQ(job.status().state(), RUNNING);
    const std::string reason = job.status().transitions().rbegin()->reason();
    WorkerReport report;  // no two attempts fail at the same clock
    report.mutable_progress()->set_clock(10 * job.status().attempt());
    job.OnReport(kChief, report, now_, &actions_);
    job.OnReport(kWorker, report, now_, &actions_);
    for (const SessionId session : {kPs, kChief, kWorker}) {
      job.OnGone(session, "stream closed", now_, &actions_);
    }
    return reason;
  };
  EXPECT_THAT(run(7, 100), Not(HasSubstr("contents")));
  EXPECT_THAT(run(7, 100), Not(HasSubstr("contents")));
  EXPECT_THAT(run(8, 100),
              AllOf(HasSubstr("warning: data.train has other contents than in "
                              "the attempt before: 100 samples in 1 file in "
                              "place of 100 samples"),
                    HasSubstr("clocks stand for other samples"),
                    Not(HasSubstr("data.test"))));
  EXPECT_THAT(run(8, 120), HasSubstr("data.test has other contents"));
}

}  // namespace
}  // namespace syncline::scheduler
