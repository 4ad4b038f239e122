// Goal: a job is found by id and by client key for as long as it is kept, and
// no number is given twice. Method: records of jobs in all states, and time.

#include "scheduler/core/cluster/job_records.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kKeep = absl::Hours(1);

class JobRecordsTest : public ::testing::Test {
 protected:
  JobRecordsTest()
      : records_(
            {.prepare_timeout = absl::Minutes(1), .grace = absl::Seconds(2)}) {}

  StoredJob Stored(const std::string& job_id, JobState state = SUCCEEDED) {
    StoredJob stored;
    stored.status.set_job_id(job_id);
    stored.status.set_state(state);
    JobTransition* const transition = stored.status.add_transitions();
    transition->set_state(state);
    *transition->mutable_time() = ToTimestamp(now_);
    stored.status.add_artifacts()->set_name("model.onnx");
    return stored;
  }
  // Ids of the jobs whose files are deleted, with "+" if their record is, too.
  std::vector<std::string> DeleteOld() {
    ClusterActions actions;
    records_.DeleteOld(kKeep, now_, &actions);
    std::vector<std::string> deleted;
    for (const ClusterAction& action : actions) {
      if (const auto* job = std::get_if<DeleteJob>(&action)) {
        deleted.push_back(job->job_id + (job->record ? "+" : ""));
      }
    }
    return deleted;
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  JobRecords records_;
};

TEST_F(JobRecordsTest, AReservedNumberIsNotGivenAgain) {
  EXPECT_EQ(records_.NextId(), "j-0001");
  records_.Reserve("j-0007");
  records_.Reserve("j-0003");
  EXPECT_EQ(records_.NextId(), "j-0008");
}

TEST_F(JobRecordsTest, AJobIsFoundByItsWholeId) {
  records_.Add(Stored("j-0002"));
  records_.Add(Stored("j-0010"));
  EXPECT_EQ(records_.Find("j-0002")->id(), "j-0002");
  EXPECT_EQ(records_.Find("j-2"), nullptr);
  EXPECT_EQ(records_.Find("nonsense"), nullptr);
  EXPECT_EQ(records_.Get("j-0003").status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_EQ(records_.NewestFirst().size(), 2u);
  EXPECT_EQ(records_.NewestFirst()[0]->id(), "j-0010");
  EXPECT_EQ(records_.All()[0]->id(), "j-0002");
}

TEST_F(JobRecordsTest, AKeyFindsTheSameWorkAndRefusesOther) {
  StoredJob stored = Stored("j-0001", QUEUED);
  stored.client_key = "mine";
  stored.status.mutable_spec()->set_name("one");
  const JobSpec spec = stored.status.spec();
  Artifact model = stored.status.artifacts(0);
  records_.Add(std::move(stored));
  EXPECT_TRUE(records_.HasClientKey("mine"));
  EXPECT_EQ(**records_.FindRepeated("mine", spec, {model}), "j-0001");
  EXPECT_EQ(*records_.FindRepeated("", spec, {model}), std::nullopt);
  EXPECT_EQ(*records_.FindRepeated("yours", spec, {model}), std::nullopt);
  model.set_size_bytes(5);
  JobSpec other = spec;
  other.set_name("two");
  const absl::Status refused =
      records_.FindRepeated("mine", other, {model}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.message(), HasSubstr("name"));
  EXPECT_THAT(refused.message(), HasSubstr("the model file"));
}

TEST_F(JobRecordsTest, OldJobsGoAndTheNewestRecordStays) {
  StoredJob first = Stored("j-0001");
  first.client_key = "mine";
  records_.Add(std::move(first));
  records_.Add(Stored("j-0002", RUNNING));
  records_.Add(Stored("j-0003"));
  EXPECT_THAT(DeleteOld(), testing::IsEmpty());
  now_ += kKeep;
  EXPECT_THAT(DeleteOld(), testing::ElementsAre("j-0001+", "j-0003"));
  EXPECT_EQ(records_.Find("j-0001"), nullptr);
  EXPECT_FALSE(records_.HasClientKey("mine"));
  EXPECT_NE(records_.Find("j-0002"), nullptr) << "it runs";
  ASSERT_NE(records_.Find("j-0003"), nullptr);
  EXPECT_EQ(records_.Find("j-0003")->status().artifacts_size(), 0);
  now_ += kKeep;
  EXPECT_THAT(DeleteOld(), testing::IsEmpty()) << "its files are deleted once";
}

}  // namespace
}  // namespace syncline::scheduler
