// Goal: whatever is wrong with a job, its author reads one clear message that
// names the field, file and line or task, before anything starts where that is
// possible, and the cluster takes the next job. Method: a table of bad jobs
// against one cluster with the real synctl; after each, a good job.

#include <zlib.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
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

class BadInputTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    data_ = std::make_unique<TempDir>();
    cluster_ = std::make_unique<TestCluster>(TestCluster::Options{
        .ps = 1, .workers = 2, .data_root = data_->path()});
    ASSERT_OK(cluster_->Start());
  }
  static void TearDownTestSuite() {
    cluster_.reset();
    data_.reset();
  }

  void TearDown() override {
    const auto next = cluster_->Train(
        WriteJob(cluster_->dir(), DigitsJob(), MlpModel(784, 32, 10)));
    EXPECT_TRUE(next.ok()) << "the next job does not run: " << next.status();
  }

  static absl::StatusOr<RunningProgram::Result> SubmitFile(
      const std::string& file) {
    return cluster_->Synctl({"submit", file, "--watch"}, absl::Seconds(60));
  }
  static absl::StatusOr<RunningProgram::Result> Submit(
      const JobSpec& job, const std::string& model) {
    return SubmitFile(WriteJob(cluster_->dir(), job, model));
  }

  // Refused by synctl itself: nothing was submitted.
  static void ExpectRefused(
      const absl::StatusOr<RunningProgram::Result>& result,
      const testing::Matcher<const std::string&>& message) {
    ASSERT_OK(result);
    EXPECT_EQ(result->exit.code, 1);
    EXPECT_THAT(result->err, message);
    EXPECT_EQ(result->out, "") << "it must not come as far as a job id";
  }

  // Only the workers could know: the job fails before it runs.
  static void ExpectFailed(
      const absl::StatusOr<RunningProgram::Result>& result,
      const testing::Matcher<const std::string&>& message) {
    ASSERT_OK(result);
    EXPECT_EQ(result->exit.code, 1);
    EXPECT_THAT(result->err, message);
    EXPECT_THAT(result->out, testing::Not(HasSubstr("running\n")));
  }

  // Three features and a label per line.
  static JobSpec CsvJob(const std::string& content, const std::string& file) {
    data_->Write(file, content);
    JobSpec job = DigitsJob();
    job.mutable_data()->mutable_train()->mutable_csv()->set_path(file);
    Feed* feed = job.mutable_data()->mutable_feeds(0);
    feed->set_field("0:3");
    job.mutable_data()->mutable_label()->set_field("3");
    return job;
  }

  static std::unique_ptr<TempDir> data_;
  static std::unique_ptr<TestCluster> cluster_;
};

std::unique_ptr<TempDir> BadInputTest::data_;
std::unique_ptr<TestCluster> BadInputTest::cluster_;

TEST_F(BadInputTest, UnknownFieldsAreNamedWithFileAndLine) {
  const std::string file = cluster_->dir().Write(
      "typo.textproto", "name: \"x\"\nlerning_rate { base: 1 }\ntraning {}\n");
  ExpectRefused(SubmitFile(file),
                AllOf(HasSubstr("typo.textproto:2:"), HasSubstr("lerning_rate"),
                      HasSubstr("typo.textproto:3:"), HasSubstr("traning")));
}

TEST_F(BadInputTest, AllProblemsOfAJobComeAtOnce) {
  JobSpec job = DigitsJob();
  job.mutable_learning_rate()->set_base(-1);
  job.mutable_optimizer()->set_momentum(2);
  job.mutable_training()->set_batch_size(5000000);
  job.set_strategy(HYBRID);
  ExpectRefused(
      Submit(job, MlpModel(784, 32, 10)),
      AllOf(HasSubstr("learning_rate.base"), HasSubstr("optimizer.momentum"),
            HasSubstr("training.batch_size"), HasSubstr("strategy"),
            HasSubstr("digits.textproto:")));
}

