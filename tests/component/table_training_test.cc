// Goal: a job whose embedding is a table trains what the same job trains with a
// dense one, whatever the number of ps and workers, and its rows are exported.
// Method: ps and workers in this process, real gRPC between them, generated
// samples with ids that repeat within a batch; the test plays the scheduler.

#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/random.h"
#include "common/daemon/metrics.h"
#include "common/job/job_spec_validator.h"
#include "common/wire/routing_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"
#include "tests/component/table_training_fixture.h"
#include "tests/testing/table_rows.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

TEST_F(TableTrainingTest, ATableIsTheDenseEmbedding) {
  for (const auto optimizer : {OptimizerSpec::SGD, OptimizerSpec::ADAGRAD}) {
    SCOPED_TRACE(OptimizerSpec::Kind_Name(optimizer));
    JobSpec dense_spec = DenseSpec();
    dense_spec.mutable_optimizer()->set_kind(optimizer);
    for (const uint32_t workers : {1u, 2u}) {
      const auto dense = Train(workers, 1, dense_spec);
      ASSERT_EQ(dense.status, absl::OkStatus());
      Weights first;
      for (const uint32_t ps : {1u, 2u, 3u}) {
        SCOPED_TRACE(absl::StrCat(workers, " workers, ", ps, " ps"));
        const auto table = Train(workers, ps, TableSpecOf(optimizer));
        ASSERT_EQ(table.status, absl::OkStatus());
        EXPECT_LE(LargestDifference(table.weights, dense.weights), 1e-6);
        ASSERT_EQ(table.evaluations.size(), 2u);
        for (int e = 0; e < 2; ++e) {
          EXPECT_NEAR(table.evaluations[e].loss(), dense.evaluations[e].loss(),
                      1e-6);
          EXPECT_NEAR(table.evaluations[e].auc(), dense.evaluations[e].auc(),
                      1e-6);
        }
        if (ps == 1) first = table.weights;
        EXPECT_EQ(table.weights, first) << "bit for bit";
      }
      EXPECT_NE(dense.weights.at("emb")[0], 0.25f) << "it must be trained";
    }
  }
}

// Rows are read while the cut is held, and the last cut by two at a time.
TEST_F(TableTrainingTest, AnEvaluatorReadsTheRowsThatTheChiefWould) {
  for (const bool is_sync : {true, false}) {
    JobSpec spec = TableSpecOf();
    if (!is_sync) spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
    const auto by_chief = Train(2, 2, spec);
    const auto by_evaluator =
        TrainingCluster({.workers = 2,
                         .ps = 2,
                         .work_dir = dir_.File(absl::StrCat("e", is_sync)),
                         .data_root = dir_.path(),
                         .evaluator = true})
            .RunJob(spec, ModelText("40"));
    ASSERT_EQ(by_chief.status, absl::OkStatus());
    ASSERT_EQ(by_evaluator.status, absl::OkStatus());
    ASSERT_EQ(by_evaluator.evaluations.size(), 2u);
    EXPECT_EQ(by_evaluator.artifacts.count("trained.onnx"), 1u);
    if (!is_sync) continue;
    EXPECT_EQ(by_evaluator.weights, by_chief.weights);
    for (int e = 0; e < 2; ++e) {
      EXPECT_EQ(by_evaluator.evaluations[e].loss(),
                by_chief.evaluations[e].loss())
          << "bit for bit";
      EXPECT_EQ(by_evaluator.evaluations[e].auc(),
                by_chief.evaluations[e].auc());
    }
  }
}

TEST_F(TableTrainingTest, AClippedNormIsThatOfTheDenseEmbedding) {
  const auto clip = [](JobSpec spec) {
    spec.mutable_optimizer()->set_clip_norm(0.05f);
    return spec;
  };
  for (const uint32_t workers : {1u, 3u}) {
    const auto dense = Train(workers, 1, clip(DenseSpec()));
    ASSERT_EQ(dense.status, absl::OkStatus());
    Weights first;
    for (const uint32_t ps : {1u, 2u, 3u}) {
      SCOPED_TRACE(absl::StrCat(workers, " workers, ", ps, " ps"));
      const auto table = Train(workers, ps, clip(TableSpecOf()));
      ASSERT_EQ(table.status, absl::OkStatus());
      EXPECT_LE(LargestDifference(table.weights, dense.weights), 1e-6);
      if (ps == 1) first = table.weights;
      EXPECT_EQ(table.weights, first) << "bit for bit";
    }
    EXPECT_NE(Train(workers, 1, TableSpecOf()).weights, first)
        << "it must be clipped";
  }
}

