// Goal: a HYBRID job, whose workers reduce the dense parameters among
// themselves while rows of tables are on the ps, ends with the bits of the same
// job by ps: parameters, rows and evaluations, for any number of workers and
// ps, also where its rows move to other ps meanwhile. In the other modes of
// rows it learns as well. Method: ps and workers in this process, rows over
// real gRPC, the dense part over InProcessPeers; the files of results are
// compared byte for byte.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/component/table_training_fixture.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Of one kind for the dense part, of another one for the rows.
JobSpec MixedSpec() {
  JobSpec spec = TableSpecOf(OptimizerSpec::ADAM);
  spec.mutable_learning_rate()->set_base(0.05f);
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  spec.mutable_tables(0)->mutable_optimizer()->set_kind(
      OptimizerSpec::ROW_WISE_ADAGRAD);
  return spec;
}

JobSpec Hybrid(JobSpec spec) {
  spec.set_strategy(HYBRID);
  return spec;
}

JobSpec WithRows(JobSpec spec, ConsistencySpec::Mode mode, uint32_t bound = 0) {
  spec.mutable_table_consistency()->set_mode(mode);
  spec.mutable_table_consistency()->set_staleness_bound(bound);
  return spec;
}

class HybridTrainingTest : public TableTrainingTest {
 protected:
  static void ExpectTheSame(const TrainingCluster::Outcome& hybrid,
                            const TrainingCluster::Outcome& by_ps) {
    ASSERT_OK(by_ps.status);
    ASSERT_OK(hybrid.status);
    for (const auto& [name, bytes] : by_ps.artifacts) {
      if (name.find(".safetensors") == std::string::npos) continue;
      ASSERT_EQ(hybrid.artifacts.count(name), 1u) << name;
      EXPECT_TRUE(hybrid.artifacts.at(name) == bytes)
          << name << ": other bits; largest difference "
          << LargestDifference(hybrid.weights, by_ps.weights);
    }
    ASSERT_EQ(hybrid.evaluations.size(), by_ps.evaluations.size());
    for (size_t e = 0; e < by_ps.evaluations.size(); ++e) {
      Evaluation ours = hybrid.evaluations[e];
      Evaluation theirs = by_ps.evaluations[e];
      ours.clear_time();  // of day
      theirs.clear_time();
      EXPECT_TRUE(MessageDifferencer::Equals(ours, theirs))
          << ours.DebugString() << theirs.DebugString();
    }
  }

  TrainingCluster::Outcome TrainEvaluated(const JobSpec& spec) {
    return TrainingCluster(
               {.workers = 2,
                .ps = 2,
                .work_dir = dir_.File(absl::StrCat("e", ++clusters_)),
                .data_root = dir_.path(),
                .evaluator = true})
        .RunJob(spec, ModelText("40"));
  }
};

TEST_F(HybridTrainingTest, EndsWithTheBitsOfAJobByPs) {
  for (const uint32_t workers : {2u, 3u}) {
    const auto by_ps = Train(workers, 1, MixedSpec());
    ASSERT_OK(by_ps.status);
    EXPECT_NE(by_ps.weights.at("emb")[0], 0.25f) << "it must be trained";
    for (const uint32_t ps : {1u, 2u}) {
      SCOPED_TRACE(absl::StrCat(workers, " workers, ", ps, " ps"));
      ExpectTheSame(Train(workers, ps, Hybrid(MixedSpec())), by_ps);
    }
  }
}

// Each part rounds as it does alone, and is read whole.
TEST_F(HybridTrainingTest, SixteenBitsOnTheWire) {
  const auto whole = Train(3, 1, MixedSpec());
  for (const auto type : {WIRE_BFLOAT16, WIRE_FLOAT16}) {
    SCOPED_TRACE(WireType_Name(type));
    JobSpec spec = MixedSpec();
    spec.set_wire_type(type);
    const auto by_ps = Train(3, 1, spec);
    ExpectTheSame(Train(3, 2, Hybrid(spec)), by_ps);
    EXPECT_NE(by_ps.weights, whole.weights) << "nothing was rounded";
    ExpectTheSame(TrainEvaluated(Hybrid(spec)), TrainEvaluated(spec));
  }
}

// Dense gradients alone are compressed, rows never.
TEST_F(HybridTrainingTest, CompressedGradients) {
  const auto whole = Train(3, 1, MixedSpec());
  JobSpec spec = MixedSpec();
  spec.mutable_compression()->set_kind(CompressionSpec::INT8);
  const auto by_ps = Train(3, 1, spec);
  ExpectTheSame(Train(3, 2, Hybrid(spec)), by_ps);
  EXPECT_NE(by_ps.weights, whole.weights) << "nothing was rounded";
}

