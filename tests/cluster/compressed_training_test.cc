// Goal: a model learns as much when its gradients are compressed; the bits do
// not depend on the number of ps; a job that goes on after a loss says that its
// residuals begin anew.
// Method: the optdigits example on a cluster of real processes; accuracy on its
// test split, the exported files, the bytes that the job counts, and the log.

#include <csignal>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kFileBytesMax = 1 << 24;

class CompressedTrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(TestDataDir())) {
      GTEST_SKIP() << "no data in " << TestDataDir();
    }
    ASSERT_OK(cluster_.Start());
  }

  std::string JobFile(CompressionSpec::Kind kind, uint32_t ps,
                      const std::function<void(JobSpec*)>& edit = nullptr) {
    const std::string folder =
        absl::StrCat(SourceDir(), "/deploy/examples/optdigits/");
    auto job =
        ParseJobSpec(*ReadFile(folder + "job.textproto", kFileBytesMax), "job");
    EXPECT_OK(job.status());
    job->set_name(absl::StrCat(CompressionSpec::Kind_Name(kind), "-", ps));
    job->mutable_compression()->set_kind(kind);
    if (kind == CompressionSpec::TOP_K) {
      job->mutable_compression()->set_fraction(0.1);
    }
    job->mutable_resources()->set_ps(ps);
    if (edit != nullptr) edit(&*job);
    return WriteJob(cluster_.dir(), *job,
                    *ReadFile(folder + job->model().path(), kFileBytesMax));
  }

  // Trains, and checks what a user sees of it. Returns the model's bytes.
  std::string Train(CompressionSpec::Kind kind, uint32_t ps,
                    double smaller_at_least, bool values = false) {
    SCOPED_TRACE(absl::StrCat(CompressionSpec::Kind_Name(kind), ", ps ", ps));
    const auto status = cluster_.Train(JobFile(kind, ps, [&](JobSpec* job) {
      job->mutable_compression()->set_values(values);
    }));
    EXPECT_OK(status.status());
    if (!status.ok() || status->evaluations().empty()) return "";
    const double accuracy = status->evaluations().rbegin()->accuracy();
    double sent = 0;
    double whole = 0;
    for (const WorkerProgress& worker : status->progress().workers()) {
      sent += static_cast<double>(worker.gradient_bytes());
      whole += static_cast<double>(worker.gradient_float32_bytes());
      EXPECT_GT(worker.value_bytes(), 0u);
      if (values) {
        // Whole where a worker begins and behind evaluations.
        EXPECT_GT(worker.value_float32_bytes(), 3 * worker.value_bytes());
      } else {
        EXPECT_EQ(worker.value_bytes(), worker.value_float32_bytes());
      }
    }
    std::cout << CompressionSpec::Kind_Name(kind) << ": accuracy " << accuracy
              << ", gradients " << whole / sent << " times smaller\n";
    EXPECT_GT(accuracy, 0.935);
    EXPECT_GT(whole / sent, smaller_at_least);
    const auto get = cluster_.Synctl({"get", status->job_id()});
    EXPECT_OK(get.status());
    EXPECT_THAT(get->out, HasSubstr("times smaller than float32; values "));
    const auto file = cluster_.FetchModel(status->job_id());
    EXPECT_OK(file.status());
    return file.ok() ? *ReadFile(*file, kFileBytesMax) : "";
  }

  TestCluster cluster_{{.ps = 2, .workers = 3, .data_root = TestDataDir()}};
};

TEST_F(CompressedTrainingTest, LearnsAsMuchWithTheSameBitsOnAnyPs) {
  const std::string int8 = Train(CompressionSpec::INT8, 2, 3.5);
  EXPECT_TRUE(int8 == Train(CompressionSpec::INT8, 1, 3.5));
  const std::string top = Train(CompressionSpec::TOP_K, 2, 5);
  EXPECT_TRUE(top == Train(CompressionSpec::TOP_K, 1, 5));
  EXPECT_FALSE(top == int8);
}

TEST_F(CompressedTrainingTest, LearnsAsMuchFromValuesThatComeBackCompressed) {
  const std::string both = Train(CompressionSpec::INT8, 2, 3.5, true);
  EXPECT_TRUE(both == Train(CompressionSpec::INT8, 1, 3.5, true));
  EXPECT_FALSE(both == Train(CompressionSpec::INT8, 2, 3.5));
}

