// Goal: a job with `restart` outlives the loss of any of its processes, and in
// SYNC the model that it trains has the same bits as that of a job that nothing
// happened to; so has one that was cancelled and resumed, also on another
// number of ps. A checkpoint that cannot be written costs no job, one that
// cannot be read gives way to the one before it, and one that is gone to later
// ones that the scheduler has not heard of. Method: the real executables,
// SIGKILL in the middle of an epoch, once a checkpoint is whole and later steps
// are made.

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kModelBytesMax = 64 << 20;
constexpr int64_t kEvery = 30;
constexpr absl::Duration kPatience = absl::Minutes(4);

// Jobs of two workers and two ps on a cluster with one more of each.
class RestartTest : public testing::Test {
 protected:
  RestartTest()
      : cluster_({.ps = 3, .workers = 3, .step_pause = absl::Milliseconds(6)}) {
  }

  void SetUp() override {
    ASSERT_OK(cluster_.Start());
    folder_ = cluster_.dir().File("checkpoints");
    ASSERT_OK(MakeDirs(folder_));
  }

  // An epoch of 300 clocks, in whose middle each checkpoint but every tenth
  // is made.
  JobSpec Mlp(const std::string& name) const {
    JobSpec job = AdamDigitsJob(/*workers=*/2, /*epochs=*/2);
    job.set_name(name);
    job.mutable_resources()->set_ps(2);
    SaveAndRestart(&job);
    return job;
  }
  static std::string MlpText() { return MlpModel(784, 16, 10); }

  void SaveAndRestart(JobSpec* job) const {
    job->mutable_checkpoint()->set_every_clocks(kEvery);
    job->mutable_checkpoint()->set_directory(folder_);
    job->mutable_checkpoint()->set_keep_last(3);
    job->mutable_restart()->set_max(3);
    job->mutable_restart()->set_backoff_seconds(0.1);
  }

  std::string Submit(const JobSpec& job, const std::string& model) {
    const auto id = cluster_.Submit(WriteJob(cluster_.dir(), job, model));
    EXPECT_OK(id);
    return id.value_or("");
  }
  // Waits until the job has checkpoints at `clock` or later, and has made steps
  // behind the last one.
  JobStatus AwaitCheckpoint(const std::string& id, int64_t clock) {
    absl::StatusOr<JobStatus> job;
    EXPECT_TRUE(Eventually(kPatience, [&] {
      job = cluster_.Get(id);
      return job.ok() && job->state() == RUNNING &&
             job->checkpoints_size() > 0 &&
             job->checkpoints().rbegin()->clock() >= clock &&
             job->progress().clock() > job->checkpoints().rbegin()->clock();
    })) << (job.ok() ? job->ShortDebugString() : job.status().ToString());
    return job.value_or(JobStatus());
  }
  // The trained model's file.
  std::string ModelOf(const std::string& id) {
    const auto end = cluster_.WaitForEnd(id, kPatience);
    EXPECT_OK(end);
    if (!end.ok()) return "";
    EXPECT_EQ(end->state(), SUCCEEDED) << end->ShortDebugString();
    const auto file = cluster_.FetchModel(id);
    EXPECT_OK(file);
    if (!file.ok()) return "";
    const auto bytes = ReadFile(*file, kModelBytesMax);
    EXPECT_OK(bytes);
    return bytes.value_or("");
  }
  // The id in "submitted j-0002 ...".
  static std::string SubmittedIn(absl::string_view out) {
    const std::vector<std::string> words =
        absl::StrSplit(out, absl::ByAnyChar(" \n"));
    const auto said = absl::c_find(words, "submitted");
    return words.end() - said > 1 ? said[1] : "";
  }
  // That of an Mlp job that nothing happened to; trained once.
  std::string Reference() {
    static std::string model;
    if (model.empty()) model = ModelOf(Submit(Mlp("reference"), MlpText()));
    EXPECT_FALSE(model.empty());
    return model;
  }
  // Of the job's checkpoints on the disk, in order.
  std::vector<int64_t> WholeClocks(const std::string& id) const {
    std::vector<int64_t> clocks;
    std::error_code error;
    std::filesystem::directory_iterator entry(absl::StrCat(folder_, "/", id),
                                              error);
    for (; !error && entry != std::filesystem::directory_iterator();
         entry.increment(error)) {
      int64_t clock = 0;
      if (absl::SimpleAtoi(entry->path().filename().string().substr(0, 12),
                           &clock) &&
          std::filesystem::exists(entry->path() / "manifest", error)) {
        clocks.push_back(clock);
      }
    }
    std::sort(clocks.begin(), clocks.end());
    return clocks;
  }
  static std::string DaemonOf(const Participant& participant) {
    const Task& task = participant.member().task();
    return absl::StrCat(absl::AsciiStrToLower(TaskType_Name(task.type())), "-",
                        task.index());
  }
  // The reason of the job's only restart.
  std::string RestartOf(const std::string& id) {
    const auto job = cluster_.Get(id);
    EXPECT_OK(job);
    std::vector<std::string> reasons;
    for (int i = 1; job.ok() && i < job->transitions_size(); ++i) {
      if (job->transitions(i).state() == QUEUED) {
        reasons.push_back(job->transitions(i).reason());
      }
    }
    EXPECT_EQ(reasons.size(), 1u);
    return reasons.empty() ? "" : reasons[0];
  }