TEST_F(TableTrainingTest, SixteenBitsTrainTheSameButForRounding) {
  const auto whole = Train(2, 2, TableSpecOf(OptimizerSpec::ADAGRAD));
  ASSERT_EQ(whole.status, absl::OkStatus());
  for (const WireType type : {WIRE_BFLOAT16, WIRE_FLOAT16}) {
    SCOPED_TRACE(WireType_Name(type));
    JobSpec spec = TableSpecOf(OptimizerSpec::ADAGRAD);
    spec.set_wire_type(type);
    const auto one = Train(2, 1, spec);
    ASSERT_EQ(one.status, absl::OkStatus());
    EXPECT_NE(one.weights, whole.weights) << "it must be rounded";
    EXPECT_LE(LargestDifference(one.weights, whole.weights),
              type == WIRE_FLOAT16 ? 0.01 : 0.08);
    EXPECT_NEAR(one.evaluations.back().auc(), whole.evaluations.back().auc(),
                0.03);
    EXPECT_EQ(Train(2, 3, spec).weights, one.weights) << "bit for bit";
  }
}

TEST_F(TableTrainingTest, RowsAreClippedBesideATrustRatio) {
  JobSpec spec = TableSpecOf(OptimizerSpec::LAMB);
  spec.mutable_optimizer()->set_clip_norm(0.05f);
  spec.mutable_learning_rate()->set_base(0.01f);
  spec.mutable_tables(0)->mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  const auto one = Train(2, 1, spec);
  ASSERT_EQ(one.status, absl::OkStatus());
  EXPECT_NE(one.weights.at("emb")[0], 0.25f) << "it must be trained";
  EXPECT_EQ(Train(2, 3, spec).weights, one.weights);
}

// Blocks and slots that lie on random shards. Each shard has some slot.
Routing Scattered(uint64_t seed, uint64_t version,
                  const std::vector<uint32_t>& shard_ps,
                  const JobAssignment& assignment) {
  const auto blocks = RoutingTable::Create(assignment);
  EXPECT_TRUE(blocks.ok()) << blocks.status();
  Random random(seed);
  const auto shards = static_cast<uint32_t>(shard_ps.size());
  Routing routing;
  routing.set_version(version);
  routing.mutable_shard_ps()->Add(shard_ps.begin(), shard_ps.end());
  for (size_t i = 0; i < blocks->blocks().blocks().size(); ++i) {
    routing.add_block_shards(static_cast<uint32_t>(random.Below(shards)));
  }
  for (const TableInfo& info : assignment.tables()) {
    Routing::Table* const table = routing.add_tables();
    for (uint32_t slot = 0; slot < info.slots(); ++slot) {
      table->add_slot_shards(slot < shards
                                 ? shards - 1 - slot
                                 : static_cast<uint32_t>(random.Below(shards)));
    }
  }
  return routing;
}

// Jobs whose bits depend on everything that is reduced over shards.
std::vector<JobSpec> JobsOfAllReductions() {
  JobSpec clipped = TableSpecOf(OptimizerSpec::ADAGRAD);
  clipped.mutable_optimizer()->set_clip_norm(0.05f);
  JobSpec lamb = TableSpecOf(OptimizerSpec::LAMB);
  lamb.mutable_optimizer()->set_clip_norm(0.05f);
  lamb.mutable_learning_rate()->set_base(0.01f);
  lamb.mutable_tables(0)->mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  JobSpec narrow = TableSpecOf();
  narrow.set_wire_type(WIRE_BFLOAT16);
  return {TableSpecOf(), clipped, lamb, narrow};
}

