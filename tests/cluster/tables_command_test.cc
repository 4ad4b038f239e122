// Goal: `synctl tables` says where a job's rows are, how often each tier had
// what was asked for, which keys are hottest and why others have no row; while
// the job runs and after it. Method: real processes, a table that does not fit
// into its memory, one that admits and expires, keys of which the test knows
// how often they come.

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr int kSamples = 12'000;
constexpr int64_t kHot = -77;    // in every sample
constexpr int64_t kDaily = 500;  // one of ten is in a sample

constexpr char kModel[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
tables (
  int64[N, 2] a, int64[N, 2] b, float[rows, 128] large, float[rows, 4] choosy,
  float[128, 1] w, float[4, 1] v
) => (float[N, 1] logit)
<int64[1] one = {1}>
{
  ga = Gather (large, a)
  sa = ReduceSum <keepdims = 0> (ga, one)
  gb = Gather (choosy, b)
  sb = ReduceSum <keepdims = 0> (gb, one)
  la = MatMul (sa, w)
  lb = MatMul (sb, v)
  logit = Add (la, lb)
})";

// Of each table a sample has a key that comes back and one that does not in the
// same pass.
void WriteSamples(const std::string& path) {
  std::ofstream file(path);
  for (int i = 0; i < kSamples; ++i) {
    file << i % 2 << "," << kHot << "," << 1000 + i << "," << kDaily + i % 10
         << "," << 1'000'000 + i << "\n";
  }
}

JobSpec MakeJob(const std::string& name) {
  JobSpec job;
  job.set_name(name);
  for (const char* weight : {"w", "v"}) {
    InitializerRule* rule = job.mutable_model()->add_initialize();
    rule->set_pattern(weight);
    rule->set_scheme(InitializerRule::CONSTANT);
    rule->set_value(0.5f);
  }
  DataSpec* data = job.mutable_data();
  data->mutable_train()->mutable_csv()->set_path("train.csv");
  for (const auto& [input, field] : {std::pair{"a", "1:3"}, {"b", "3:5"}}) {
    Feed* feed = data->add_feeds();
    feed->set_input(input);
    feed->set_field(field);
  }
  data->mutable_label()->set_field("0");
  job.mutable_loss()->set_kind(LossSpec::SIGMOID_CROSS_ENTROPY);
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAGRAD);
  job.mutable_learning_rate()->set_base(0.01f);
  TableSpec* large = job.add_tables();
  large->set_name("large");
  large->set_memory_bytes(4 << 20);  // the least that spills
  large->set_disk_bytes(256 << 20);
  TableSpec* choosy = job.add_tables();
  choosy->set_name("choosy");
  choosy->set_memory_bytes(4 << 20);
  choosy->mutable_admission()->set_min_sightings(2);
  choosy->mutable_expiry()->set_unseen_clocks(5);
  job.mutable_training()->set_batch_size(60);
  job.mutable_training()->set_epochs(1);
  job.mutable_resources()->set_workers(2);
  job.mutable_resources()->set_ps(2);
  return job;
}

class TablesCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    WriteSamples(data_.File("train.csv"));
    cluster_ = std::make_unique<TestCluster>(TestCluster::Options{
        .ps = 2,
        .workers = 2,
        .data_root = data_.path(),
        .ps_flags = {absl::StrCat("--spill-dir=", spill_.path())}});
    ASSERT_OK(cluster_->Start());
  }
  std::string Text(const std::string& job_id) {
    const auto result = cluster_->Synctl({"tables", job_id});
    EXPECT_OK(result.status());
    EXPECT_EQ(result->exit.code, 0) << result->err;
    return result->out;
  }
  JobTableStatus Json(const std::string& job_id) {
    const auto result =
        cluster_->Synctl({"tables", job_id, "--output", "json"});
    EXPECT_OK(result.status());
    JobTableStatus tables;
    EXPECT_TRUE(
        google::protobuf::util::JsonStringToMessage(result->out, &tables).ok())
        << result->out;
    return tables;
  }

  const TempDir data_;
  const TempDir spill_;
  std::unique_ptr<TestCluster> cluster_;
};

using Table = ShardStatus::Table;

// A count of both ps.
uint64_t Sum(const JobTableStatus& status, int table,
             uint64_t (Table::*count)() const) {
  uint64_t sum = 0;
  for (const auto& ps : status.ps()) sum += (ps.tables(table).*count)();
  return sum;
}

