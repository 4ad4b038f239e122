// Goal: a job whose strategy changes while it runs, between ps, all-reduce and
// sharded state, ends with the bits of one that keeps its strategy: weights,
// evaluations, and what was skipped. A change that cannot be made changes
// nothing. Method: workers and ps in this process, with real gRPC to the ps and
// InProcessPeers among the workers; each epoch's evaluation asks for the next
// change; files of trained weights are compared byte for byte.

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model/zoo/zoo.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

// With running statistics, of an image and of a vector.
constexpr char kNormalised[] = R"(
<ir_version: 8, opset_import: ["" : 15]>
normalised (
  float[N, 28, 28] x,
  float[4, 1, 5, 5] w1, float[4] scale1, float[4] b1, float[4] mean1,
  float[4] variance1, float[784, 24] w2, float[24] scale2, float[24] b2,
  float[24] mean2, float[24] variance2, float[24, 10] w3, float[10] b3
) => (float[N, 10] logits)
<int64[1] one = {1}>
{
  image = Unsqueeze (x, one)
  sum1 = Conv <strides = [2, 2], pads = [2, 2, 2, 2]> (image, w1)
  normal1 = BatchNormalization (sum1, scale1, b1, mean1, variance1)
  hidden1 = Tanh (normal1)
  flat = Flatten <axis = 1> (hidden1)
  sum2 = MatMul (flat, w2)
  normal2 = BatchNormalization <momentum = 0.5> (sum2, scale2, b2, mean2,
                                                 variance2)
  hidden2 = Tanh (normal2)
  logits = Gemm (hidden2, w3, b3)
})";

void Initialize(const char* pattern, float value, JobSpec* spec) {
  InitializerRule* const rule = spec->mutable_model()->add_initialize();
  rule->set_pattern(pattern);
  rule->set_scheme(InitializerRule::CONSTANT);
  rule->set_value(value);
}

// Seven steps an epoch for two workers; the last one has fewer samples.
JobSpec Digits(uint32_t epochs) {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(197);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_count(50);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  spec.add_metrics(ACCURACY);
  spec.mutable_training()->set_epochs(epochs);
  spec.mutable_training()->set_batch_size(16);
  spec.mutable_learning_rate()->set_base(0.01f);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  spec.mutable_limits()->set_step_timeout_seconds(60);
  return spec;
}

using Changes = std::vector<Strategy>;

Changes Times(int times, const Changes& changes) {
  Changes all;
  for (int i = 0; i < times; ++i) {
    all.insert(all.end(), changes.begin(), changes.end());
  }
  return all;
}

struct Trained {
  TrainingCluster::Outcome outcome;
  std::vector<RegimeTransition> transitions;
};

// As metrics.json has them; empty: it has none.
std::string DroppedBlocksIn(const Trained& trained) {
  const std::string& metrics = trained.outcome.artifacts.at("metrics.json");
  const size_t at = metrics.find("\"dropped_blocks\"");
  if (at == std::string::npos) return "";
  return metrics.substr(at, metrics.find_first_of(",\n}", at) - at);
}

class StrategyChangeTest : public ::testing::Test {
 protected:
  // Asks for the next change at the end of each epoch; with `types` for one of
  // the wire type.
  Trained Train(uint32_t workers, uint32_t ps, const JobSpec& spec,
                const std::string& model, const Changes& changes,
                TrainingCluster::Options options = {},
                const std::vector<WireType>& types = {}) {
    TrainingCluster* cluster = nullptr;
    size_t next = 0;
    options.workers = workers;
    options.ps = ps;
    options.work_dir = dir_.File(absl::StrCat("c", ++clusters_));
    options.data_root = dir_.path();
    options.on_evaluation = [&](const Evaluation&) {
      if (next == std::max(changes.size(), types.size())) return;
      SchedulerMessage command;
      ChangeRegime* const change = command.mutable_change_regime();
      change->set_job_id("t-1");
      change->set_attempt(kTestPass.attempt);
      if (types.empty()) {
        change->mutable_change()->set_strategy(changes[next]);
      } else {
        change->mutable_change()->set_wire_type(types[next]);
      }
      change->set_reason(absl::StrCat("change ", ++next));
      cluster->Send(0, command);
    };
    TrainingCluster all(options);
    cluster = &all;
    Trained trained;
    trained.outcome = all.RunJob(spec, model);
    for (const DaemonMessage& message : all.Messages(0)) {
      if (message.report().has_regime()) {
        trained.transitions.push_back(message.report().regime());
      }
    }
    return trained;
  }

