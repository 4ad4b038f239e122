// Goal: checkpoints are scored from their files while their job trains, with
// the figures that the job itself would give; the best one is kept; a damaged
// one is named and costs nothing; a checkpoint is scored on its own; a job
// starts with the values of a weights file. Of tables the same holds, with rows
// that only some checkpoints have, and keys that none has.
// Method: the real executables, with and without ps; figures and files are
// compared bit for bit.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/table_rows.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kClocks = 90;  // no multiple of what saves
constexpr uint64_t kFileBytesMax = 64 << 20;
constexpr int kTableSamples = 1600;

// `open` has as many rows as there are keys, `fixed` 4096.
constexpr char kTablesModel[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
tables (
  int64[N, 2] a, int64[N, 1] b, float[rows, 8] open, float[4096, 4] fixed,
  float[8, 1] w, float[4, 1] v
) => (float[N, 1] logit)
<int64[1] one = {1}>
{
  ga = Gather (open, a)
  sa = ReduceSum <keepdims = 0> (ga, one)
  gb = Gather (fixed, b)
  sb = ReduceSum <keepdims = 0> (gb, one)
  la = MatMul (sa, w)
  lb = MatMul (sb, v)
  logit = Add (la, lb)
})";

// Keys of `open` come for a while and then no more, those of `fixed` once, so
// that few rows change from one checkpoint to the next; one of three in the
// test data is of no sample that is trained on.
void WriteTableSamples(const std::string& folder) {
  std::ofstream train(folder + "/train.csv");
  for (int i = 0; i < kTableSamples; ++i) {
    train << i % 2 << "," << i / 20 << "," << -(i % 37) << "," << i << "\n";
  }
  std::ofstream test(folder + "/test.csv");
  for (int i = 0; i < 192; ++i) {
    test << i % 2 << "," << i / 2 << ","
         << (i % 3 == 0 ? 100'000 + i : -(i % 9)) << "," << 9 * i << "\n";
  }
}

class CheckpointEvaluationTest : public testing::Test {
 protected:
  void SetUp() override {
    WriteTableSamples(data_.path());
    ASSERT_OK(cluster_.Start());
  }

  JobSpec TablesJob(const std::string& name, bool evaluates) {
    JobSpec job;
    job.set_name(name);
    for (const char* weight : {"w", "v"}) {
      InitializerRule* const rule = job.mutable_model()->add_initialize();
      rule->set_pattern(weight);
      rule->set_scheme(InitializerRule::NORMAL);
      rule->set_scale(0.5f);
    }
    DataSpec* const data = job.mutable_data();
    data->mutable_train()->mutable_csv()->set_path("train.csv");
    data->mutable_test()->mutable_csv()->set_path("test.csv");
    for (const auto& [input, field] : {std::pair{"a", "1:3"}, {"b", "3"}}) {
      Feed* const feed = data->add_feeds();
      feed->set_input(input);
      feed->set_field(field);
    }
    data->mutable_label()->set_field("0");
    data->set_shuffle(false);
    job.mutable_loss()->set_kind(LossSpec::SIGMOID_CROSS_ENTROPY);
    job.add_metrics(AUC);
    job.mutable_optimizer()->set_kind(OptimizerSpec::ADAGRAD);
    job.mutable_learning_rate()->set_base(0.05f);
    TableSpec* const open = job.add_tables();
    open->set_name("open");
    open->set_scheme(InitializerRule::NORMAL);
    open->mutable_admission()->set_min_sightings(2);
    open->mutable_expiry()->set_unseen_clocks(30);
    TableSpec* const fixed = job.add_tables();
    fixed->set_name("fixed");
    fixed->mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    job.mutable_training()->set_batch_size(8);
    job.mutable_training()->set_max_clocks(kClocks);
    job.mutable_training()->set_threads(1);
    job.mutable_resources()->set_workers(2);
    job.mutable_resources()->set_ps(2);
    if (!evaluates) return job;
    SaveAndEvaluate(&job);
    job.mutable_export_()->set_best_of(AUC);
    return job;
  }

  JobSpec Job(const std::string& name, bool evaluates,
              Strategy strategy = PARAMETER_SERVER) {
    JobSpec job = DigitsJob();
    job.set_name(name);
    job.set_strategy(strategy);
    job.mutable_data()->mutable_train()->mutable_digits()->set_count(1600);
    job.mutable_data()->mutable_test()->mutable_digits()->set_count(64);
    job.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
    job.mutable_training()->set_batch_size(8);
    job.mutable_training()->set_max_clocks(kClocks);
    job.mutable_training()->set_threads(1);
    job.mutable_resources()->set_workers(2);
    job.mutable_resources()->set_ps(strategy == PARAMETER_SERVER ? 2 : 0);
    if (!evaluates) return job;
    SaveAndEvaluate(&job);
    job.mutable_export_()->set_best_of(LOSS);
    return job;
  }
  void SaveAndEvaluate(JobSpec* job) {
    job->mutable_checkpoint()->set_every_clocks(20);
    // All: the evaluator may be slow, and two are always scored, the first and
    // the last one.
    job->mutable_checkpoint()->set_keep_last(5);
    job->mutable_checkpoint()->set_directory(cluster_.dir().File("ckpt"));
    job->mutable_evaluate()->set_checkpoints(true);
  }
  std::string Write(const JobSpec& job) {
    return WriteJob(cluster_.dir(), job, MlpModel(784, 16, 10));
  }
  std::string Fetch(const JobStatus& job, const std::string& name) {
    const std::string folder =
        cluster_.dir().File(absl::StrCat("out-", job.job_id()));
    EXPECT_OK(cluster_.Synctl({"download", job.job_id(), "--to", folder}));
    return absl::StrCat(folder, "/", name);
  }
  // Rows are in files of checkpoints before it.
  static bool HasOlderFiles(const std::string& checkpoint) {
    for (const auto& file : std::filesystem::directory_iterator(checkpoint)) {
      // "shard-00000-of-00002.CUT.state"
      const std::string name = file.path().filename().string();
      if (std::count(name.begin(), name.end(), '.') == 2) return true;
    }
    return false;
  }
  static void ExpectTheBestIsMarked(const JobStatus& job) {
    std::string best;
    for (const Evaluation& evaluation : job.evaluations()) {
      if (evaluation.best()) best = evaluation.checkpoint();
    }
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(best, "/keep-best")));
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(best, "/manifest")));
  }
  // The job that `synctl evaluate` has made.
  absl::StatusOr<JobStatus> Evaluate(const std::string& checkpoint) {
    const auto alone = cluster_.Synctl({"evaluate", checkpoint});
    if (!alone.ok()) return alone.status();
    const size_t id = alone->err.find("submitted j-");
    if (id == std::string::npos) return absl::UnknownError(alone->err);
    return cluster_.Get(
        alone->err.substr(id + std::string("submitted ").size(), 6));
  }

  TempDir data_;
  TestCluster cluster_{
      {.ps = 2, .workers = 2, .evaluators = 1, .data_root = data_.path()}};
};