  // Kills a member of the job in the middle of an epoch; the job ends as if
  // nothing had been.
  void ExpectOutlived(const JobSpec& job, const std::string& model,
                      const std::string& reference,
                      Participant (*victim)(const JobStatus&)) {
    const std::string id = Submit(job, model);
    const JobStatus before = AwaitCheckpoint(id, 2 * kEvery);
    ASSERT_GT(before.workers_size(), 0);
    const std::string name = DaemonOf(victim(before));
    cluster_.daemon(name).Signal(SIGKILL);
    const std::string trained = ModelOf(id);
    EXPECT_TRUE(trained == reference) << name << " was killed";
    const std::string reason = RestartOf(id);
    EXPECT_THAT(reason, AllOf(HasSubstr("was lost"), HasSubstr("last clock "),
                              HasSubstr("attempt 2 goes on from the checkpoint "
                                        "at clock "),
                              HasSubstr("restart 1 of at most 3")));
    ASSERT_OK(cluster_.StartDaemon(name));
    ASSERT_OK(cluster_.WaitForFreeMembers(6, absl::Seconds(60)));
  }

  TestCluster cluster_;
  std::string folder_;
};

TEST_F(RestartTest, TheLossOfAnyProcessLeavesNoTraceInTheModel) {
  const std::string reference = Reference();
  ExpectOutlived(Mlp("ps"), MlpText(), reference,
                 [](const JobStatus& job) { return job.ps(1); });
  ExpectOutlived(Mlp("worker"), MlpText(), reference,
                 [](const JobStatus& job) { return job.workers(1); });
  ExpectOutlived(Mlp("chief"), MlpText(), reference,
                 [](const JobStatus& job) { return job.workers(0); });
}

// The outer momentum is in the checkpoint, and SGD within a round has no state.
TEST_F(RestartTest, ALocalJobGoesBackWithoutATrace) {
  JobSpec job = Mlp("reference");
  job.mutable_optimizer()->Clear();
  job.mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  job.mutable_consistency()->set_mode(ConsistencySpec::LOCAL);
  LocalSpec* const local = job.mutable_consistency()->mutable_local();
  local->set_steps(3);
  local->mutable_optimizer()->set_kind(OptimizerSpec::NESTEROV);
  local->set_learning_rate(0.7f);
  const std::string reference = ModelOf(Submit(job, MlpText()));
  ASSERT_FALSE(reference.empty());
  job.set_name("local");
  ExpectOutlived(job, MlpText(), reference,
                 [](const JobStatus& status) { return status.workers(1); });
}

TEST_F(RestartTest, ACancelledJobIsResumedWithTheSameBits) {
  const std::string reference = Reference();
  const std::string id = Submit(Mlp("cancelled"), MlpText());
  AwaitCheckpoint(id, 2 * kEvery);
  ASSERT_OK_AND_ASSIGN(const auto early, cluster_.Synctl({"resume", id}));
  EXPECT_EQ(early.exit.code, 1);
  EXPECT_THAT(early.err, HasSubstr("cancel it first"));
  ASSERT_OK(cluster_.Synctl({"cancel", id}));
  ASSERT_OK_AND_ASSIGN(const auto resumed, cluster_.Synctl({"resume", id}));
  EXPECT_EQ(resumed.exit.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out,
              HasSubstr(absl::StrCat("from the checkpoint of ", id)));
  const std::string second = SubmittedIn(resumed.out);
  EXPECT_TRUE(ModelOf(second) == reference);
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.Get(second));
  EXPECT_GE(job.spec().start().clock(), 2 * kEvery);

  // On one ps, from a file.
  JobSpec fewer = Mlp("fewer");
  fewer.mutable_resources()->set_ps(1);
  const std::string file = WriteJob(cluster_.dir(), fewer, MlpText());
  ASSERT_OK_AND_ASSIGN(
      const auto submitted,
      cluster_.Synctl({"submit", file, "--from",
                       absl::StrCat(id, "@", job.spec().start().clock())}));
  EXPECT_EQ(submitted.exit.code, 0) << submitted.err;
  EXPECT_TRUE(ModelOf(SubmittedIn(submitted.out)) == reference);

  // A job that cannot go on from there is refused before it is sent.
  fewer.mutable_training()->set_batch_size(4);
  ASSERT_OK_AND_ASSIGN(
      const auto refused,
      cluster_.Synctl({"submit", WriteJob(cluster_.dir(), fewer, MlpText()),
                       "--from", job.spec().start().checkpoint()}));
  EXPECT_EQ(refused.exit.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("training.batch_size: 4, but"));
}

