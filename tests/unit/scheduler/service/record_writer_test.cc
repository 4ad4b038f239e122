// Goal: a record that the disk refuses is written or deleted later, as the job
// is then; until then the trouble is known. Method: a store that fails when it
// is told to, and ticks.

#include "scheduler/service/record_writer.h"

#include <map>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

class FailingStore final : public StateStore {
 public:
  absl::StatusOr<Loaded> Load() const override { return Loaded(); }
  absl::Status PutNew(const StoredJob& job) override {
    states[job.status.job_id()] = job.status.state();  // also where it fails
    return error;
  }
  absl::Status PutEpoch(uint64_t epoch) override {
    if (error.ok()) this->epoch = epoch;
    return error;
  }
  absl::Status Put(const JobRecord& job, bool durable) override {
    if (error.ok()) states[job.status.job_id()] = job.status.state();
    return error;
  }
  absl::Status PutUse(const SetMemberUseRequest&) override {
    return absl::OkStatus();
  }
  absl::Status PutEvent(const std::string&, const StoredEvent&,
                        uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status Delete(const std::string& job_id) override {
    if (error.ok()) states.erase(job_id);
    return error;
  }

  absl::Status error;
  std::map<std::string, JobState> states;
  uint64_t epoch = 0;
};

class RecordWriterTest : public ::testing::Test {
 protected:
  static JobStatus Status(const std::string& job_id, JobState state) {
    JobStatus status;
    status.set_job_id(job_id);
    status.set_state(state);
    return status;
  }
  void Retry() {
    writer_.Retry(
        [this](const std::string& job_id) -> absl::StatusOr<JobRecord> {
          if (gone_.contains(job_id)) return absl::NotFoundError("gone");
          return JobRecord{Status(job_id, SUCCEEDED)};
        },
        now_);
  }

  const absl::Status full_ = absl::ResourceExhaustedError("disk full");
  const absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  SchedulerMetrics metrics_{nullptr};
  FailingStore store_;
  RecordWriter writer_{&store_, &metrics_};
  std::set<std::string> gone_;
};

TEST_F(RecordWriterTest, ARefusedRecordIsWrittenAsTheJobIsLater) {
  writer_.Write({Status("j-1", RUNNING)}, /*durable=*/true, now_);
  EXPECT_TRUE(writer_.Check().ok());
  store_.error = full_;
  writer_.Write({Status("j-1", FAILED)}, /*durable=*/true, now_);
  writer_.Write({Status("j-2", FAILED)}, /*durable=*/true, now_);
  EXPECT_EQ(writer_.Check(), full_);
  EXPECT_TRUE(writer_.IsUnwritten("j-1"));
  Retry();
  EXPECT_EQ(writer_.Check(), full_);
  store_.error = absl::OkStatus();
  gone_.insert("j-2");
  Retry();
  EXPECT_TRUE(writer_.Check().ok());
  EXPECT_FALSE(writer_.IsUnwritten("j-1"));
  EXPECT_EQ(store_.states.at("j-1"), SUCCEEDED);
  EXPECT_FALSE(store_.states.contains("j-2"));
}

TEST_F(RecordWriterTest, ALaterWriteOfTheSameJobEndsTheTrouble) {
  store_.error = full_;
  writer_.Write({Status("j-1", RUNNING)}, /*durable=*/true, now_);
  store_.error = absl::OkStatus();
  writer_.Write({Status("j-1", FAILED)}, /*durable=*/true, now_);
  EXPECT_TRUE(writer_.Check().ok());
  Retry();
  EXPECT_EQ(store_.states.at("j-1"), FAILED);
}

// A write that failed may have reached the disk.
TEST_F(RecordWriterTest, ANewRecordThatFailedIsDeletedLater) {
  store_.error = full_;
  StoredJob job;
  job.status = Status("j-1", QUEUED);
  EXPECT_EQ(writer_.WriteNew(job, now_), full_);
  EXPECT_TRUE(writer_.Check().ok()) << "no job misses its record";
  EXPECT_TRUE(store_.states.contains("j-1"));
  Retry();
  EXPECT_TRUE(store_.states.contains("j-1"));
  store_.error = absl::OkStatus();
  Retry();
  EXPECT_FALSE(store_.states.contains("j-1"));
}

TEST_F(RecordWriterTest, AnEpochIsWrittenUntilTheDiskTakesIt) {
  store_.error = full_;
  writer_.WriteEpoch(7, now_);
  Retry();
  EXPECT_EQ(store_.epoch, 0u);
  store_.error = absl::OkStatus();
  Retry();
  EXPECT_EQ(store_.epoch, 7u);
  store_.epoch = 0;
  Retry();
  EXPECT_EQ(store_.epoch, 0u) << "once";
}

}  // namespace
}  // namespace syncline::scheduler