TEST_F(CheckpointEvaluationTest, TheFiguresAreThoseOfTheJobItself) {
  ASSERT_OK_AND_ASSIGN(const JobStatus whole,
                       cluster_.Train(Write(Job("whole", false))));
  for (const Strategy strategy : {PARAMETER_SERVER, ALL_REDUCE}) {
    SCOPED_TRACE(Strategy_Name(strategy));
    ASSERT_OK_AND_ASSIGN(const JobStatus job,
                         cluster_.Train(Write(Job("scored", true, strategy))));
    ASSERT_GE(job.evaluations_size(), 2);
    for (const Evaluation& evaluation : job.evaluations()) {
      EXPECT_THAT(evaluation.checkpoint(), HasSubstr(job.job_id()));
      EXPECT_EQ(evaluation.final(), evaluation.clock() == kClocks);
    }
    const Evaluation& last = *job.evaluations().rbegin();
    EXPECT_EQ(last.clock(), kClocks) << "the last one is always scored";
    EXPECT_EQ(last.loss(), whole.evaluations().rbegin()->loss())
        << "bit for bit";
    ExpectTheBestIsMarked(job);
    EXPECT_TRUE(std::filesystem::exists(Fetch(job, "best.onnx")));

    // On its own, by the job's name and by the folder.
    for (const std::string& checkpoint : {job.job_id(), last.checkpoint()}) {
      ASSERT_OK_AND_ASSIGN(const JobStatus alone, Evaluate(checkpoint));
      EXPECT_EQ(alone.state(), SUCCEEDED);
      ASSERT_EQ(alone.evaluations_size(), 1);
      EXPECT_EQ(alone.evaluations(0).loss(), last.loss()) << "bit for bit";
      EXPECT_EQ(alone.evaluations(0).checkpoint(), last.checkpoint());
      EXPECT_EQ(alone.workers(0).member().task().type(), EVALUATOR);
    }
    // With a byte that is another one it has no figures.
    const std::string file =
        absl::StrCat(last.checkpoint(), "/shard-00001-of-00002.state");
    ASSERT_OK_AND_ASSIGN(std::string bytes, ReadFile(file, kFileBytesMax));
    bytes[bytes.size() / 2] ^= 1;
    ASSERT_OK(WriteFileAtomically(file, bytes));
    ASSERT_OK_AND_ASSIGN(const JobStatus damaged, Evaluate(last.checkpoint()));
    EXPECT_EQ(damaged.state(), FAILED);
    EXPECT_EQ(damaged.evaluations_size(), 0);
    EXPECT_THAT(damaged.transitions().rbegin()->reason(), HasSubstr(file));
  }
  ASSERT_OK(cluster_.WaitForFreeMembers(5, absl::Minutes(1)));
}