// Pushes of `key` as its ps counts them; 0: not among the hottest.
uint64_t PushesOf(const JobTableStatus& status, int table, int64_t key) {
  for (const auto& ps : status.ps()) {
    for (const Table::HotKey& hot : ps.tables(table).hot_keys()) {
      if (hot.key() == key) return hot.pushes();
    }
  }
  return 0;
}

TEST_F(TablesCommandTest, SaysWhereRowsAreWhileAJobRunsAndAfterIt) {
  JobSpec job = MakeJob("running");
  job.mutable_training()->set_epochs(1'000'000);
  ASSERT_OK_AND_ASSIGN(
      const std::string id,
      cluster_->Submit(WriteJob(cluster_->dir(), job, kModel)));
  JobTableStatus now;
  ASSERT_TRUE(Eventually(absl::Minutes(2), [&] {
    now = Json(id);
    // Each ps reports for itself every other second: both are past a pass.
    return now.ps_size() == 2 && Sum(now, 0, &Table::pulled_from_disk) > 1000 &&
           Sum(now, 1, &Table::expired_by_age) > 1000 &&
           Sum(now, 0, &Table::rows_in_memory) +
                   Sum(now, 0, &Table::rows_on_disk) >
               kSamples &&
           PushesOf(now, 1, kDaily) > 100;
  })) << now.DebugString();

  for (const auto& ps : now.ps()) {
    ASSERT_EQ(ps.tables_size(), 2);
    EXPECT_EQ(ps.tables(0).name(), "large");
    EXPECT_EQ(ps.tables(1).name(), "choosy");
    // RocksDB's part may be counted apart.
    EXPECT_LE(ps.tables(0).memory_bytes(), ps.tables(0).memory_limit_bytes());
    EXPECT_LE(ps.tables(0).memory_limit_bytes(), 4u << 20);
    EXPECT_GT(ps.tables(0).disk_limit_bytes(), 0u);
    EXPECT_LE(ps.tables(0).disk_limit_bytes(), 256u << 20);
    EXPECT_GT(ps.tables(0).disk_bytes(), 0u);
    EXPECT_LT(ps.age_seconds(), 10);
  }
  EXPECT_EQ(
      Sum(now, 0, &Table::rows_in_memory) + Sum(now, 0, &Table::rows_on_disk),
      kSamples + 1u)
      << "each key once, in one of the tiers";
  EXPECT_GT(Sum(now, 0, &Table::rows_on_disk), kSamples / 8u);
  EXPECT_GT(Sum(now, 0, &Table::pulled_from_memory), 0u);
  EXPECT_GE(Sum(now, 0, &Table::pulled_absent), kSamples / 2u);
  EXPECT_GE(Sum(now, 1, &Table::refused_by_sightings), kSamples / 2u);
  EXPECT_EQ(Sum(now, 1, &Table::rows_on_disk), 0u);
  // Both workers push kHot in each clock, and it counts once.
  const uint64_t hot = PushesOf(now, 0, kHot);
  EXPECT_GT(hot, 100u) << "a pass has 100 clocks";
  EXPECT_GE(PushesOf(now, 1, kDaily), 100u);

  const std::string text = Text(id);
  EXPECT_THAT(text,
              AllOf(HasSubstr("table large\n"), HasSubstr("table choosy\n"),
                    ContainsRegex("rows     [0-9,]+ in memory, [0-9,]+ on "
                                  "disk\n"),
                    ContainsRegex("[0-9.]+% from memory, [0-9.]+% from "
                                  "disk, [0-9.]+% not there yet\n"),
                    ContainsRegex("refused  [1-9][0-9,]* seen too rarely"),
                    ContainsRegex("expired  [1-9][0-9,]* by age"),
                    ContainsRegex("hottest  -77 \\([0-9,]+\\)"),
                    HasSubstr("ps:0"), HasSubstr("ps:1")));
  ASSERT_OK_AND_ASSIGN(const auto unnamed, cluster_->Synctl({"tables"}));
  EXPECT_THAT(unnamed.out, HasSubstr("table large\n")) << "the job that runs";

  ASSERT_OK(cluster_->Synctl({"cancel", id}).status());
  ASSERT_OK(cluster_->WaitForEnd(id, absl::Minutes(1)).status());
  ASSERT_OK(cluster_->WaitForFreeMembers(4, absl::Minutes(1)));
  const JobTableStatus after = Json(id);
  ASSERT_EQ(after.ps_size(), 2);
  EXPECT_GE(PushesOf(after, 0, kHot), hot);
  EXPECT_GE(Sum(after, 0, &Table::pulled_from_disk),
            Sum(now, 0, &Table::pulled_from_disk));
  EXPECT_THAT(Text(id), HasSubstr("hottest  -77 ("));
  ASSERT_OK_AND_ASSIGN(const auto none, cluster_->Synctl({"tables"}));
  EXPECT_EQ(none.exit.code, 1);
  EXPECT_THAT(none.err, HasSubstr("no job is running"));
}

