// Goal: in sync mode the parameters depend on the job alone: not on the run,
// not on the number of ps, and not on how a step's samples are spread over
// workers. Method: the same job several times on one cluster; exported files
// compared byte by byte, or weight by weight where sums are ordered
// differently.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr uint64_t kModelBytesMax = 64 << 20;

class ReproducibilityTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = std::make_unique<TestCluster>(
        TestCluster::Options{.ps = 3, .workers = 3});
    ASSERT_OK(cluster_->Start());
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  // 50 steps of 96 samples, with everything that could depend on order: Adam's
  // state, a schedule, and a norm over all tensors and shards.
  static JobSpec Job(const std::string& name, uint32_t workers, uint32_t ps) {
    JobSpec job = DigitsJob();
    job.set_name(name);
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(2000);
    job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    job.mutable_optimizer()->set_clip_norm(0.5);
    job.mutable_learning_rate()->set_base(0.002);
    job.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
    job.mutable_training()->set_epochs(10);
    job.mutable_training()->set_max_clocks(50);
    job.mutable_training()->set_batch_size(96 / workers);
    job.mutable_resources()->set_workers(workers);
    job.mutable_resources()->set_ps(ps);
    return job;
  }

  // Path of the trained model.
  static absl::StatusOr<std::string> Train(const JobSpec& job) {
    auto status =
        cluster_->Train(WriteJob(cluster_->dir(), job, MlpModel(784, 64, 10)));
    if (!status.ok()) return status.status();
    EXPECT_EQ(status->progress().clock(), 50);
    return cluster_->FetchModel(status->job_id());
  }

  static absl::StatusOr<std::string> TrainedBytes(const JobSpec& job) {
    const auto file = Train(job);
    return file.ok() ? ReadFile(*file, kModelBytesMax) : file.status();
  }

  static std::unique_ptr<TestCluster> cluster_;
};

std::unique_ptr<TestCluster> ReproducibilityTest::cluster_;

TEST_F(ReproducibilityTest, TwoRunsWithOneSeedAreBitIdentical) {
  ASSERT_OK_AND_ASSIGN(const std::string first,
                       TrainedBytes(Job("first", 3, 2)));
  ASSERT_OK_AND_ASSIGN(const std::string second,
                       TrainedBytes(Job("second", 3, 2)));
  EXPECT_TRUE(first == second);

  JobSpec other_seed = Job("other-seed", 3, 2);
  other_seed.mutable_training()->set_seed(8);
  ASSERT_OK_AND_ASSIGN(const std::string other, TrainedBytes(other_seed));
  EXPECT_FALSE(first == other) << "the comparison would not see a difference";
}

TEST_F(ReproducibilityTest, TheNumberOfPsDoesNotMatter) {
  ASSERT_OK_AND_ASSIGN(const std::string one, TrainedBytes(Job("ps1", 3, 1)));
  ASSERT_OK_AND_ASSIGN(const std::string two, TrainedBytes(Job("ps2", 3, 2)));
  ASSERT_OK_AND_ASSIGN(const std::string three, TrainedBytes(Job("ps3", 3, 3)));
  EXPECT_TRUE(one == two);
  EXPECT_TRUE(one == three);
}

// Its steps are scaled by norms of tensors that several ps have parts of.
TEST_F(ReproducibilityTest, NorWithLamb) {
  std::string bytes[3];
  for (uint32_t ps = 1; ps <= 3; ++ps) {
    JobSpec job = Job(absl::StrCat("lamb", ps), 3, ps);
    job.mutable_optimizer()->set_kind(OptimizerSpec::LAMB);
    job.mutable_optimizer()->set_weight_decay(0.01f);
    ASSERT_OK_AND_ASSIGN(bytes[ps - 1], TrainedBytes(job));
  }
  EXPECT_TRUE(bytes[0] == bytes[1]);
  EXPECT_TRUE(bytes[0] == bytes[2]);
}

TEST_F(ReproducibilityTest, ThreeWorkersTimes32IsOneTimes96) {
  ASSERT_OK_AND_ASSIGN(const std::string three_file,
                       Train(Job("three-times-32", 3, 2)));
  ASSERT_OK_AND_ASSIGN(const std::string one_file,
                       Train(Job("one-times-96", 1, 2)));
  ASSERT_OK_AND_ASSIGN(const Weights three, ReadWeights(three_file));
  ASSERT_OK_AND_ASSIGN(const Weights one, ReadWeights(one_file));
  ASSERT_EQ(one.size(), 4u);
  EXPECT_LE(LargestDifference(three, one), 1e-5);
}

// Shares differ by one, and are computed in parts of 16.
TEST_F(ReproducibilityTest, AGlobalBatchIsTheSameWithAnyNumberOfWorkers) {
  std::vector<Weights> weights;
  for (uint32_t workers = 1; workers <= 3; ++workers) {
    JobSpec job = Job(absl::StrCat("global-", workers), workers, 2);
    job.mutable_training()->set_batch_size(16);
    job.mutable_training()->set_global_batch(95);
    ASSERT_OK_AND_ASSIGN(const std::string file, Train(job));
    ASSERT_OK_AND_ASSIGN(weights.emplace_back(), ReadWeights(file));
  }
  ASSERT_EQ(weights[0].size(), 4u);
  EXPECT_LE(LargestDifference(weights[0], weights[1]), 1e-5);
  EXPECT_LE(LargestDifference(weights[0], weights[2]), 1e-5);
}

}  // namespace
}  // namespace syncline