// Rows come from the ps, and the dense part stays on the workers' GPUs.
TEST_F(HybridTrainingTest, GpusUpdateTheDensePart) {
  const auto train = [&](JobSpec spec, int64_t* launches) {
    testing::EmulatedDevice first(1);
    testing::EmulatedDevice second(2);
    spec.mutable_resources()->set_device(ResourcesSpec::CUDA);
    TrainingCluster::Outcome outcome =
        TrainingCluster({.workers = 2,
                         .ps = 2,
                         .work_dir = dir_.File(absl::StrCat("g", ++clusters_)),
                         .data_root = dir_.path(),
                         .gpus = {&first, &second}})
            .RunJob(spec, ModelText("40"));
    *launches = first.launches();
    return outcome;
  };
  int64_t by_ps = 0;
  int64_t hybrid = 0;
  const auto want = train(MixedSpec(), &by_ps);
  ExpectTheSame(train(Hybrid(MixedSpec()), &hybrid), want);
  EXPECT_GT(hybrid, by_ps) << "its updates";
}

// A worker alone reduces with nobody.
TEST_F(HybridTrainingTest, OneWorkerTrainsToo) {
  ExpectTheSame(Train(1, 2, Hybrid(MixedSpec())), Train(1, 2, MixedSpec()));
}

// Keys are any numbers, and rows are a file of their own.
TEST_F(HybridTrainingTest, AnOpenTableIsExportedFromThePs) {
  WriteSamples(dir_.File("train.csv"), 170, 1, /*offset=*/-7,
               /*stride=*/1'000'003);
  WriteSamples(dir_.File("test.csv"), 90, 2, /*offset=*/-7,
               /*stride=*/1'000'003);
  const auto by_ps = Train(2, 2, MixedSpec(), "rows");
  ASSERT_EQ(by_ps.artifacts.count("tables/emb.safetensors"), 1u);
  ExpectTheSame(Train(2, 2, Hybrid(MixedSpec()), "rows"), by_ps);
}

TEST_F(HybridTrainingTest, PartsOfABatchAreSentOnce) {
  JobSpec spec = MixedSpec();
  spec.mutable_training()->set_micro_batches(3);
  ExpectTheSame(Train(2, 2, Hybrid(spec)), Train(2, 2, spec));
}

// Running means are parts of the dense state; with sync_batch_statistics the
// workers reduce the statistics of their batches among themselves as well.
TEST_F(HybridTrainingTest, StatisticsOfBatchesAreReducedByTheWorkers) {
  std::string model = ModelText("40");
  const auto replace = [&](const std::string& a, const std::string& b) {
    const size_t at = model.find(a);
    ASSERT_NE(at, std::string::npos) << a;
    model.replace(at, a.size(), b);
  };
  replace("float[4, 1] w,",
          "float[4] scale, float[4] mean, float[4] variance, float[4] bias, "
          "float[4, 1] w,");
  replace("deep = MatMul (both, w)",
          "normal = BatchNormalization (both, scale, bias, mean, variance)\n"
          "  deep = MatMul (normal, w)");
  for (const bool of_all : {false, true}) {
    SCOPED_TRACE(of_all ? "of all workers" : "of each worker");
    JobSpec spec = MixedSpec();
    for (const char* const name : {"scale", "variance", "mean", "bias"}) {
      InitializerRule* const rule = spec.mutable_model()->add_initialize();
      rule->set_pattern(name);
      rule->set_scheme(InitializerRule::CONSTANT);
      rule->set_value(name[0] == 's' || name[0] == 'v' ? 1.0f : 0.0f);
    }
    spec.mutable_training()->set_sync_batch_statistics(of_all);
    const auto by_ps = MakeCluster(3, 2)->RunJob(spec, model);
    ExpectTheSame(MakeCluster(3, 2)->RunJob(Hybrid(spec), model), by_ps);
    if (!of_all) continue;
    // They go by the mode of the dense part, whatever that of the rows.
    EXPECT_OK(
        MakeCluster(3, 2)
            ->RunJob(WithRows(Hybrid(spec), ConsistencySpec::ASYNC), model)
            .status);
  }
}

TEST_F(HybridTrainingTest, AnEvaluatorReadsBothParts) {
  ExpectTheSame(TrainEvaluated(Hybrid(MixedSpec())),
                TrainEvaluated(MixedSpec()));
}

