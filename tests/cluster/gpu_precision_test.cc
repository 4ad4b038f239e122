// Goal: workers with GPUs train a job in float16 to its goal through a ps; an
// overflow on the way skips a step and halves the scale, for all workers alike.
// Method: real processes, the workers' with emulated GPUs, against the same job
// in float32; the scale is doubled every few steps, so that it comes to
// overflow.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/system/file.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(4);
constexpr uint32_t kWorkers = 2;
constexpr float kInitialScale = 65536;

JobSpec Job(Precision precision) {
  JobSpec job = DigitsJob();
  job.set_name(Precision_Name(precision));
  job.set_precision(precision);
  job.mutable_data()->mutable_train()->mutable_digits()->set_count(640);
  job.mutable_data()->mutable_test()->mutable_digits()->set_count(64);
  job.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  job.mutable_learning_rate()->set_base(0.01f);
  job.mutable_training()->set_batch_size(8);
  job.mutable_training()->set_eval_batch_size(16);
  job.mutable_training()->set_epochs(6);
  job.mutable_resources()->set_workers(kWorkers);
  job.mutable_resources()->set_ps(1);
  job.mutable_resources()->set_device(ResourcesSpec::CUDA);
  if (precision == FLOAT16) {
    job.mutable_loss_scale()->set_initial(kInitialScale);
    job.mutable_loss_scale()->set_window(6);
  }
  return job;
}

// Of each clock, by history.csv.
std::vector<double> ScalesOf(const std::string& csv) {
  std::vector<double> scales;
  size_t column = 0;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(csv, '\n', absl::SkipEmpty()))) {
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    if (scales.empty() && column == 0) {
      while (column < fields.size() && fields[column] != "loss_scale") ++column;
      continue;
    }
    double scale = 0;
    if (column < fields.size() && absl::SimpleAtod(fields[column], &scale)) {
      scales.push_back(scale);
    }
  }
  return scales;
}

TEST(GpuPrecisionTest, Float16TrainsToItsGoalWithOverflowsOnTheWay) {
  TestCluster cluster({.ps = 1,
                       .workers = kWorkers,
                       .worker_program = SYNCLINE_EMULATED_GPU_WORKER});
  ASSERT_OK(cluster.Start());
  const auto train = [&](Precision precision) -> absl::StatusOr<JobStatus> {
    const auto id = cluster.Submit(
        WriteJob(cluster.dir(), Job(precision), MlpModel(784, 10, 10)));
    if (!id.ok()) return id.status();
    return cluster.WaitForEnd(*id, kPatience);
  };
  ASSERT_OK_AND_ASSIGN(const JobStatus whole, train(FLOAT32));
  ASSERT_EQ(whole.state(), SUCCEEDED) << whole.transitions().rbegin()->reason();
  ASSERT_OK_AND_ASSIGN(const JobStatus half, train(FLOAT16));
  ASSERT_EQ(half.state(), SUCCEEDED) << half.transitions().rbegin()->reason();

  // The goal: the loss of float32, which is well below chance.
  const double goal = whole.evaluations().rbegin()->loss();
  EXPECT_LT(goal, 0.75 * std::log(10.0));
  EXPECT_NEAR(half.evaluations().rbegin()->loss(), goal, 0.1);

  // All workers skip the same steps, and have the same scale.
  ASSERT_EQ(half.progress().workers_size(), static_cast<int>(kWorkers));
  const WorkerProgress& chief = half.progress().workers(0);
  const WorkerProgress& other = half.progress().workers(1);
  EXPECT_GT(chief.overflowed_steps(), 0u);
  EXPECT_LT(static_cast<int64_t>(chief.overflowed_steps()), chief.clock() / 3);
  EXPECT_EQ(other.overflowed_steps(), chief.overflowed_steps());
  EXPECT_EQ(other.loss_scale(), chief.loss_scale());

  // From its start it was doubled, and halved by each overflow.
  const std::string to = cluster.dir().File("results");
  ASSERT_OK_AND_ASSIGN(
      const auto downloaded,
      cluster.Synctl({"download", half.job_id(), "history.csv", "--to", to}));
  ASSERT_EQ(downloaded.exit.code, 0) << downloaded.err;
  ASSERT_OK_AND_ASSIGN(const std::string csv,
                       ReadFile(absl::StrCat(to, "/history.csv"), 1 << 24));
  const std::vector<double> scales = ScalesOf(csv);
  ASSERT_GT(scales.size(), 10u) << csv;
  EXPECT_EQ(scales[0], kInitialScale);
  int doubled = 0;
  int halved = 0;
  for (size_t k = 1; k < scales.size(); ++k) {
    const double ratio = scales[k] / scales[k - 1];
    doubled += ratio == 2;
    halved += ratio == 0.5;
    EXPECT_TRUE(ratio == 1 || ratio == 2 || ratio == 0.5) << k << ": " << ratio;
  }
  EXPECT_GT(doubled, 0);
  EXPECT_GT(halved, 0);
  EXPECT_LE(halved, static_cast<int>(chief.overflowed_steps()));
}

}  // namespace
}  // namespace syncline