  void ExpectTheSame(const TrainingCluster::Outcome& changed,
                     const TrainingCluster::Outcome& kept) {
    ASSERT_EQ(changed.status, absl::OkStatus());
    EXPECT_TRUE(changed.artifacts.at("trained.safetensors") ==
                kept.artifacts.at("trained.safetensors"))
        << "other bits; largest difference "
        << LargestDifference(changed.weights, kept.weights);
    ASSERT_EQ(changed.evaluations.size(), kept.evaluations.size());
    for (size_t e = 0; e < kept.evaluations.size(); ++e) {
      Evaluation ours = changed.evaluations[e];
      Evaluation theirs = kept.evaluations[e];
      ours.clear_time();  // of day
      theirs.clear_time();
      EXPECT_TRUE(MessageDifferencer::Equals(ours, theirs))
          << ours.DebugString() << theirs.DebugString();
    }
  }

  // Five rounds of ps -> all-reduce -> sharded -> ps, against a job that keeps
  // its ps.
  void ExpectTheSameBits(const JobSpec& spec, const std::string& model,
                         uint32_t workers = 2, int rounds = 5,
                         const Changes& round = {ALL_REDUCE, SHARDED,
                                                 PARAMETER_SERVER}) {
    const Changes changes = Times(rounds, round);
    ASSERT_GT(spec.training().epochs(), changes.size());
    const Trained kept = Train(workers, 2, spec, model, {});
    ASSERT_EQ(kept.outcome.status, absl::OkStatus());
    const Trained changed = Train(workers, 2, spec, model, changes);
    ExpectTheSame(changed.outcome, kept.outcome);
    ASSERT_EQ(changed.transitions.size(), changes.size());
    for (size_t i = 0; i < changes.size(); ++i) {
      EXPECT_EQ(changed.transitions[i].error(), "");
      EXPECT_EQ(changed.transitions[i].regime().strategy(), changes[i]);
      EXPECT_GT(changed.transitions[i].pause_seconds(), 0);
    }
  }

  TempDir dir_;
  int clusters_ = 0;
};

TEST_F(StrategyChangeTest, AnMlpWithAdam) {
  ExpectTheSameBits(Digits(17), MlpModel(784, 32, 10));
}

TEST_F(StrategyChangeTest, AnMlpOfThreeWorkersWithClippingAndARateThatEnds) {
  JobSpec spec = Digits(8);
  spec.mutable_optimizer()->set_clip_norm(0.5);
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  ExpectTheSameBits(spec, MlpModel(784, 32, 10), 3, /*rounds=*/2);
}

TEST_F(StrategyChangeTest, LambWithWholeTensorsNorms) {
  JobSpec spec = Digits(5);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::LAMB);
  spec.mutable_optimizer()->set_clip_norm(0.5);
  ExpectTheSameBits(spec, MlpModel(784, 32, 10), 2, /*rounds=*/1);
}

TEST_F(StrategyChangeTest, AConvolutionalNetWithRunningStatistics) {
  JobSpec spec = Digits(17);
  Initialize("mean*", 0, &spec);
  Initialize("variance*", 1, &spec);
  Initialize("scale*", 1, &spec);
  ExpectTheSameBits(spec, kNormalised);
}

// Each step ends an epoch: the chief leaves the values behind it to the cut
// that it evaluates, and the strategy changes there first. Some changes are
// asked for while another one is under way.
TEST_F(StrategyChangeTest, WhereTheChiefEvaluates) {
  JobSpec spec = Digits(40);
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(32);
  for (const auto type : {WIRE_FLOAT32, WIRE_BFLOAT16}) {
    spec.set_wire_type(type);
    const Trained kept = Train(2, 2, spec, MlpModel(784, 32, 10), {});
    ASSERT_EQ(kept.outcome.status, absl::OkStatus());
    const Trained changed = Train(2, 2, spec, MlpModel(784, 32, 10),
                                  Times(15, {ALL_REDUCE, PARAMETER_SERVER}));
    ExpectTheSame(changed.outcome, kept.outcome);
    std::set<Strategy> made;
    for (const RegimeTransition& transition : changed.transitions) {
      if (transition.error().empty())
        made.insert(transition.regime().strategy());
    }
    EXPECT_EQ(made, (std::set<Strategy>{ALL_REDUCE, PARAMETER_SERVER}));
  }
}