TEST_F(TableTrainingTest, AScatteredRoutingTrainsTheSameBits) {
  const auto scattered = [&](const std::vector<uint32_t>& shard_ps,
                             const JobSpec& spec) {
    return TrainingCluster(
               {.workers = 2,
                .ps = 3,
                .work_dir = dir_.File(absl::StrCat("s", ++clusters_)),
                .data_root = dir_.path(),
                .change_assignment =
                    [&](JobAssignment* assignment) {
                      *assignment->mutable_routing() =
                          Scattered(shard_ps.size(), /*version=*/7, shard_ps,
                                    *assignment);
                    }})
        .RunJob(spec, ModelText("40"));
  };
  for (const JobSpec& spec : JobsOfAllReductions()) {
    SCOPED_TRACE(spec.ShortDebugString());
    const auto one = Train(2, 1, spec);
    ASSERT_EQ(one.status, absl::OkStatus());
    // One shard a ps, and several, of which the first is not on the first ps.
    const std::vector<uint32_t> placements[] = {{0, 1, 2}, {2, 0, 2, 1, 0}};
    for (const std::vector<uint32_t>& shard_ps : placements) {
      const auto other = scattered(shard_ps, spec);
      ASSERT_EQ(other.status, absl::OkStatus());
      EXPECT_EQ(other.weights, one.weights) << shard_ps.size() << " shards";
      ASSERT_EQ(other.evaluations.size(), one.evaluations.size());
      EXPECT_EQ(other.evaluations.back().loss(), one.evaluations.back().loss());
    }
  }
  // Rows that workers keep and ask for early take the same way.
  JobSpec async = TableSpecOf();
  async.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  EXPECT_EQ(scattered({1, 1, 0}, async).status, absl::OkStatus());
}

// Shards become more and fewer, move to other ps, and leave one. Each worker
// has a step under way then, of which all is sent again.
TEST_F(TableTrainingTest, AJobGoesOnByALaterRouting) {
  WriteSamples(dir_.File("train.csv"), 1500, 1);
  std::vector<JobSpec> specs = JobsOfAllReductions();
  specs.push_back(TableSpecOf());
  specs.back().mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  for (JobSpec& spec : specs) {
    SCOPED_TRACE(spec.ShortDebugString());
    // Of the memory that a table does not name it takes all that is left, and a
    // ps may still hold that of the routing before.
    spec.mutable_tables(0)->set_memory_bytes(8 << 20);
    // One epoch, whose end is behind all changes.
    spec.mutable_training()->set_epochs(1);
    spec.mutable_training()->set_batch_size(1);
    // Alone, a worker's order is the order.
    const bool is_sync = spec.consistency().mode() == ConsistencySpec::SYNC;
    const uint32_t workers = is_sync ? 2 : 1;
    const auto one = Train(workers, 1, spec);
    ASSERT_EQ(one.status, absl::OkStatus());
    JobAssignment assignment;
    TrainingCluster cluster(
        {.workers = workers,
         .ps = 3,
         .work_dir = dir_.File(absl::StrCat("r", ++clusters_)),
         .data_root = dir_.path(),
         .change_assignment = [&](JobAssignment* assigned) {
           assignment = *assigned;
         }});
    ASSERT_EQ(cluster.Prepare(spec, ModelText("40")), absl::OkStatus());
    cluster.Run();
    const std::vector<uint32_t> placements[] = {
        {2, 0, 2, 1, 0}, {1, 0}, {0, 1, 2, 2}};
    uint64_t version = 1;
    for (const std::vector<uint32_t>& shard_ps : placements) {
      ++version;
      ASSERT_EQ(cluster.ChangeRouting(
                    Scattered(version, version, shard_ps, assignment),
                    static_cast<int64_t>(60 * (version - 1))),
                absl::OkStatus())
          << "version " << version;
    }
    ASSERT_EQ(cluster.AwaitDone(absl::Minutes(2)), absl::OkStatus());
    ASSERT_EQ(cluster.Stop(absl::Seconds(30)), absl::OkStatus());
    const auto outcome = cluster.TakeOutcome();
    EXPECT_EQ(outcome.weights, one.weights);
    ASSERT_EQ(outcome.evaluations.size(), one.evaluations.size());
    EXPECT_EQ(outcome.evaluations.back().loss(), one.evaluations.back().loss());
  }
}