// Expects the problems of the parser, the validator, the model's check and
// their fit, and none that only follows from another.
void ExpectAllLayers(const std::string& err, const std::string& file) {
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripSuffix(err, "\n"), '\n');
  EXPECT_THAT(
      lines,
      testing::UnorderedElementsAre(
          AllOf(HasSubstr(file + ":2:"), HasSubstr("lerning_rate")),
          AllOf(HasSubstr(file + ":3:"), HasSubstr("epochs")),
          AllOf(HasSubstr(file + ":4: training.batch_size"),
                HasSubstr("at most")),
          AllOf(HasSubstr(file + ":7: data.feeds[0].input"),
                HasSubstr("'pixels' is not an input")),
          AllOf(HasSubstr(file + ":7: data.feeds"),
                HasSubstr("'x' is not fed")),
          AllOf(HasSubstr("all.onnxtxt"), HasSubstr("Hardmax")),
          AllOf(HasSubstr("all.onnxtxt"), HasSubstr("Gemm"), HasSubstr("783")),
          AllOf(HasSubstr("all.onnxtxt"), HasSubstr("cycle"))));
}

constexpr char kAllWrongModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
bad (float[N,784] x, float[783,10] w, float[10] b) => (float[N,10] y) {
  h = Gemm(x, w, b)
  e = Hardmax(x)
  a = Add(h, c)
  c = Relu(a)
  y = Identity(c)
}
)";

TEST_F(BadInputTest, NoLayerHidesAnother) {
  cluster_->dir().Write("all.onnxtxt", kAllWrongModel);
  const std::string file = cluster_->dir().Write("all.textproto", R"(name: "all"
lerning_rate { base: 1 }
training { epochs: "three"
  batch_size: 9999999 }
model { path: "all.onnxtxt" initialize { pattern: "*" scheme: ZEROS } }
data { train { digits { count: 10 } }
  feeds { input: "pixels" field: "image" } }
loss { kind: SOFTMAX_CROSS_ENTROPY }
optimizer { kind: SGD }
)");
  const auto result = SubmitFile(file);
  ExpectRefused(result, HasSubstr("all.textproto"));
  ExpectAllLayers(result->err, "all.textproto");
}

TEST_F(BadInputTest, NoLayerHidesAnotherInJson) {
  cluster_->dir().Write("all.onnxtxt", kAllWrongModel);
  const std::string file = cluster_->dir().Write("all.json", R"({"name": "all",
"lerning_rate": {"base": 1},
"training": {"epochs": "three",
  "batchSize": 9999999},
"model": {"path": "all.onnxtxt", "initialize": [{"pattern": "*", "scheme": "ZEROS"}]},
"data": {"train": {"digits": {"count": 10}},
  "feeds": [{"input": "pixels", "field": "image"}]},
"loss": {"kind": "SOFTMAX_CROSS_ENTROPY"},
"optimizer": {"kind": "SGD"}})");
  const auto result = SubmitFile(file);
  ExpectRefused(result, HasSubstr("all.json"));
  ExpectAllLayers(result->err, "all.json");
}

TEST_F(BadInputTest, AModelFileThatIsNotThere) {
  JobSpec job = DigitsJob();
  const std::string file =
      WriteJob(cluster_->dir(), job, MlpModel(784, 32, 10));
  ASSERT_OK(RemoveTree(cluster_->dir().File("digits.onnxtxt")));
  ExpectRefused(SubmitFile(file),
                AllOf(HasSubstr("model.path"), HasSubstr("digits.onnxtxt"),
                      HasSubstr("No such file")));
}

TEST_F(BadInputTest, AnOperatorThatIsNotSupported) {
  ExpectRefused(Submit(DigitsJob(), R"(<ir_version: 8, opset_import: ["" : 13]>
bad (float[N,784] x, float[784,10] w1, float[10] b1) => (float[N,10] y) {
  h = Gemm(x, w1, b1)
  y = Hardmax(h)
}
)"),
                AllOf(HasSubstr("Hardmax"), HasSubstr("digits.onnxtxt")));
}