// Whoever trains has whole values to go on with, and rounded ones to train on.
TEST_F(StrategyChangeTest, SixteenBitsOnTheWire) {
  JobSpec spec = Digits(6);
  Initialize("mean*", 0, &spec);
  Initialize("variance*", 1, &spec);
  Initialize("scale*", 1, &spec);
  for (const auto type : {WIRE_BFLOAT16, WIRE_FLOAT16}) {
    spec.set_wire_type(type);
    ExpectTheSameBits(spec, kNormalised, 2, /*rounds=*/2,
                      {ALL_REDUCE, PARAMETER_SERVER});
  }
}

// The wire type changes by ALL_REDUCE as it does through the ps: with the same
// bits, where it changes at the same clocks.
TEST_F(StrategyChangeTest, TheWireTypeChangesAmongWorkers) {
  JobSpec spec = Digits(4);
  Initialize("mean*", 0, &spec);
  Initialize("variance*", 1, &spec);
  Initialize("scale*", 1, &spec);
  const std::vector<WireType> types = {WIRE_BFLOAT16, WIRE_FLOAT32};
  std::map<std::vector<int64_t>, std::vector<Trained>> by_clocks;
  bool compared = false;
  for (int run = 0; run < 40 && !compared; ++run) {
    const bool by_ps = run % 2 == 0;
    spec.set_strategy(by_ps ? PARAMETER_SERVER : ALL_REDUCE);
    Trained trained = Train(3, by_ps ? 2 : 0, spec, kNormalised, {}, {}, types);
    ASSERT_EQ(trained.outcome.status, absl::OkStatus());
    ASSERT_EQ(trained.transitions.size(), types.size());
    std::vector<int64_t> clocks = {by_ps ? 1 : 0};
    for (size_t i = 0; i < types.size(); ++i) {
      EXPECT_EQ(trained.transitions[i].error(), "");
      EXPECT_EQ(trained.transitions[i].regime().wire_type(), types[i]);
      clocks.push_back(trained.transitions[i].regime().first_clock());
    }
    std::vector<int64_t> others = clocks;
    others[0] = 1 - others[0];
    if (const auto other = by_clocks.find(others); other != by_clocks.end()) {
      ExpectTheSame(trained.outcome, other->second[0].outcome);
      compared = true;
    }
    by_clocks[clocks].push_back(std::move(trained));
  }
  EXPECT_TRUE(compared);
}

// Their owners alone have whole values.
TEST_F(StrategyChangeTest, TheWireTypeOfShardedStays) {
  JobSpec spec = Digits(3);
  spec.set_strategy(SHARDED);
  const Trained changed =
      Train(2, 0, spec, MlpModel(784, 32, 10), {}, {}, {WIRE_BFLOAT16});
  ASSERT_EQ(changed.outcome.status, absl::OkStatus());
  ASSERT_EQ(changed.transitions.size(), 1u);
  EXPECT_THAT(changed.transitions[0].error(),
              HasSubstr("wire_type: changes while the job trains by"));
}

TEST_F(StrategyChangeTest, SixteenBitsOnTheWireDoNotChangeToSharded) {
  JobSpec spec = Digits(5);
  spec.set_wire_type(WIRE_BFLOAT16);
  const Trained kept = Train(2, 2, spec, MlpModel(784, 32, 10), {});
  ASSERT_EQ(kept.outcome.status, absl::OkStatus());
  const Trained changed =
      Train(2, 2, spec, MlpModel(784, 32, 10),
            {SHARDED, ALL_REDUCE, SHARDED, PARAMETER_SERVER});
  ExpectTheSame(changed.outcome, kept.outcome);
  ASSERT_EQ(changed.transitions.size(), 4u);
  for (const int made : {1, 3}) {
    EXPECT_EQ(changed.transitions[made].error(), "");
  }
  for (const int refused : {0, 2}) {
    EXPECT_THAT(changed.transitions[refused].error(),
                HasSubstr("wire_type: WIRE_BFLOAT16: a job changes to or "
                          "from SHARDED only with WIRE_FLOAT32"));
  }
}

// A job that begins without ps has reserved them.
TEST_F(StrategyChangeTest, JobsThatBeginWithoutPs) {
  const JobSpec with_ps = Digits(6);
  const Trained kept = Train(2, 2, with_ps, MlpModel(784, 32, 10), {});
  ASSERT_EQ(kept.outcome.status, absl::OkStatus());
  for (const Strategy first : {ALL_REDUCE, SHARDED}) {
    JobSpec spec = with_ps;
    spec.set_strategy(first);
    const Strategy other = first == SHARDED ? ALL_REDUCE : SHARDED;
    const Trained changed =
        Train(2, 2, spec, MlpModel(784, 32, 10),
              {PARAMETER_SERVER, other, first, PARAMETER_SERVER});
    ExpectTheSame(changed.outcome, kept.outcome);
    ASSERT_EQ(changed.transitions.size(), 4u);
    for (const RegimeTransition& transition : changed.transitions) {
      EXPECT_EQ(transition.error(), "");
    }
  }
}