// A worker that is left behind then, and pushes its late rows, too.
TEST_F(TableTrainingTest, AJobWithBackupsGoesOnByALaterRouting) {
  WriteSamples(dir_.File("train.csv"), 1500, 1);
  for (const auto late : {ConsistencySpec::DROP, ConsistencySpec::COMPENSATE}) {
    SCOPED_TRACE(ConsistencySpec::Late_Name(late));
    JobSpec spec = TableSpecOf();
    spec.mutable_tables(0)->set_memory_bytes(8 << 20);
    spec.mutable_training()->set_epochs(1);
    spec.mutable_training()->set_batch_size(1);
    spec.mutable_learning_rate()->set_base(0.1f);
    spec.mutable_consistency()->set_mode(ConsistencySpec::SYNC_WITH_BACKUPS);
    spec.mutable_consistency()->set_needed(2);
    spec.mutable_consistency()->set_late(late);
    JobAssignment assignment;
    TrainingCluster cluster(
        {.workers = 3,
         .ps = 3,
         .work_dir = dir_.File(absl::StrCat("b", ++clusters_)),
         .data_root = dir_.path(),
         .change_assignment = [&](JobAssignment* assigned) {
           assignment = *assigned;
         }});
    ASSERT_EQ(cluster.Prepare(spec, ModelText("40")), absl::OkStatus());
    cluster.Run();
    uint64_t version = 1;
    for (const std::vector<uint32_t>& shard_ps :
         {std::vector<uint32_t>{2, 0, 2, 1, 0}, {1, 0}, {0, 1, 2, 2}}) {
      ++version;
      ASSERT_EQ(cluster.ChangeRouting(
                    Scattered(version, version, shard_ps, assignment),
                    static_cast<int64_t>(60 * (version - 1))),
                absl::OkStatus())
          << "version " << version;
    }
    ASSERT_EQ(cluster.AwaitDone(absl::Minutes(2)), absl::OkStatus());
    ASSERT_EQ(cluster.Stop(absl::Seconds(30)), absl::OkStatus());
    const auto outcome = cluster.TakeOutcome();
    ASSERT_EQ(outcome.status, absl::OkStatus());
    ASSERT_EQ(outcome.evaluations.size(), 1u);
    EXPECT_GT(outcome.evaluations[0].auc(), 0.7);
  }
}

// The chief announces the first epoch's end, the evaluator the others. The
// routing changes while each is announced, and may while one is read.
TEST_F(TableTrainingTest, AnEvaluatorGoesOnByALaterRouting) {
  WriteSamples(dir_.File("train.csv"), 1500, 1);
  for (const auto mode : {ConsistencySpec::SYNC, ConsistencySpec::ASYNC}) {
    JobSpec spec = TableSpecOf();
    spec.mutable_tables(0)->set_memory_bytes(8 << 20);
    spec.mutable_consistency()->set_mode(mode);
    spec.mutable_training()->set_epochs(4);
    spec.mutable_training()->set_batch_size(5);
    const uint32_t workers = mode == ConsistencySpec::SYNC ? 2 : 1;
    const int64_t clocks = 1500 / (5 * workers);  // of an epoch
    const auto one = Train(workers, 1, spec);
    ASSERT_EQ(one.status, absl::OkStatus());
    JobAssignment assignment;
    TrainingCluster cluster(
        {.workers = workers,
         .ps = 3,
         .work_dir = dir_.File(absl::StrCat("e", ++clusters_)),
         .data_root = dir_.path(),
         .evaluator = true,
         .change_assignment = [&](JobAssignment* assigned) {
           assignment = *assigned;
         }});
    ASSERT_EQ(cluster.Prepare(spec, ModelText("40")), absl::OkStatus());
    cluster.Run();
    const std::vector<uint32_t> placements[] = {
        {2, 0, 2, 1, 0}, {1, 0}, {0, 1, 2, 2}};
    // Within an epoch, at the end of one, behind one.
    const int64_t at[] = {clocks / 2, 2 * clocks, 3 * clocks + 1};
    for (uint64_t change = 0; change < 3; ++change) {
      ASSERT_EQ(cluster.ChangeRouting(Scattered(change + 2, change + 2,
                                                placements[change], assignment),
                                      at[change]),
                absl::OkStatus())
          << change;
    }
    ASSERT_EQ(cluster.AwaitDone(absl::Minutes(2)), absl::OkStatus());
    ASSERT_EQ(cluster.Stop(absl::Seconds(30)), absl::OkStatus());
    const auto outcome = cluster.TakeOutcome();
    EXPECT_EQ(outcome.weights, one.weights);
    ASSERT_EQ(outcome.evaluations.size(), one.evaluations.size());
    for (size_t i = 0; i < one.evaluations.size(); ++i) {
      EXPECT_EQ(outcome.evaluations[i].loss(), one.evaluations[i].loss()) << i;
    }
  }
}