// Tables that a job asks for and cannot have are refused before anything is
// submitted where that can be known, and else by the ps, before the job runs.
TEST_F(TablesCommandTest, TablesThatCannotBeAreRefusedByField) {
  const auto refusal = [&](const JobSpec& job, absl::string_view model) {
    const auto result = cluster_->Synctl(
        {"submit", WriteJob(cluster_->dir(), job, model), "--watch"},
        absl::Minutes(1));
    EXPECT_OK(result.status());
    EXPECT_EQ(result->exit.code, 1);
    return result->err;
  };
  const JobSpec job = MakeJob("refused");
  const auto with_dim = [](absl::string_view dim) {
    return absl::StrReplaceAll(
        kModel, {{"float[rows, 128] large",
                  absl::StrCat("float[rows, ", dim, "] large")},
                 {"float[128, 1] w", absl::StrCat("float[", dim, ", 1] w")}});
  };
  EXPECT_THAT(refusal(job, with_dim("100000")),
              HasSubstr("tables[0].name: 'large' has rows of 100000 elements, "
                        "outside 1..65536"));
  EXPECT_THAT(refusal(job, with_dim("0")), HasSubstr("'large'"));
  JobSpec small = job;
  small.mutable_tables(0)->mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  small.mutable_tables(0)->set_memory_bytes(1 << 20);
  small.mutable_tables(0)->mutable_admission()->set_min_sightings(2);
  small.mutable_tables(0)->mutable_admission()->set_filter_bytes(512 << 10);
  EXPECT_THAT(refusal(small, with_dim("65536")),
              HasSubstr("tables[0].memory_bytes: 'large' has rows of 786444 "
                        "bytes with optimizer state, but only 524288"));
  JobSpec large = job;
  large.mutable_tables(1)->set_memory_bytes(uint64_t{1} << 50);
  EXPECT_THAT(refusal(large, kModel),
              AllOf(HasSubstr("--table-memory"), HasSubstr("ps:")));
}

TEST_F(TablesCommandTest, APsWhoseFolderTakesNoRowsDoesNotStart) {
  const std::string file = data_.File("train.csv");  // no folder
  auto ps = RunningProgram::Start(
      data_.path(),
      {absl::StrCat(BinaryDir(), "/syncline-ps"), "--listen=127.0.0.1:0",
       absl::StrCat("--scheduler=", cluster_->scheduler_address()),
       "--table-disk=64MiB", absl::StrCat("--spill-dir=", file)},
      {});
  ASSERT_OK(ps.status());
  const auto ended = (*ps)->Finish(absl::Seconds(30));
  ASSERT_OK(ended.status());
  EXPECT_EQ(ended->exit.code, 1);
  EXPECT_THAT(ended->err, HasSubstr(file));
}

// Shorter than the time between two reports of a ps.
TEST_F(TablesCommandTest, AJobThatWasSoonDoneHasItsTablesTold) {
  JobSpec job = MakeJob("short");
  job.mutable_training()->set_max_clocks(40);
  ASSERT_OK_AND_ASSIGN(const JobStatus done,
                       cluster_->Train(WriteJob(cluster_->dir(), job, kModel)));
  ASSERT_OK(cluster_->WaitForFreeMembers(4, absl::Minutes(1)));
  const JobTableStatus tables = Json(done.job_id());
  ASSERT_EQ(tables.ps_size(), 2);
  // 40 clocks of 120 samples: a key of their own each, and one for all of them.
  EXPECT_EQ(Sum(tables, 0, &Table::pushed_rows), 40u * 121);
  EXPECT_EQ(PushesOf(tables, 0, kHot), 40u);
  EXPECT_THAT(Text(done.job_id()), HasSubstr("table choosy\n"));
  ASSERT_OK_AND_ASSIGN(const auto unknown,
                       cluster_->Synctl({"tables", "j-99"}));
  EXPECT_EQ(unknown.exit.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("no job \"j-99\""));
}

}  // namespace
}  // namespace syncline
