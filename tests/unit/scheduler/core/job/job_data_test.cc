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

}  // namespace
}  // namespace syncline::scheduler