// It finds the job running (reattach_test has more); the loss of a member while
// it was away sends the job back.
TEST_F(RestartTest, AMemberThatDiesWhileTheSchedulerIsAwaySendsTheJobBack) {
  const std::string reference = Reference();
  const std::string id = Submit(Mlp("scheduler"), MlpText());
  const JobStatus before = AwaitCheckpoint(id, 2 * kEvery);
  ASSERT_GT(before.ps_size(), 1);
  cluster_.daemon("scheduler").Signal(SIGKILL);
  ASSERT_TRUE(cluster_.daemon("scheduler")
                  .WaitUntil(absl::Now() + absl::Seconds(30))
                  .has_value());
  cluster_.daemon(DaemonOf(before.ps(1))).Signal(SIGKILL);
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  EXPECT_TRUE(ModelOf(id) == reference);
  EXPECT_THAT(RestartOf(id),
              AllOf(HasSubstr("does not answer at its address any more; the "
                              "scheduler was restarted at "),
                    HasSubstr("attempt 2 goes on from the checkpoint")));
}

// Those that it knows are deleted for those that are made while it is away, and
// the only process that could tell of them is lost.
TEST_F(RestartTest, CheckpointsThatTheSchedulerHasNotHeardOfAreFound) {
  const std::string reference = Reference();
  JobSpec job = Mlp("unheard");
  job.mutable_checkpoint()->set_keep_last(2);
  job.mutable_restart()->set_max(1);
  const std::string id = Submit(job, MlpText());
  const JobStatus before = AwaitCheckpoint(id, kEvery);
  ASSERT_GT(before.checkpoints_size(), 0);
  cluster_.daemon("scheduler").Signal(SIGKILL);
  ASSERT_TRUE(cluster_.daemon("scheduler")
                  .WaitUntil(absl::Now() + absl::Seconds(30))
                  .has_value());
  // It may have heard of one more.
  const int64_t known = before.checkpoints().rbegin()->clock() + kEvery;
  ASSERT_TRUE(Eventually(kPatience, [&] {
    const std::vector<int64_t> clocks = WholeClocks(id);
    return clocks.size() >= 2 && clocks[0] > known;
  }));
  cluster_.daemon(DaemonOf(before.workers(0))).Signal(SIGKILL);
  ASSERT_OK(cluster_.StartDaemon("scheduler"));
  EXPECT_TRUE(ModelOf(id) == reference);
  ASSERT_OK_AND_ASSIGN(const JobStatus after, cluster_.Get(id));
  EXPECT_EQ(after.attempt(), 3u);
  EXPECT_THAT(after.ShortDebugString(),
              AllOf(HasSubstr(" is gone, and later ones are there: ps "),
                    HasSubstr(": it was deleted; the last whole one there"),
                    HasSubstr("(the last one there)")));
}

// Workers are cut where they are, and epochs end among the checkpoints.
TEST_F(RestartTest, AnAsynchronousJobGoesBackToo) {
  JobSpec job = Mlp("async");
  job.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  job.mutable_data()->mutable_test()->mutable_digits()->set_count(64);
  job.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  const std::string id = Submit(job, MlpText());
  const JobStatus before = AwaitCheckpoint(id, 2 * kEvery);
  ASSERT_GT(before.workers_size(), 1);
  cluster_.daemon(DaemonOf(before.workers(1))).Signal(SIGKILL);
  EXPECT_FALSE(ModelOf(id).empty());
  EXPECT_THAT(RestartOf(id),
              HasSubstr("attempt 2 goes on from the checkpoint"));
  ASSERT_OK_AND_ASSIGN(const JobStatus after, cluster_.Get(id));
  ASSERT_EQ(after.evaluations_size(), 2);
  EXPECT_TRUE(after.evaluations(1).final());
}