TEST_F(TableTrainingTest, KeysAreAnyNumbersAndRowsOfAnOpenTableAreAFile) {
  const auto fixed = Train(2, 2, TableSpecOf());
  ASSERT_EQ(fixed.status, absl::OkStatus());
  constexpr int64_t kOffset = -3'000'000'000'000;
  constexpr int64_t kStride = 123'456'789'013;
  WriteSamples(dir_.File("train.csv"), 170, 1, kOffset, kStride);
  WriteSamples(dir_.File("test.csv"), 90, 2, kOffset, kStride);
  const auto open = Train(2, 2, TableSpecOf(), "rows");
  ASSERT_EQ(open.status, absl::OkStatus());
  EXPECT_THAT(open.weights, Not(Contains(Key("emb"))))
      << "it is an input of the exported model";
  EXPECT_EQ(open.weights.at("w"), fixed.weights.at("w"));
  ASSERT_THAT(open.artifacts, Contains(Key("tables/emb.safetensors")));
  const auto rows =
      TableRowsOf(open.artifacts.at("tables/emb.safetensors"), kDim);
  EXPECT_GT(rows.size(), 20u);
  for (const auto& [key, row] : rows) {
    const int64_t id = (key - kOffset) / kStride;
    ASSERT_LT(id, kVocabulary - 5);
    for (int d = 0; d < kDim; ++d) {
      EXPECT_EQ(row[d], fixed.weights.at("emb")[id * kDim + d]) << id;
    }
  }
}

// As columns, and as a list in one column; a shorter one is padded with a key
// that has no row.
TEST_F(TableTrainingTest, IdsMayBeAListInAColumn) {
  const auto columns = Train(2, 2, TableSpecOf());
  ASSERT_EQ(columns.status, absl::OkStatus());
  for (const char* name : {"train.csv", "test.csv"}) {
    std::ifstream in(dir_.File(name));
    std::string lines, line;
    while (std::getline(in, line)) {
      std::vector<std::string> c = absl::StrSplit(line, ',');
      absl::StrAppend(&lines, c[0], ",", c[1], "|", c[2], "|", c[3], ",", c[4],
                      ",", c[5], ",", c[6], "\n");
    }
    dir_.Write(name, lines);
  }
  JobSpec spec = TableSpecOf();
  for (DataSource* source : {spec.mutable_data()->mutable_train(),
                             spec.mutable_data()->mutable_test()}) {
    source->mutable_csv()->set_list_delimiter("|");
  }
  const char* const fields[] = {"1", "2", "3:5"};
  for (int i = 0; i < 3; ++i) {
    spec.mutable_data()->mutable_feeds(i)->set_field(fields[i]);
  }
  spec.mutable_data()->mutable_feeds(0)->set_padding(-1);
  EXPECT_EQ(Train(2, 2, spec).weights, columns.weights);
  // The key of padding has no row.
  dir_.Write("train.csv", "1,,3,0,0\n0,4,3,0,0\n1,4|5,3,0,0\n0,4,3,0,0\n");
  spec.mutable_training()->set_batch_size(2);
  const auto padded = Train(1, 1, spec);
  ASSERT_EQ(padded.status, absl::OkStatus());
  EXPECT_NE(padded.weights.at("emb")[4 * kDim], 0.25f);
  EXPECT_EQ(padded.weights.at("emb")[6 * kDim], 0.25f);
  EXPECT_THAT(padded.artifacts, Not(Contains(Key("tables/emb.safetensors"))))
      << "-1 would not fit into a fixed table";
  // A row that was read as zeros is exported as zeros.
  spec.mutable_data()->mutable_feeds(0)->set_padding(7);
  const auto padded_row = Train(1, 1, spec);
  ASSERT_EQ(padded_row.status, absl::OkStatus());
  EXPECT_EQ(padded_row.weights.at("emb")[7 * kDim], 0.0f);
  EXPECT_EQ(padded_row.weights.at("emb")[6 * kDim], 0.25f);
}

// -1 is the last row, for Gather and for a table of as many rows.
TEST_F(TableTrainingTest, NegativeIdsCountFromTheEndAsInTheDenseEmbedding) {
  const auto from_start = Train(2, 2, TableSpecOf());
  ASSERT_EQ(from_start.status, absl::OkStatus());
  WriteSamples(dir_.File("train.csv"), 170, 1, /*offset=*/-kVocabulary);
  WriteSamples(dir_.File("test.csv"), 90, 2, /*offset=*/-kVocabulary);
  const auto dense = Train(2, 1, DenseSpec());
  ASSERT_EQ(dense.status, absl::OkStatus());
  const auto table = Train(2, 2, TableSpecOf());
  ASSERT_EQ(table.status, absl::OkStatus());
  EXPECT_LE(LargestDifference(table.weights, dense.weights), 1e-6);
  EXPECT_EQ(table.weights, from_start.weights) << "bit for bit";
}