TEST_F(StrategyChangeTest, GradientsThatLeaveMemoryStayOnRanks) {
  JobSpec spec = Digits(5);
  const Trained kept = Train(2, 2, spec, MlpModel(784, 32, 10), {});
  spec.set_strategy(SHARDED);
  spec.mutable_sharding()->set_stage(2);
  const Trained changed = Train(2, 0, spec, MlpModel(784, 32, 10),
                                {ALL_REDUCE, SHARDED, PARAMETER_SERVER});
  ExpectTheSame(changed.outcome, kept.outcome);
  ASSERT_EQ(changed.transitions.size(), 3u);
  EXPECT_EQ(changed.transitions[0].error(), "");
  EXPECT_EQ(changed.transitions[1].error(), "");
  EXPECT_THAT(changed.transitions[2].error(),
              HasSubstr("no ps are reserved for this job"));
}

// --- Gradients that are not finite ---

// The first sample of rank 1 overflows in each epoch.
TEST_F(StrategyChangeTest, SkippedStepsAndDroppedBlocks) {
  constexpr char kLogistic[] = R"(
<ir_version: 8, opset_import: ["" : 13]>
logistic (float[N, 2] x, float[2, 3] w, float[3] b) => (float[N, 3] logits)
{
  logits = Gemm (x, w, b)
})";
  const std::string lines = "0.5,1,0\n-1,2,1\n0.25,-1,2\n1,1,0\n";
  dir_.Write("train.csv",
             absl::StrCat(lines, "3e38,0,0\n3e38,0,0\n0.5,0.5,1\n",
                          "-0.5,0.5,2\n", lines, lines, lines, lines));
  dir_.Write("test.csv", lines);
  JobSpec spec = JobFromText(R"pb(
    name: "overflow"
    model {
      path: "model.onnxtxt"
      initialize { pattern: "w" scheme: CONSTANT value: 0.25 }
      initialize { pattern: "b" scheme: ZEROS }
    }
    data {
      train { csv { path: "train.csv" } }
      test { csv { path: "test.csv" } }
      feeds { input: "x" field: "0:2" }
      label { field: "2" }
      shuffle: false
    }
    loss { kind: SOFTMAX_CROSS_ENTROPY }
    optimizer { kind: ADAM }
    learning_rate { base: 0.1 }
    training { epochs: 8 batch_size: 4 seed: 7 threads: 1 }
    limits { step_timeout_seconds: 60 }
  )pb");
  for (const auto policy : {SKIP_STEP, DROP_BLOCK}) {
    for (const float clip : {0.0f, 1.0f}) {
      SCOPED_TRACE(absl::StrCat(NonFinitePolicy_Name(policy), " ", clip));
      spec.set_non_finite(policy);
      spec.mutable_optimizer()->set_clip_norm(clip);
      const Changes changes = Times(2, {SHARDED, ALL_REDUCE, PARAMETER_SERVER});
      const Trained kept = Train(2, 2, spec, kLogistic, {});
      ASSERT_EQ(kept.outcome.status, absl::OkStatus());
      const Trained changed = Train(2, 2, spec, kLogistic, changes);
      ExpectTheSame(changed.outcome, kept.outcome);
      ASSERT_EQ(changed.transitions.size(), changes.size());
      // The counts of skipped clocks and dropped blocks move with the state.
      ASSERT_TRUE(kept.outcome.ps_reports[0].has_value());
      uint64_t skipped[2] = {0, 0};
      uint64_t dropped[2] = {0, 0};
      for (uint32_t ps = 0; ps < 2; ++ps) {
        const Trained* const both[] = {&kept, &changed};
        for (int i = 0; i < 2; ++i) {
          const auto& report = both[i]->outcome.ps_reports[ps];
          if (!report.has_value()) continue;
          skipped[i] = std::max(skipped[i], report->skipped_clocks());
          dropped[i] += report->dropped_blocks();
        }
      }
      EXPECT_EQ(DroppedBlocksIn(changed), DroppedBlocksIn(kept));
      EXPECT_EQ(skipped[1], skipped[0]);
      EXPECT_EQ(dropped[1], dropped[0]);
      EXPECT_GT(skipped[0] + dropped[0], 0u);
    }
  }
}