TEST_F(CheckpointEvaluationTest, RowsOfTablesAreThoseOfTheJobItself) {
  const auto write = [&](const JobSpec& job) {
    return WriteJob(cluster_.dir(), job, kTablesModel);
  };
  for (const Strategy strategy : {PARAMETER_SERVER, HYBRID}) {
    SCOPED_TRACE(Strategy_Name(strategy));
    JobSpec spec = TablesJob("whole", false);
    spec.set_strategy(strategy);
    ASSERT_OK_AND_ASSIGN(const JobStatus whole, cluster_.Train(write(spec)));
    spec = TablesJob("scored", true);
    spec.set_strategy(strategy);
    // The first alone is full, however many cuts find one still being written.
    spec.mutable_checkpoint()->set_full_tables_every(10);
    ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.Train(write(spec)));
    ASSERT_GE(job.evaluations_size(), 2);
    const Evaluation& last = *job.evaluations().rbegin();
    EXPECT_EQ(last.clock(), kClocks);
    EXPECT_EQ(last.loss(), whole.evaluations().rbegin()->loss())
        << "bit for bit";
    EXPECT_EQ(last.auc(), whole.evaluations().rbegin()->auc());
    EXPECT_NE(job.evaluations(0).loss(), last.loss());
    EXPECT_TRUE(HasOlderFiles(last.checkpoint())) << "no chain was read";
    ExpectTheBestIsMarked(job);
    EXPECT_FALSE(std::filesystem::exists(Fetch(job, "best.onnx")))
        << "it would lack the rows";
    // On its own, each: a checkpoint in the middle of a chain too.
    for (const Evaluation& evaluation : job.evaluations()) {
      SCOPED_TRACE(evaluation.checkpoint());
      ASSERT_OK_AND_ASSIGN(const JobStatus alone,
                           Evaluate(evaluation.checkpoint()));
      EXPECT_EQ(alone.state(), SUCCEEDED) << alone.ShortDebugString();
      ASSERT_EQ(alone.evaluations_size(), 1);
      EXPECT_EQ(alone.evaluations(0).loss(), evaluation.loss())
          << "bit for bit";
      EXPECT_EQ(alone.evaluations(0).auc(), evaluation.auc());
    }
  }
}

