// Goal: click-through models with embedding tables learn through the cluster
// what there is to be learned. Method: generated click logs whose hidden
// teacher is known; the example jobs, asynchronous and with bounded staleness,
// two ps and three workers, must order held-out rows nearly as well as the
// teacher itself.

#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr int kTrainRows = 300'000;
constexpr int kTestRows = 30'000;
// A tenth of the generator's default goes with a tenth of the README's rows.
constexpr int kVocabulary = 1'000'000;
constexpr double kOfTeacherMin = 0.97;

class CtrAccuracyTest : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    data_ = std::make_unique<TempDir>();
    cluster_ = std::make_unique<TestCluster>(TestCluster::Options{
        .ps = 2, .workers = 3, .data_root = data_->path()});
    ASSERT_OK(cluster_->Start());
    ASSERT_NO_FATAL_FAILURE(Generate("train.tsv", 0, kTrainRows));
    ASSERT_NO_FATAL_FAILURE(Generate("test.tsv", kTrainRows, kTestRows));
  }
  static void TearDownTestSuite() {
    cluster_.reset();
    data_.reset();
  }

  // Leaves the teacher's AUC on the rows in teacher_auc_.
  static void Generate(const std::string& name, int first, int rows) {
    ASSERT_OK_AND_ASSIGN(
        const auto result,
        cluster_->Synctl({"generate", "criteo", "--rows", absl::StrCat(rows),
                          "--first-row", absl::StrCat(first), "--vocabulary",
                          absl::StrCat(kVocabulary), "--seed", "1", "--out",
                          absl::StrCat(data_->path(), "/", name), "--output",
                          "json"}));
    ASSERT_EQ(result.exit.code, 0) << result.err << result.out;
    google::protobuf::Struct said;
    ASSERT_TRUE(
        google::protobuf::util::JsonStringToMessage(result.out, &said).ok());
    teacher_auc_ = said.fields().at("teacher_auc").number_value();
  }

  static std::unique_ptr<TempDir> data_;
  static std::unique_ptr<TestCluster> cluster_;
  static double teacher_auc_;
};

std::unique_ptr<TempDir> CtrAccuracyTest::data_;
std::unique_ptr<TestCluster> CtrAccuracyTest::cluster_;
double CtrAccuracyTest::teacher_auc_ = 0;

TEST_P(CtrAccuracyTest, OrdersHeldOutRowsNearlyLikeTheTeacher) {
  ASSERT_OK_AND_ASSIGN(const JobStatus job,
                       cluster_->Train(absl::StrCat(
                           SourceDir(), "/deploy/examples/ctr/", GetParam())));
  const Evaluation& last = *job.evaluations().rbegin();
  EXPECT_EQ(last.samples(), static_cast<uint64_t>(kTestRows));
  EXPECT_GE(last.auc(), kOfTeacherMin * teacher_auc_);
  // Predicted clicks are about as many as there are.
  EXPECT_NEAR(last.calibration(), 1, 0.15);
  std::cout << GetParam() << ": AUC " << last.auc() << ", "
            << last.auc() / teacher_auc_ << " of the teacher's " << teacher_auc_
            << ", calibration " << last.calibration() << std::endl;
}

INSTANTIATE_TEST_SUITE_P(Examples, CtrAccuracyTest,
                         testing::Values("wide_and_deep.textproto",
                                         "dlrm.textproto"),
                         [](const testing::TestParamInfo<const char*>& param) {
                           const std::string name = param.param;
                           return name.substr(0, name.find('.'));
                         });

}  // namespace
}  // namespace syncline