TEST_F(TableTrainingTest, AKeyOutsideAFixedTableMakesItAFile) {
  WriteSamples(dir_.File("train.csv"), 170, 1, /*offset=*/10);
  const auto outcome = Train(1, 1, TableSpecOf());
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_THAT(outcome.artifacts, Contains(Key("tables/emb.safetensors")));
}

TEST_F(TableTrainingTest, BoundedStalenessAndAsyncTrain) {
  for (const auto mode :
       {ConsistencySpec::BOUNDED_STALENESS, ConsistencySpec::ASYNC}) {
    SCOPED_TRACE(ConsistencySpec::Mode_Name(mode));
    JobSpec spec = TableSpecOf(OptimizerSpec::ADAGRAD);
    spec.mutable_consistency()->set_mode(mode);
    if (mode == ConsistencySpec::BOUNDED_STALENESS) {
      spec.mutable_consistency()->set_staleness_bound(2);
    }
    spec.mutable_training()->set_epochs(8);
    spec.mutable_learning_rate()->set_base(0.1f);
    const auto outcome = Train(3, 2, spec);
    ASSERT_EQ(outcome.status, absl::OkStatus());
    ASSERT_EQ(outcome.evaluations.size(), 8u);
    EXPECT_GT(outcome.evaluations[7].auc(), 0.7);
  }
}

// The value of a metric of the chief.
double Metric(const MetricsRegistry& metrics, absl::string_view name) {
  const std::string text = metrics.Render();
  const size_t at = text.find(absl::StrCat("\n", name, " "));
  EXPECT_NE(at, std::string::npos) << name;
  return std::stod(text.substr(at + name.size() + 2));
}

// One worker's own pushes are all that happens to its rows: what it keeps is
// what the servers have, to the last bit, under every schedule.
TEST_F(TableTrainingTest, RowsThatAWorkerKeepsAreThoseOfTheServers) {
  for (const auto mode :
       {ConsistencySpec::BOUNDED_STALENESS, ConsistencySpec::ASYNC}) {
    SCOPED_TRACE(ConsistencySpec::Mode_Name(mode));
    JobSpec spec = TableSpecOf();
    spec.mutable_consistency()->set_mode(mode);
    if (mode == ConsistencySpec::BOUNDED_STALENESS) {
      spec.mutable_consistency()->set_staleness_bound(3);
    }
    spec.mutable_optimizer()->set_weight_decay(0.01f);
    spec.mutable_optimizer()->set_clip_value(0.05f);
    spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
    spec.mutable_training()->set_epochs(3);
    const auto pulled = Train(1, 2, spec);
    ASSERT_EQ(pulled.status, absl::OkStatus());
    spec.mutable_tables(0)->set_cache_rows(30);
    spec.mutable_tables(0)->set_cache_clocks(3);
    MetricsRegistry metrics;
    const auto kept = TrainingCluster({.ps = 2,
                                       .work_dir = dir_.File("kept"),
                                       .data_root = dir_.path(),
                                       .chief_metrics = &metrics})
                          .RunJob(spec, ModelText("40"));
    ASSERT_EQ(kept.status, absl::OkStatus());
    EXPECT_EQ(kept.weights, pulled.weights) << "bit for bit";
    EXPECT_GT(Metric(metrics,
                     "syncline_worker_row_cache_lookups_total{result=\"hit\"}"),
              200);
  }
}

// A logistic regression all of whose weights are rows.
constexpr char kRowsAlone[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
rows (int64[N, 3] bag, float[40, 1] emb) => (float[N, 1] logit)
<int64[1] one = {1}>
{
  items = Gather (emb, bag)
  logit = ReduceSum <keepdims = 0> (items, one)
})";

JobSpec RowsAloneSpec(ConsistencySpec::Mode mode) {
  JobSpec spec = TableSpecOf();
  spec.mutable_model()->clear_initialize();
  while (spec.data().feeds_size() > 1) {
    spec.mutable_data()->mutable_feeds()->RemoveLast();
  }
  spec.mutable_consistency()->set_mode(mode);
  // The shards must know when the job ends before anything is pushed.
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  spec.mutable_training()->set_epochs(4);
  return spec;
}