// The rows of a step that is under way are sent to another ps again, and count
// once; the dense part of the step is not made again.
TEST_F(HybridTrainingTest, RowsThatMoveMeanwhileCountOnce) {
  WriteSamples(dir_.File("train.csv"), 1500, 1);
  JobSpec spec = MixedSpec();
  // An open table takes all memory that is left, and a ps may still hold that
  // of the routing before.
  spec.mutable_tables(0)->set_memory_bytes(8 << 20);
  spec.mutable_training()->set_epochs(1);
  spec.mutable_training()->set_batch_size(1);
  const auto by_ps = Train(2, 1, spec);
  JobAssignment assignment;
  TrainingCluster cluster(
      {.workers = 2,
       .ps = 3,
       .work_dir = dir_.File("moving"),
       .data_root = dir_.path(),
       .change_assignment = [&](JobAssignment* of) { assignment = *of; }});
  ASSERT_OK(cluster.Prepare(Hybrid(spec), ModelText("40")));
  cluster.Run();
  const std::vector<uint32_t> placements[] = {
      {2, 0, 2, 1, 0}, {1, 0}, {0, 1, 2, 2}};
  uint64_t version = 1;
  for (const std::vector<uint32_t>& shard_ps : placements) {
    ++version;
    const auto shards = static_cast<uint32_t>(shard_ps.size());
    Routing routing;
    routing.set_version(version);
    routing.mutable_shard_ps()->Add(shard_ps.begin(), shard_ps.end());
    Routing::Table* const table = routing.add_tables();
    for (uint32_t slot = 0; slot < assignment.tables(0).slots(); ++slot) {
      table->add_slot_shards((slot * 7 + static_cast<uint32_t>(version)) %
                             shards);
    }
    ASSERT_EQ(cluster.ChangeRouting(routing,
                                    static_cast<int64_t>(60 * (version - 1))),
              absl::OkStatus())
        << "version " << version;
  }
  ASSERT_OK(cluster.AwaitDone(absl::Minutes(2)));
  ASSERT_OK(cluster.Stop(absl::Seconds(30)));
  ExpectTheSame(cluster.TakeOutcome(), by_ps);
}

// Alone, a worker's order is the order in each mode.
TEST_F(HybridTrainingTest, RowsHaveAModeOfTheirOwn) {
  for (const auto mode :
       {ConsistencySpec::ASYNC, ConsistencySpec::BOUNDED_STALENESS}) {
    SCOPED_TRACE(ConsistencySpec::Mode_Name(mode));
    const uint32_t bound = mode == ConsistencySpec::ASYNC ? 0 : 2;
    JobSpec by_ps = MixedSpec();
    by_ps.mutable_consistency()->set_mode(mode);
    by_ps.mutable_consistency()->set_staleness_bound(bound);
    ExpectTheSame(Train(1, 2, WithRows(Hybrid(MixedSpec()), mode, bound)),
                  Train(1, 2, by_ps));
    // Several end with what they would have in SYNC, but for the last digits:
    // a row may miss the step of another rank.
    const auto sync = Train(3, 2, MixedSpec());
    const auto apart = Train(3, 2, WithRows(Hybrid(MixedSpec()), mode, bound));
    ASSERT_OK(apart.status);
    EXPECT_NE(apart.weights.at("emb"), sync.weights.at("emb"))
        << "rows must be updated by each push";
    ASSERT_EQ(apart.evaluations.size(), sync.evaluations.size());
    EXPECT_NEAR(apart.evaluations.back().loss(), sync.evaluations.back().loss(),
                0.05);
    // All ranks have the same dense part, whatever the rows.
    EXPECT_OK(
        TrainEvaluated(WithRows(Hybrid(MixedSpec()), mode, bound)).status);
  }
}

// A worker that keeps rows from step to step knows what its own pushes made of
// them.
TEST_F(HybridTrainingTest, KeptRowsAreThoseOfThePs) {
  JobSpec spec = WithRows(Hybrid(TableSpecOf()), ConsistencySpec::ASYNC);
  const auto pulled = Train(1, 2, spec);
  spec.mutable_tables(0)->set_cache_rows(30);
  spec.mutable_tables(0)->set_cache_clocks(3);
  ExpectTheSame(Train(1, 2, spec), pulled);
}

// A gradient that is not finite fails the job, wherever it is reduced.
TEST_F(HybridTrainingTest, AGradientThatIsNotFiniteFailsTheJob) {
  JobSpec spec = Hybrid(TableSpecOf());
  spec.mutable_learning_rate()->set_base(1e30f);
  const auto outcome = Train(2, 2, spec);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition)
      << outcome.status;
}

TEST_F(HybridTrainingTest, APsThatIsLostIsNamedWithTheClock) {
  WriteSamples(dir_.File("train.csv"), 20000, 1);
  JobSpec spec = Hybrid(MixedSpec());
  spec.mutable_training()->set_batch_size(1);
  spec.mutable_limits()->set_step_timeout_seconds(2);
  const auto cluster = MakeCluster(2, 2);
  ASSERT_OK(cluster->Prepare(spec, ModelText("40")));
  cluster->Run();
  ASSERT_TRUE(cluster->AwaitClock(0, 20, absl::Seconds(60)));
  cluster->KillPs(1);
  const absl::Status status = cluster->AwaitDone(absl::Seconds(60));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(cluster->ps_address(1)), HasSubstr("ps:1"),
                    HasSubstr("clock ")))
      << status;
  ASSERT_OK(cluster->Stop(absl::Seconds(60)));
}

}  // namespace
}  // namespace syncline