// By the ps, and without.
TEST_F(CompressedTrainingTest, AJobThatGoesOnHasTheBitsOfOneThatDidNotEnd) {
  const std::string folder = cluster_.dir().File("checkpoints");
  for (const uint32_t ps : {2u, 0u}) {
    SCOPED_TRACE(ps);
    const std::string file =
        JobFile(CompressionSpec::DGC, ps, [&](JobSpec* job) {
          if (ps == 0) job->set_strategy(ALL_REDUCE);
          job->clear_optimizer();
          job->mutable_optimizer()->set_kind(OptimizerSpec::MOMENTUM);
          job->mutable_learning_rate()->set_base(0.03);
          job->mutable_checkpoint()->set_every_clocks(100);
          job->mutable_checkpoint()->set_keep_last(100);
          job->mutable_checkpoint()->set_directory(folder);
        });
    const auto through = cluster_.Train(file);
    ASSERT_OK(through.status());
    ASSERT_GE(through->checkpoints_size(), 3);
    // A worker's file is no part of the checkpoint: it may come later, or be
    // left out where the one before is still written.
    CheckpointInfo checkpoint;
    ASSERT_TRUE(Eventually(absl::Seconds(30), [&] {
      for (const CheckpointInfo& each : through->checkpoints()) {
        int files = 0;
        for (const auto& file :
             std::filesystem::directory_iterator(each.path())) {
          files += file.path().filename().string().starts_with("residuals-");
        }
        if (files == 3) checkpoint = each;
      }
      return checkpoint.clock() > 0;
    }));
    const auto submitted =
        cluster_.Synctl({"submit", file, "--from", checkpoint.path()});
    ASSERT_OK(submitted.status());
    EXPECT_THAT(absl::StrCat(submitted->out, submitted->err),
                Not(HasSubstr("begins with new ones")));
    const std::string id = absl::StrCat("j-000", ps == 2 ? 2 : 4);
    ASSERT_OK(cluster_.Synctl({"watch", id}, absl::Minutes(5)).status());
    EXPECT_THAT(cluster_.LogOf("worker-1"),
                HasSubstr("residuals of compression go on"));
    const auto first = cluster_.FetchModel(through->job_id());
    const auto second = cluster_.FetchModel(id);
    ASSERT_OK(first.status());
    ASSERT_OK(second.status());
    EXPECT_TRUE(*ReadFile(*first, kFileBytesMax) ==
                *ReadFile(*second, kFileBytesMax));
  }
}

TEST_F(CompressedTrainingTest, ARestartSaysThatResidualsBeginAnew) {
  const std::string file =
      JobFile(CompressionSpec::TOP_K, 2, [&](JobSpec* job) {
        // Workers save theirs in SYNC.
        job->mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
        job->mutable_checkpoint()->set_every_clocks(100);
        job->mutable_checkpoint()->set_directory(
            cluster_.dir().File("checkpoints"));
        job->mutable_restart()->set_max(1);
        job->mutable_restart()->set_backoff_seconds(0.1);
        // A worker is lost while it runs, on a fast machine too: it has 160
        // times the clocks that are waited for, and no evaluations.
        job->mutable_training()->set_epochs(600);
        job->mutable_data()->clear_test();
        job->clear_metrics();
      });
  const auto submitted = cluster_.Synctl({"submit", file});
  ASSERT_OK(submitted.status());
  EXPECT_THAT(absl::StrCat(submitted->out, submitted->err),
              HasSubstr("checkpoints have no residuals"));
  const std::string id = "j-0001";
  ASSERT_OK(cluster_.WaitForClock(id, 150, absl::Minutes(3)).status());
  cluster_.daemon("worker-1").Signal(SIGKILL);
  ASSERT_OK(cluster_.StartDaemon("worker-1"));
  ASSERT_TRUE(Eventually(absl::Minutes(3), [&] {
    const auto job = cluster_.Get(id);
    return job.ok() && job->attempt() == 2 && job->state() == RUNNING &&
           job->progress().clock() > job->checkpoints().rbegin()->clock();
  }));
  EXPECT_THAT(cluster_.LogOf("chief-0"),
              HasSubstr("residuals of compression begin anew"));
  ASSERT_OK(cluster_.Synctl({"cancel", id}));
}

}  // namespace
}  // namespace syncline