// The rows are those of the checkpoint that it ends with, and so those of a job
// that ends at its clock.
TEST_F(CheckpointEvaluationTest, AJobWithTablesEndsEarlyByItsCheckpoints) {
  const auto write = [&](const JobSpec& job) {
    return WriteJob(cluster_.dir(), job, kTablesModel);
  };
  JobSpec spec = TablesJob("early", true);
  spec.mutable_training()->set_max_clocks(1'000'000);
  spec.mutable_training()->set_epochs(100'000);
  spec.mutable_stop()->set_metric(LOSS);
  spec.mutable_stop()->set_patience(1);
  spec.mutable_stop()->set_min_change(1000);
  spec.mutable_checkpoint()->set_keep_last(1);
  ASSERT_OK_AND_ASSIGN(const JobStatus early, cluster_.Train(write(spec)));
  EXPECT_THAT(early.transitions().rbegin()->reason(),
              HasSubstr("it ended early: LOSS, "));
  const Evaluation& final = *early.evaluations().rbegin();
  EXPECT_TRUE(final.final());
  spec = TablesJob("as-long", false);
  spec.mutable_training()->set_max_clocks(static_cast<uint64_t>(final.clock()));
  spec.mutable_training()->set_epochs(100'000);
  ASSERT_OK_AND_ASSIGN(const JobStatus as_long, cluster_.Train(write(spec)));
  for (const char* name : {"trained.safetensors", "trained.onnx"}) {
    ASSERT_OK_AND_ASSIGN(const std::string ended,
                         ReadFile(Fetch(early, name), kFileBytesMax));
    ASSERT_OK_AND_ASSIGN(const std::string trained,
                         ReadFile(Fetch(as_long, name), kFileBytesMax));
    EXPECT_TRUE(ended == trained) << name;
  }
  // Rows come in any order.
  const auto rows = [&](const JobStatus& of) {
    const auto file =
        ReadFile(Fetch(of, "tables/open.safetensors"), kFileBytesMax);
    EXPECT_OK(file);
    return TableRowsOf(file.value_or(std::string(8, 0)), 8);
  };
  EXPECT_EQ(rows(early), rows(as_long));
  EXPECT_FALSE(rows(early).empty());
  ASSERT_OK(cluster_.WaitForFreeMembers(5, absl::Minutes(1)));
}

// Many checkpoints come while one is scored, and each is deleted with the next.
TEST_F(CheckpointEvaluationTest, TheBestOneIsThereThoughOnlyTheLatestIsKept) {
  JobSpec spec = Job("marked", true);
  spec.mutable_training()->set_epochs(10);
  spec.mutable_training()->set_max_clocks(10 * kClocks);
  spec.mutable_checkpoint()->set_keep_last(1);
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_.Train(Write(spec)));
  ASSERT_GE(job.evaluations_size(), 1);
  EXPECT_EQ(job.evaluations().rbegin()->clock(), 10 * kClocks);
  ExpectTheBestIsMarked(job);
  ASSERT_OK(cluster_.WaitForFreeMembers(5, absl::Minutes(1)));
}

// Also: the evaluator of a job without ps, as a process of its own.
TEST_F(CheckpointEvaluationTest, AJobWithoutPsEndsEarlyByItsCheckpoints) {
  ASSERT_OK_AND_ASSIGN(const JobStatus usual,
                       cluster_.Train(Write(Job("usual", false, ALL_REDUCE))));
  EXPECT_TRUE(usual.has_evaluator());
  EXPECT_TRUE(usual.evaluations().rbegin()->final());

  JobSpec job = Job("early", true, ALL_REDUCE);
  job.mutable_training()->set_max_clocks(1'000'000);
  job.mutable_training()->set_epochs(100'000);
  job.mutable_stop()->set_metric(LOSS);
  job.mutable_stop()->set_patience(2);
  job.mutable_stop()->set_min_change(1000);
  ASSERT_OK_AND_ASSIGN(const JobStatus early, cluster_.Train(Write(job)));
  ASSERT_EQ(early.evaluations_size(), 3);
  EXPECT_TRUE(early.evaluations(2).final());
  EXPECT_THAT(early.transitions().rbegin()->reason(),
              HasSubstr("it ended early: LOSS, "));
  // Its result is the checkpoint that was evaluated last.
  EXPECT_TRUE(std::filesystem::exists(Fetch(early, "trained.safetensors")));
  ASSERT_OK_AND_ASSIGN(const auto members,
                       cluster_.Synctl({"events", early.job_id()}));
  EXPECT_THAT(members.out, HasSubstr("the last"));
  ASSERT_OK(cluster_.WaitForFreeMembers(5, absl::Minutes(1)));
}

TEST_F(CheckpointEvaluationTest, AJobStartsWithTheValuesOfAFile) {
  ASSERT_OK_AND_ASSIGN(const JobStatus base,
                       cluster_.Train(Write(Job("base", false))));
  const std::string weights = Fetch(base, "trained.safetensors");
  JobSpec job = Job("tuned", false);
  job.mutable_training()->set_max_clocks(1);
  job.mutable_learning_rate()->set_base(1e-30);
  const std::string file = Write(job);
  ASSERT_OK_AND_ASSIGN(
      const auto submitted,
      cluster_.Synctl({"submit", file, "--weights", weights, "--watch"}));
  ASSERT_EQ(submitted.exit.code, 0) << submitted.out << submitted.err;
  ASSERT_OK_AND_ASSIGN(const JobStatus tuned, cluster_.Get("j-0002"));
  ASSERT_OK_AND_ASSIGN(const std::string before,
                       ReadFile(weights, kFileBytesMax));
  ASSERT_OK_AND_ASSIGN(
      const std::string after,
      ReadFile(Fetch(tuned, "trained.safetensors"), kFileBytesMax));
  EXPECT_TRUE(before == after) << "bit for bit";

  ASSERT_OK_AND_ASSIGN(const auto refused,
                       cluster_.Synctl({"submit", file, "--weights", weights,
                                        "--rename", "*=other.*"}));
  EXPECT_NE(refused.exit.code, 0);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("start.weights: none of its"),
                                 HasSubstr("start.names")));
}

}  // namespace
}  // namespace syncline