TEST_F(BadInputTest, ACycle) {
  ExpectRefused(Submit(DigitsJob(), R"(<ir_version: 8, opset_import: ["" : 13]>
bad (float[N,784] x, float[784,10] w1, float[10] b1) => (float[N,10] y) {
  h = Gemm(x, w1, b1)
  a = Add(h, c)
  c = Relu(a)
  y = Identity(c)
}
)"),
                HasSubstr("cycle"));
}

TEST_F(BadInputTest, ShapesThatDoNotFit) {
  ExpectRefused(Submit(DigitsJob(), R"(<ir_version: 8, opset_import: ["" : 13]>
bad (float[N,784] x, float[783,10] w1, float[10] b1) => (float[N,10] y) {
  y = Gemm(x, w1, b1)
}
)"),
                AllOf(HasSubstr("Gemm"), HasSubstr("783")));
}

TEST_F(BadInputTest, AMissingDataFileIsNamedByEveryWorker) {
  JobSpec job = DigitsJob();
  job.mutable_data()->mutable_train()->mutable_csv()->set_path("not-there.csv");
  job.mutable_data()->mutable_feeds(0)->set_field("0:784");
  job.mutable_data()->mutable_label()->set_field("784");
  job.mutable_resources()->set_workers(2);
  ExpectFailed(Submit(job, MlpModel(784, 32, 10)),
               AllOf(HasSubstr("not-there.csv"), HasSubstr("chief 0 at "),
                     HasSubstr("worker 0 at ")));
}

TEST_F(BadInputTest, ALabelOutOfRange) {
  ExpectFailed(
      Submit(CsvJob("1,2,3,0\n1,2,3,10\n", "label.csv"), MlpModel(3, 4, 10)),
      AllOf(HasSubstr("label.csv:2: label 10 "), HasSubstr("10 classes")));
}

TEST_F(BadInputTest, NaNInTheData) {
  ExpectFailed(Submit(CsvJob("1,2,3,0\n1,2,3,1\n1,nan,3,0\n", "nan.csv"),
                      MlpModel(3, 4, 10)),
               AllOf(HasSubstr("nan.csv:3"), HasSubstr("nan")));
}

TEST_F(BadInputTest, ATruncatedGzip) {
  // An IDX file of 100 images of 28x28, compressed and cut in half.
  std::string idx("\0\0\x08\x03\0\0\0\x64\0\0\0\x1c\0\0\0\x1c", 16);
  for (int i = 0; i < 100 * 784; ++i) {
    idx.push_back(static_cast<char>(i * 31 % 251));
  }
  const std::string path = data_->File("images.gz");
  gzFile gz = gzopen(path.c_str(), "wb");
  gzwrite(gz, idx.data(), static_cast<unsigned>(idx.size()));
  gzclose(gz);
  ASSERT_OK_AND_ASSIGN(const std::string whole, ReadFile(path, 1 << 20));
  data_->Write("images.gz", whole.substr(0, whole.size() / 2));
  data_->Write("labels", std::string("\0\0\x08\x01\0\0\0\x64", 8) +
                             std::string(100, '\1'));
  JobSpec job = DigitsJob();
  auto* source = job.mutable_data()->mutable_train()->mutable_idx();
  source->set_images("images.gz");
  source->set_labels("labels");
  ExpectFailed(Submit(job, MlpModel(784, 32, 10)),
               AllOf(HasSubstr("images.gz"), HasSubstr("truncated")));
}

TEST_F(BadInputTest, AnOversizedJobFile) {
  const std::string file = cluster_->dir().Write(
      "huge.textproto", "name: \"huge\"\n#" + std::string(5 << 20, '-'));
  ExpectRefused(SubmitFile(file), HasSubstr("huge.textproto"));
}

TEST_F(BadInputTest, ALargeFileThatIsNoModel) {
  // Larger than gRPC's default message: refused by what it is.
  const std::string junk(6 << 20, 'x');
  ExpectRefused(Submit(DigitsJob(), junk), HasSubstr("digits.onnxtxt"));
}

}  // namespace
}  // namespace syncline
