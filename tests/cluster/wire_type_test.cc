// Goal: a model learns as much when gradients and values travel in 16 bits as
// when they travel whole.
// Method: the optdigits example on a cluster of real processes, over the
// network and through shared memory; accuracy on its test split.

#include <filesystem>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "common/system/file.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr uint64_t kFileBytesMax = 1 << 20;

// The last evaluation's accuracy.
double Accuracy(TestCluster* cluster, WireType type) {
  const std::string folder =
      absl::StrCat(SourceDir(), "/deploy/examples/optdigits/");
  const auto text = ReadFile(folder + "job.textproto", kFileBytesMax);
  EXPECT_OK(text.status());
  auto job = ParseJobSpec(*text, "job.textproto");
  EXPECT_OK(job.status());
  const auto model = ReadFile(folder + job->model().path(), kFileBytesMax);
  EXPECT_OK(model.status());
  job->set_name(WireType_Name(type));
  job->set_wire_type(type);
  const auto status = cluster->Train(WriteJob(cluster->dir(), *job, *model));
  EXPECT_OK(status.status());
  if (!status.ok() || status->evaluations().empty()) return 0;
  const double accuracy = status->evaluations().rbegin()->accuracy();
  std::cout << WireType_Name(type) << ": accuracy " << accuracy << std::endl;
  return accuracy;
}

TEST(WireTypeTest, SixteenBitsLearnAsMuch) {
  if (!std::filesystem::exists(TestDataDir())) {
    GTEST_SKIP() << "no data in " << TestDataDir();
  }
  double whole = 0;
  for (const char* path : {"off", "on"}) {
    SCOPED_TRACE(absl::StrCat("--shared-memory=", path));
    TestCluster cluster({.ps = 2,
                         .workers = 3,
                         .data_root = TestDataDir(),
                         .ps_flags = {absl::StrCat("--shared-memory=", path)}});
    ASSERT_OK(cluster.Start());
    if (whole == 0) whole = Accuracy(&cluster, WIRE_FLOAT32);
    EXPECT_GT(whole, 0.9);
    EXPECT_NEAR(Accuracy(&cluster, WIRE_BFLOAT16), whole, 0.003);
    EXPECT_NEAR(Accuracy(&cluster, WIRE_FLOAT16), whole, 0.003);
  }
}

}  // namespace
}  // namespace syncline
