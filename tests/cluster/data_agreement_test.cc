// Goal: workers that do not see the same data never train together: the job
// fails before it runs, and its author reads which file differs on which hosts;
// copies in different places are the same data. Method: a chief and a worker
// with data roots of their own, the real synctl.

#include <string>

#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Lines of three features and a label.
std::string Lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&lines, i % 7, ",", i % 5, ",", i % 3, ",", i % 2, "\n");
  }
  return lines;
}

class DataAgreementTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* root : {"chief", "worker"}) {
      data_.Write(absl::StrCat(root, "/p-1.csv"), Lines(64));
      data_.Write(absl::StrCat(root, "/p-2.csv"), Lines(32));
    }
    ASSERT_OK(cluster_.Start());
    ASSERT_OK(cluster_.StartDaemon(
        "chief-0", {absl::StrCat("--data-root=", data_.File("chief"))}));
    ASSERT_OK(cluster_.StartDaemon(
        "worker-0", {absl::StrCat("--data-root=", data_.File("worker"))}));
    ASSERT_OK(cluster_.WaitForFreeMembers(3, absl::Seconds(60)));
  }

  std::string WriteCsvJob() {
    JobSpec job = DigitsJob();
    job.mutable_data()->mutable_train()->mutable_csv()->set_path("p-*.csv");
    job.mutable_data()->mutable_feeds(0)->set_field("0:3");
    job.mutable_data()->mutable_label()->set_field("3");
    job.mutable_resources()->set_workers(2);
    return WriteJob(cluster_.dir(), job, MlpModel(3, 4, 2));
  }

  const TempDir data_;
  TestCluster cluster_{{.ps = 1, .workers = 0}};
};

TEST_F(DataAgreementTest, AFileThatOneHostLacksFailsTheJobBeforeItRuns) {
  EXPECT_OK(cluster_.Train(WriteCsvJob()));

  ASSERT_OK(RemoveTree(data_.File("worker/p-2.csv")));
  const auto result = cluster_.Synctl({"submit", WriteCsvJob(), "--watch"});
  ASSERT_OK(result);
  EXPECT_EQ(result->exit.code, 1);
  EXPECT_THAT(result->out, Not(HasSubstr("running\n")));
  // The member that prepares last reports it.
  EXPECT_THAT(result->err, AllOf(HasSubstr("data.train: \"p-2.csv\" is "),
                                 HasSubstr("chief 0 at 127.0.0.1:"),
                                 HasSubstr("worker 0 at 127.0.0.1:")));

  data_.Write("worker/p-2.csv", Lines(32));
  EXPECT_OK(cluster_.Train(WriteCsvJob()));  // the next job
}

TEST_F(DataAgreementTest, DrawnDataIsTheSameEverywhere) {
  JobSpec job = DigitsJob();
  job.mutable_resources()->set_workers(2);
  EXPECT_OK(
      cluster_.Train(WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10))));
}

}  // namespace
}  // namespace syncline