TEST_F(TableTrainingTest, AModelOfRowsAloneTrains) {
  Weights first;
  for (const uint32_t ps : {1u, 3u}) {
    TrainingCluster cluster({.workers = 3,
                             .ps = ps,
                             .work_dir = dir_.File(absl::StrCat("rows", ps)),
                             .data_root = dir_.path()});
    const auto sync =
        cluster.RunJob(RowsAloneSpec(ConsistencySpec::SYNC), kRowsAlone);
    ASSERT_EQ(sync.status, absl::OkStatus());
    ASSERT_EQ(sync.evaluations.size(), 4u);
    EXPECT_GT(sync.evaluations[3].auc(), 0.7);
    if (first.empty()) first = sync.weights;
    EXPECT_EQ(sync.weights, first) << "bit for bit";
    const auto async =
        cluster.RunJob(RowsAloneSpec(ConsistencySpec::ASYNC), kRowsAlone);
    ASSERT_EQ(async.status, absl::OkStatus());
    EXPECT_GT(async.evaluations.back().auc(), 0.7);
  }
}

TEST_F(TableTrainingTest, WorkersThatKeepRowsLearn) {
  JobSpec spec = TableSpecOf();
  spec.mutable_consistency()->set_mode(ConsistencySpec::BOUNDED_STALENESS);
  spec.mutable_consistency()->set_staleness_bound(4);
  spec.mutable_training()->set_epochs(8);
  spec.mutable_tables(0)->set_cache_rows(20);
  spec.mutable_tables(0)->set_cache_clocks(4);
  const auto outcome = Train(3, 2, spec);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  ASSERT_EQ(outcome.evaluations.size(), 8u);
  EXPECT_GT(outcome.evaluations[7].auc(), 0.7);
}

TEST_F(TableTrainingTest, UntilItIsAdmittedAKeyKeepsItsInitialValue) {
  JobSpec spec = TableSpecOf();
  spec.mutable_tables(0)->mutable_admission()->set_min_sightings(200);
  const auto outcome = Train(2, 2, spec);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  for (const float value : outcome.weights.at("emb")) EXPECT_EQ(value, 0.25f);
}

TEST_F(TableTrainingTest, RowsThatAreNotSeenAgainExpire) {
  // Each key occurs once.
  std::ofstream file(dir_.File("train.csv"));
  constexpr int kSamples = 640;
  for (int i = 0; i < kSamples; ++i) {
    file << i % 2;
    for (int k = 0; k < 4; ++k) file << "," << 4 * i + k;
    file << ",0,0\n";
  }
  file.close();
  JobSpec spec = TableSpecOf();
  spec.mutable_training()->set_epochs(1);
  const auto kept = Train(1, 2, spec, "rows");
  spec.mutable_tables(0)->mutable_expiry()->set_unseen_clocks(3);
  const auto expired = Train(1, 2, spec, "rows");
  ASSERT_EQ(kept.status, absl::OkStatus());
  ASSERT_EQ(expired.status, absl::OkStatus());
  EXPECT_EQ(
      TableRowsOf(kept.artifacts.at("tables/emb.safetensors"), kDim).size(),
      4u * kSamples);
  const size_t left =
      TableRowsOf(expired.artifacts.at("tables/emb.safetensors"), kDim).size();
  EXPECT_LT(left, 4u * kSamples);
  EXPECT_GE(left, 4u * 16) << "those of the last clock are there";
}

TEST_F(TableTrainingTest, APsThatGoesAwayFailsTheJobAndIsNamed) {
  JobSpec spec = TableSpecOf();
  spec.mutable_training()->set_epochs(1'000'000);
  spec.mutable_limits()->set_step_timeout_seconds(2);
  spec.mutable_data()->clear_test();
  spec.clear_metrics();
  const auto cluster = MakeCluster(2, 2);
  ASSERT_EQ(cluster->Prepare(spec, ModelText("40")), absl::OkStatus());
  cluster->Run();
  ASSERT_TRUE(cluster->AwaitClock(0, 1, absl::Seconds(30)));
  cluster->KillPs(1);
  const absl::Status status = cluster->AwaitDone(absl::Seconds(30));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:1"), HasSubstr(cluster->ps_address(1)),
                    HasSubstr("t-1"), HasSubstr("clock ")));
  EXPECT_EQ(cluster->Stop(absl::Seconds(10)), absl::OkStatus());
}

}  // namespace
}  // namespace syncline
