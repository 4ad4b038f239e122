// Goal: a HYBRID job on a real cluster ends with the bytes of the same job by
// ps. When a worker or a ps is killed in the middle, it fails with 138 and a
// message that names address and clock; with `restart` it goes back to its last
// checkpoint, which has both its parts, and ends with the same bytes. Method:
// the real executables, and the wide-and-deep example on generated click logs.

#include <csignal>
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

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kFileBytesMax = 64 << 20;
constexpr int kWorkers = 2;
constexpr int kPs = 2;
constexpr absl::Duration kPatience = absl::Minutes(5);

class HybridTest : public ::testing::Test {
 protected:
  HybridTest()
      : cluster_({.ps = kPs, .workers = kWorkers, .data_root = data_.path()}) {}
  void SetUp() override {
    ASSERT_OK(cluster_.Start());
    ASSERT_NO_FATAL_FAILURE(Generate("train.tsv", 0, 6000));
    ASSERT_NO_FATAL_FAILURE(Generate("test.tsv", 6000, 1000));
  }
  void Generate(const std::string& name, int first, int rows) {
    ASSERT_OK_AND_ASSIGN(
        const auto result,
        cluster_.Synctl({"generate", "criteo", "--rows", absl::StrCat(rows),
                         "--first-row", absl::StrCat(first), "--vocabulary",
                         "2000", "--seed", "1", "--out", data_.File(name)}));
    ASSERT_EQ(result.exit.code, 0) << result.err;
  }

  // The wide-and-deep example in SYNC, with Adam for its dense part; row-wise
  // Adagrad is that of its deep table.
  JobSpec WideAndDeep(const std::string& name, Strategy strategy) {
    const std::string path = absl::StrCat(
        SourceDir(), "/deploy/examples/ctr/wide_and_deep.textproto");
    const auto text = ReadFile(path, kFileBytesMax);
    EXPECT_OK(text.status());
    const auto parsed = ParseJobSpec(*text, path);
    EXPECT_OK(parsed.status());
    JobSpec job = *parsed;
    job.set_name(name);
    job.set_strategy(strategy);
    job.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
    job.mutable_optimizer()->Clear();
    job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    job.mutable_training()->set_batch_size(32);
    job.mutable_training()->set_threads(1);
    job.mutable_training()->set_epochs(2);
    job.mutable_resources()->set_workers(kWorkers);
    job.mutable_resources()->set_ps(kPs);
    job.mutable_limits()->set_step_timeout_seconds(10);
    return job;
  }
  std::string File(const JobSpec& job) {
    const auto model = ReadFile(
        absl::StrCat(SourceDir(), "/deploy/examples/ctr/wide_and_deep.onnxtxt"),
        kFileBytesMax);
    EXPECT_OK(model.status());
    return WriteJob(cluster_.dir(), job, *model);
  }
  absl::StatusOr<std::string> Submit(const JobSpec& job) {
    return cluster_.Submit(File(job));
  }

  // The result of a job that has succeeded: its dense part, and the scores of
  // an evaluation, which reads the rows as well.
  struct Trained {
    std::string model;
    double loss = 0;
    double auc = 0;

    friend bool operator==(const Trained&, const Trained&) = default;
  };
  Trained TrainedBy(const std::string& id) {
    Trained trained;
    const auto end = cluster_.WaitForEnd(id, kPatience);
    EXPECT_OK(end.status());
    if (!end.ok()) return trained;
    EXPECT_EQ(end->state(), SUCCEEDED) << end->ShortDebugString();
    if (end->evaluations_size() == 0) return trained;
    trained.loss = end->evaluations().rbegin()->loss();
    trained.auc = end->evaluations().rbegin()->auc();
    const auto file = cluster_.FetchModel(id);
    EXPECT_OK(file.status());
    const auto bytes =
        file.ok() ? ReadFile(*file, kFileBytesMax) : file.status();
    if (bytes.ok()) trained.model = *bytes;
    return trained;
  }
  Trained Train(const JobSpec& job) {
    const auto id = Submit(job);
    EXPECT_OK(id.status());
    return id.ok() ? TrainedBy(*id) : Trained();
  }

  static std::string DaemonOf(const Participant& of) {
    const Task& task = of.member().task();
    const char* const role = task.type() == PS      ? "ps-"
                             : task.type() == CHIEF ? "chief-"
                                                    : "worker-";
    return absl::StrCat(role, task.index());
  }

  TempDir data_;
  TestCluster cluster_;
};