TEST_F(RestartTest, AFolderThatIsGoneCostsNoJob) {
  const std::string id = Submit(Mlp("gone"), MlpText());
  AwaitCheckpoint(id, kEvery);
  // Its place is taken by a file, so that it cannot be made again.
  std::filesystem::rename(folder_, folder_ + "-away");
  std::ofstream(folder_) << "in the way";
  absl::StatusOr<JobStatus> job;
  EXPECT_TRUE(Eventually(kPatience, [&] {
    job = cluster_.Get(id);
    return job.ok() && (job->state() != RUNNING ||
                        job->waiting_for().find("no checkpoint: at clock ") !=
                            std::string::npos);
  }));
  ASSERT_OK(job);
  EXPECT_THAT(job->waiting_for(), HasSubstr("no checkpoint: at clock "));
  EXPECT_FALSE(ModelOf(id).empty());
}

TEST_F(RestartTest, AnUnreadableCheckpointGivesWayToTheOneBefore) {
  const std::string reference = Reference();
  const std::string id = Submit(Mlp("damaged"), MlpText());
  AwaitCheckpoint(id, 3 * kEvery);
  // Stopped, it makes no more of them.
  ASSERT_OK_AND_ASSIGN(const JobStatus running, cluster_.Get(id));
  const std::string chief = DaemonOf(running.workers(0));
  cluster_.daemon(chief).Signal(SIGSTOP);
  ASSERT_OK_AND_ASSIGN(const JobStatus before, cluster_.Get(id));
  ASSERT_GE(before.checkpoints_size(), 2);
  // All but the oldest one.
  const std::filesystem::path good = before.checkpoints(0).path();
  for (const auto& folder :
       std::filesystem::directory_iterator(good.parent_path())) {
    if (folder.path() == good) continue;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder.path())) {
      if (entry.path().filename() == "manifest") continue;
      std::filesystem::resize_file(
          entry.path(), std::filesystem::file_size(entry.path()) / 2);
    }
  }
  cluster_.daemon(chief).Signal(SIGKILL);
  EXPECT_TRUE(ModelOf(id) == reference);
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.Get(id));
  EXPECT_THAT(job.ShortDebugString(), HasSubstr("cannot be read"));
  ASSERT_OK_AND_ASSIGN(const auto shown, cluster_.Synctl({"get", id}));
  EXPECT_THAT(shown.out, AllOf(HasSubstr("warning"), HasSubstr("saved")));
}

// Ids of a table with Adam for each row.
class TableRestartTest : public RestartTest {
 protected:
  static constexpr char kBags[] = R"(
    <ir_version: 8, opset_import: ["" : 13]>
    bag (int64[N, 3] ids, float[500, 4] emb, float[4, 1] w, float[1] b)
        => (float[N, 1] logit)
    <int64[1] one = {1}>
    {
      items = Gather (emb, ids)
      sum = ReduceSum <keepdims = 0> (items, one)
      logit = Gemm (sum, w, b)
    })";

  JobSpec Bags(const std::string& name) {
    const std::string file = cluster_.dir().File("train.csv");
    std::ofstream csv(file);
    Random random(7);
    for (int i = 0; i < 4'800; ++i) {
      std::string line;
      uint64_t sum = 0;
      for (int id = 0; id < 3; ++id) {
        const uint64_t key = random.Below(500);
        sum += key;
        absl::StrAppend(&line, ",", key);
      }
      csv << (sum > 750 ? 1 : 0) << line << "\n";
    }
    JobSpec job;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        R"pb(
          model {
            path: "bag.onnxtxt"
            initialize { pattern: "w" scheme: CONSTANT value: 0.5 }
            initialize { pattern: "b" scheme: ZEROS }
          }
          data {
            feeds { input: "ids" field: "1:4" }
            label { field: "0" }
          }
          loss { kind: SIGMOID_CROSS_ENTROPY }
          optimizer { kind: ADAM }
          learning_rate { base: 0.01 }
          tables { name: "emb" scheme: XAVIER_UNIFORM }
          training { batch_size: 8 seed: 7 threads: 1 epochs: 3 }
          resources { workers: 2 ps: 2 }
        )pb",
        &job));
    job.set_name(name);
    job.mutable_data()->mutable_train()->mutable_csv()->set_path(file);
    SaveAndRestart(&job);
    return job;
  }
};

TEST_F(TableRestartTest, RowsAndTheirStateGoOnToo) {
  const std::string reference = ModelOf(Submit(Bags("reference"), kBags));
  ASSERT_FALSE(reference.empty());
  ExpectOutlived(Bags("ps"), kBags, reference,
                 [](const JobStatus& job) { return job.ps(0); });
}

}  // namespace
}  // namespace syncline