// The scale of losses follows what was skipped, wherever that was found.
TEST_F(StrategyChangeTest, ScaledLosses) {
  JobSpec spec = Digits(5);
  spec.set_precision(FLOAT16);
  spec.mutable_loss_scale()->set_initial(16777216);
  ExpectTheSameBits(spec, MlpModel(784, 32, 10), 2, /*rounds=*/1);
}

// About every other step overflows: some just before a change.
TEST_F(StrategyChangeTest, ScaledLossesThatOverflowBeforeAChange) {
  JobSpec spec = Digits(8);
  spec.set_precision(FLOAT16);
  spec.mutable_loss_scale()->set_initial(16777216);
  spec.mutable_loss_scale()->set_window(1);
  ExpectTheSameBits(spec, MlpModel(784, 32, 10), 2, /*rounds=*/2);
}

// --- Changes that cannot be made ---

// One rank does not get into the group of the second change, and nobody into
// that of the last.
TEST_F(StrategyChangeTest, AGroupThatDoesNotFormLeavesTheStrategy) {
  const JobSpec spec = Digits(7);
  const Trained kept = Train(2, 2, spec, MlpModel(784, 32, 10), {});
  for (const uint32_t rank : {0u, 1u}) {
    SCOPED_TRACE(rank);
    std::set<uint64_t> epochs;
    TrainingCluster::Options options;
    options.check_join = [&](const worker::PeerGroup& group) {
      epochs.insert(group.epoch);
      const bool fails =
          epochs.size() == 4 || (epochs.size() == 2 && group.rank == rank);
      return fails ? absl::UnavailableError("no way to worker:9")
                   : absl::OkStatus();
    };
    const Trained changed = Train(
        2, 2, spec, MlpModel(784, 32, 10),
        {ALL_REDUCE, SHARDED, SHARDED, PARAMETER_SERVER, ALL_REDUCE}, options);
    ExpectTheSame(changed.outcome, kept.outcome);
    ASSERT_EQ(changed.transitions.size(), 5u);
    for (const int made : {0, 2, 3}) {
      EXPECT_EQ(changed.transitions[made].error(), "");
    }
    for (const int failed : {1, 4}) {
      EXPECT_THAT(changed.transitions[failed].error(),
                  HasSubstr("no way to worker:9"));
    }
    EXPECT_THAT(changed.transitions[1].error(),
                HasSubstr(rank == 0 ? "chief:0" : "worker:1"));
  }
}

TEST_F(StrategyChangeTest, ALostPsFailsTheChangeOrTheJobByName) {
  JobSpec spec = Digits(6);
  spec.mutable_limits()->set_step_timeout_seconds(3);
  TrainingCluster* cluster = nullptr;
  bool killed = false;
  TrainingCluster::Options options;
  options.check_join = [&](const worker::PeerGroup&) {
    // While the shards hold the cut, before their state is read.
    if (!std::exchange(killed, true)) cluster->KillPs(1);
    return absl::OkStatus();
  };
  options.workers = 2;
  options.ps = 2;
  options.work_dir = dir_.File("lost");
  options.data_root = dir_.path();
  TrainingCluster all(options);
  cluster = &all;
  ASSERT_EQ(all.Prepare(spec, MlpModel(784, 32, 10)), absl::OkStatus());
  SchedulerMessage command;
  ChangeRegime* const change = command.mutable_change_regime();
  change->set_job_id("t-1");
  change->set_attempt(kTestPass.attempt);
  change->mutable_change()->set_strategy(ALL_REDUCE);
  all.Send(0, command);
  all.Run();
  const absl::Status failed = all.AwaitDone(absl::Minutes(2));
  EXPECT_FALSE(failed.ok());
  EXPECT_THAT(std::string(failed.message()), HasSubstr("ps:1"));
  EXPECT_EQ(all.Stop(absl::Seconds(60)), absl::OkStatus());
  EXPECT_TRUE(killed);
}

TEST_F(StrategyChangeTest, AnEvaluatorKeepsTheStrategy) {
  const JobSpec spec = Digits(3);
  TrainingCluster::Options options;
  options.evaluator = true;
  const Trained trained =
      Train(2, 2, spec, MlpModel(784, 32, 10), {ALL_REDUCE}, options);
  ASSERT_EQ(trained.outcome.status, absl::OkStatus());
  ASSERT_EQ(trained.transitions.size(), 1u);
  EXPECT_THAT(trained.transitions[0].error(), HasSubstr("evaluator"));
}

}  // namespace
}  // namespace syncline