TEST_F(HybridTest, EndsWithTheBytesOfAJobByPs) {
  const Trained by_ps = Train(WideAndDeep("by-ps", PARAMETER_SERVER));
  ASSERT_FALSE(by_ps.model.empty());
  EXPECT_TRUE(Train(WideAndDeep("hybrid", HYBRID)) == by_ps);
}

TEST_F(HybridTest, AKilledWorkerOrPsEndsTheJobAndIsNamed) {
  for (const bool loses_ps : {false, true}) {
    JobSpec job = WideAndDeep(loses_ps ? "ps" : "worker", HYBRID);
    job.mutable_training()->set_epochs(10000);
    ASSERT_OK_AND_ASSIGN(const std::string id, Submit(job));
    ASSERT_OK_AND_ASSIGN(const JobStatus running,
                         cluster_.WaitForClock(id, 20, absl::Minutes(2)));
    const Participant& lost = loses_ps ? running.ps(1) : running.workers(1);
    cluster_.daemon(DaemonOf(lost)).Signal(SIGKILL);
    ASSERT_OK_AND_ASSIGN(const JobStatus ended,
                         cluster_.WaitForEnd(id, kPatience));
    EXPECT_EQ(ended.state(), FAILED);
    EXPECT_EQ(ended.exit_code(), 138);
    const std::string reason =
        ended.transitions(ended.transitions_size() - 1).reason();
    std::cout << reason << std::endl;
    EXPECT_THAT(reason, AllOf(HasSubstr(lost.member().address()),
                              HasSubstr(loses_ps ? "ps 1 " : "worker "),
                              HasSubstr("clock ")));
    ASSERT_OK(cluster_.StartDaemon(DaemonOf(lost)));
    ASSERT_OK(cluster_.WaitForFreeMembers(kWorkers + kPs, absl::Minutes(1)));
  }
}

TEST_F(HybridTest, ALossLeavesNoTraceInWhatIsTrained) {
  const auto saving = [&](const std::string& name, Strategy strategy) {
    JobSpec job = WideAndDeep(name, strategy);
    // The job outlasts a look at it on any machine.
    job.mutable_training()->set_epochs(8);
    job.mutable_checkpoint()->set_every_clocks(20);
    job.mutable_checkpoint()->set_directory(cluster_.dir().File("checkpoints"));
    job.mutable_restart()->set_max(3);
    job.mutable_restart()->set_backoff_seconds(0.1);
    return job;
  };
  const Trained by_ps = Train(saving("by-ps", PARAMETER_SERVER));
  ASSERT_FALSE(by_ps.model.empty());
  for (const bool loses_ps : {true, false}) {
    SCOPED_TRACE(loses_ps ? "a ps is lost" : "a worker is lost");
    ASSERT_OK_AND_ASSIGN(const std::string id,
                         Submit(saving(loses_ps ? "ps" : "worker", HYBRID)));
    absl::StatusOr<JobStatus> job;
    ASSERT_TRUE(Eventually(kPatience, [&] {
      job = cluster_.Get(id);
      return job.ok() && job->state() == RUNNING && job->checkpoints_size() > 0;
    })) << (job.ok() ? job->ShortDebugString() : job.status().ToString());
    const std::string name = DaemonOf(loses_ps ? job->ps(1) : job->workers(1));
    cluster_.daemon(name).Signal(SIGKILL);
    ASSERT_OK(cluster_.StartDaemon(name));
    EXPECT_TRUE(TrainedBy(id) == by_ps);
    ASSERT_OK_AND_ASSIGN(const JobStatus after, cluster_.Get(id));
    EXPECT_THAT(after.ShortDebugString(),
                HasSubstr("attempt 2 goes on from the checkpoint at clock "));
    ASSERT_OK(cluster_.WaitForFreeMembers(kWorkers + kPs, absl::Minutes(1)));
  }
  // synctl reads both parts.
  ASSERT_OK_AND_ASSIGN(const JobStatus last, cluster_.Get("j-0003"));
  ASSERT_GT(last.checkpoints_size(), 0);
  const std::string path = last.checkpoints().rbegin()->path();
  for (const char* const command : {"show", "verify"}) {
    ASSERT_OK_AND_ASSIGN(const auto looked,
                         cluster_.Synctl({"checkpoints", command, path}));
    EXPECT_EQ(looked.exit.code, 0) << looked.err;
    std::cout << looked.out << std::endl;
  }
}

}  // namespace
}  // namespace syncline
