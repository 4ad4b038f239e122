// Goal: a job that ends early has the model of a job that was as long as that,
// bit for bit, and says why it ended. Method: the real executables; a change
// that no evaluation makes, so that the job ends after `patience` evaluations
// behind the first.

#include <string>

#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kModelBytesMax = 64 << 20;

class EarlyStopTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(cluster_.Start()); }

  static JobSpec Digits(const std::string& name, uint32_t epochs) {
    JobSpec job = DigitsJob();
    job.set_name(name);
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(1600);
    job.mutable_data()->mutable_test()->mutable_digits()->set_count(64);
    job.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
    job.mutable_training()->set_batch_size(8);
    job.mutable_training()->set_epochs(epochs);
    job.mutable_training()->set_threads(1);
    job.mutable_resources()->set_workers(2);
    job.mutable_resources()->set_ps(2);
    return job;
  }
  static JobSpec Stopping(const std::string& name) {
    JobSpec job = Digits(name, 1000);
    job.mutable_stop()->set_metric(LOSS);
    job.mutable_stop()->set_patience(2);
    job.mutable_stop()->set_min_change(1000);
    return job;
  }
  absl::StatusOr<JobStatus> Train(const JobSpec& job) {
    return cluster_.Train(WriteJob(cluster_.dir(), job, MlpModel(784, 16, 10)));
  }
  std::string ModelOf(const JobStatus& job) {
    const auto file = cluster_.FetchModel(job.job_id());
    EXPECT_OK(file);
    return file.ok() ? ReadFile(*file, kModelBytesMax).value_or("") : "";
  }

  TestCluster cluster_{{.ps = 2, .workers = 2, .evaluators = 1}};
};

TEST_F(EarlyStopTest, ItEndsAsAJobOfThatLength) {
  ASSERT_OK_AND_ASSIGN(const JobStatus whole, Train(Digits("whole", 3)));
  ASSERT_OK_AND_ASSIGN(const JobStatus early, Train(Stopping("early")));
  EXPECT_TRUE(ModelOf(early) == ModelOf(whole));
  ASSERT_EQ(early.evaluations_size(), 3);
  EXPECT_EQ(early.evaluations(2).clock(), 300);
  EXPECT_TRUE(early.evaluations(2).final());
  EXPECT_FALSE(early.evaluations(1).final());
  EXPECT_EQ(early.evaluations(2).loss(), whole.evaluations(2).loss());
  EXPECT_THAT(early.transitions().rbegin()->reason(),
              AllOf(HasSubstr("it ended early: LOSS, "),
                    HasSubstr("at epoch 1, has become no better by more than "
                              "1000 in 2 evaluations")));
  ASSERT_OK_AND_ASSIGN(const auto events,
                       cluster_.Synctl({"events", early.job_id()}));
  EXPECT_THAT(events.out, HasSubstr("it ended early: LOSS, "));
  EXPECT_EQ(early.progress().epoch(), 3u) << "the one that is done";
  ASSERT_OK_AND_ASSIGN(const auto watch,
                       cluster_.Synctl({"watch", early.job_id()}));
  EXPECT_THAT(watch.out, HasSubstr("it ended early: LOSS, "));
  // All members are free for the next one.
  ASSERT_OK(cluster_.WaitForFreeMembers(5, absl::Minutes(1)));
}

TEST_F(EarlyStopTest, InAsyncTheWorkersAreHeldAtTheEpochsEnd) {
  JobSpec job = Stopping("async");
  job.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  ASSERT_OK_AND_ASSIGN(const JobStatus early, Train(job));
  ASSERT_EQ(early.evaluations_size(), 3);
  EXPECT_TRUE(early.evaluations(2).final());
}

TEST_F(EarlyStopTest, AJobThatIsOverBeforeEndsNormally) {
  JobSpec job = Stopping("short");
  job.mutable_training()->set_epochs(2);
  ASSERT_OK_AND_ASSIGN(const JobStatus whole, Train(job));
  EXPECT_EQ(whole.transitions().rbegin()->reason(), "all workers are done");
}

}  // namespace
}  // namespace syncline
