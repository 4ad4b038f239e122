// Goal: a gradient that is NaN or infinite does to a job what the job says, on
// all shards alike, whoever finds it.
// Method: ps and workers in this process, logistic regression on a few samples
// of which two, in rank 1's first batch, are so large that the gradient of `w`
// overflows though the loss does not, or the loss does too, or that are only
// evaluated; trained weights are
// compared bit for bit with those of rank 0's samples alone.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/job_spec_validator.h"
#include "common/wire/table_map.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

float LargestDifference(const std::vector<float>& a,
                        const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
  }
  return largest;
}

constexpr char kModel[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
logistic (float[N, 2] x, float[2, 3] w, float[3] b) => (float[N, 3] logits)
{
  logits = Gemm (x, w, b)
})";

constexpr char kLines[] =
    "0.5,1,0\n-1,2,1\n0.25,-1,2\n1,1,0\n";  // rank 0's batch

// The reports of the ps on a job, as the scheduler adds them up.
JobProgress SkippedIn(const TrainingCluster::Outcome& outcome) {
  JobProgress sum;
  for (const auto& report : outcome.ps_reports) {
    EXPECT_TRUE(report.has_value());
    if (!report.has_value()) continue;
    sum.set_skipped_clocks(
        std::max(sum.skipped_clocks(), report->skipped_clocks()));
    sum.set_dropped_blocks(sum.dropped_blocks() + report->dropped_blocks());
  }
  return sum;
}

class NonFiniteTest : public ::testing::Test {
 protected:
  NonFiniteTest() {
    dir_.Write("ordinary.csv", kLines);
    dir_.Write("large.csv", absl::StrCat(kLines, "3e38,0,0\n3e38,0,0\n",
                                         "0.5,0.5,1\n-0.5,0.5,2\n"));
    dir_.Write("opposed.csv", absl::StrCat(kLines, "3e38,0,1\n3e38,0,1\n",
                                           "0.5,0.5,1\n-0.5,0.5,2\n"));
  }

  // In ASYNC rank 1 may begin when rank 0's step is applied. That step prefers
  // class 0 for large samples: with this label their gradient is not 0 then.
  static std::string Overflowing(ConsistencySpec::Mode mode) {
    return mode == ConsistencySpec::SYNC ? "large.csv" : "opposed.csv";
  }

  // One step of SGD.
  JobSpec Spec(const std::string& data, NonFinitePolicy policy,
               ConsistencySpec::Mode mode = ConsistencySpec::SYNC) {
    JobSpec spec = JobFromText(
        R"pb(
          name: "overflow"
          model {
            path: "model.onnxtxt"
            initialize { pattern: "w" scheme: ZEROS }
            initialize { pattern: "b" scheme: ZEROS }
          }
          data {
            train { csv {} }
            feeds { input: "x" field: "0:2" }
            label { field: "2" }
            shuffle: false
          }
          loss { kind: SOFTMAX_CROSS_ENTROPY }
          optimizer { kind: SGD }
          learning_rate { base: 0.5 }
          training { epochs: 1 batch_size: 4 seed: 7 threads: 1 }
          limits { step_timeout_seconds: 20 }
        )pb");
    spec.mutable_data()->mutable_train()->mutable_csv()->set_path(data);
    spec.mutable_consistency()->set_mode(mode);
    spec.set_non_finite(policy);
    return spec;
  }
  TrainingCluster::Outcome Train(uint32_t workers, uint32_t ps,
                                 const JobSpec& spec) {
    TrainingCluster cluster({.workers = workers,
                             .ps = ps,
                             .work_dir = dir_.File(absl::StrCat(++clusters_)),
                             .data_root = dir_.path()});
    return cluster.RunJob(spec, kModel);
  }
  // The weights that rank 0's samples alone give, or with `initial` for `w`.
  Weights Alone(float initial = 0) {
    JobSpec spec = Spec("ordinary.csv", FAIL_JOB);
    StartAt(initial, &spec);
    auto outcome = Train(1, 1, spec);
    EXPECT_EQ(outcome.status, absl::OkStatus());
    return outcome.weights;
  }
  static void StartAt(float value, JobSpec* spec) {
    InitializerRule* const rule = spec->mutable_model()->mutable_initialize(0);
    rule->set_scheme(InitializerRule::CONSTANT);
    rule->set_value(value);
  }

  TempDir dir_;
  int clusters_ = 0;
};

TEST_F(NonFiniteTest, FailsTheJobAndNamesWorkerTensorAndClock) {
  for (const auto mode : {ConsistencySpec::SYNC, ConsistencySpec::ASYNC}) {
    for (const float clip_norm : {0.0f, 1.0f}) {
      SCOPED_TRACE(absl::StrCat(mode, " clip_norm=", clip_norm));
      JobSpec spec = Spec(Overflowing(mode), FAIL_JOB, mode);
      spec.mutable_optimizer()->set_clip_norm(clip_norm);
      const auto outcome = Train(2, 2, spec);
      EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition)
          << outcome.status;
      EXPECT_THAT(
          std::string(outcome.status.message()),
          AllOf(HasSubstr("the gradient of clock 0 is not finite: element "),
                HasSubstr("w")));
      if (clip_norm == 0) {
        EXPECT_THAT(std::string(outcome.status.message()),
                    AllOf(HasSubstr("'w', of worker:0"), HasSubstr("ps:")));
      }
    }
  }
}

// No loss and no gradient follows that would show it.
TEST_F(NonFiniteTest, ALastUpdateThatOverflowsFailsTheJob) {
  JobSpec spec = Spec("ordinary.csv", FAIL_JOB);
  StartAt(1, &spec);
  spec.mutable_learning_rate()->set_base(3e38f);
  spec.mutable_optimizer()->set_weight_decay(3e38f);
  const auto failed = Train(1, 2, spec);
  EXPECT_EQ(failed.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(failed.status.message()),
              HasSubstr("after the last clock, 0, element 0 of 'w' is -inf, "
                        "though no loss and no gradient was"));
  spec.set_non_finite(SKIP_STEP);
  EXPECT_EQ(Train(1, 2, spec).status, absl::OkStatus()) << "a warning";
}

// LAMB looks at a gradient in a pass of its own.
TEST_F(NonFiniteTest, FailsAJobWithLambToo) {
  JobSpec spec = Spec("large.csv", FAIL_JOB);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::LAMB);
  const auto outcome = Train(2, 2, spec);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition)
      << outcome.status;
  EXPECT_THAT(std::string(outcome.status.message()),
              HasSubstr("the gradient of clock 0 is not finite: element 0 "));
}

// w's only block: rank 0's samples alone. b's is finite: both workers'. In
// ASYNC rank 0 may begin when rank 1's is in b already.
TEST_F(NonFiniteTest, DroppingABlockLeavesTheOthersMean) {
  const Weights alone = Alone();
  for (const auto mode : {ConsistencySpec::SYNC, ConsistencySpec::ASYNC}) {
    for (const uint32_t ps : {1u, 2u}) {
      const auto outcome =
          Train(2, ps, Spec(Overflowing(mode), DROP_BLOCK, mode));
      ASSERT_EQ(outcome.status, absl::OkStatus());
      EXPECT_EQ(SkippedIn(outcome).skipped_clocks(), 0u);
      EXPECT_EQ(SkippedIn(outcome).dropped_blocks(), 1u);
      EXPECT_THAT(outcome.artifacts.at("metrics.json"),
                  HasSubstr("\"dropped_blocks\": \"1\""));
      if (mode == ConsistencySpec::SYNC) {
        EXPECT_EQ(outcome.weights.at("w"), alone.at("w"));
      }
      EXPECT_LE(LargestDifference(outcome.weights.at("w"), alone.at("w")),
                0.05);
      EXPECT_NE(outcome.weights.at("b"), alone.at("b"));
    }
  }
}

// Each worker's gradient is finite, and their sum is not: no worker has it
// among its counts.
TEST_F(NonFiniteTest, ABlockThatOverflowsInTheSumCounts) {
  const std::string half = "3e38,0,0\n0.5,0,1\n0.5,0.5,1\n-0.5,0.5,2\n";
  dir_.Write("halves.csv", half + half);
  const auto outcome = Train(2, 1, Spec("halves.csv", DROP_BLOCK));
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_EQ(SkippedIn(outcome).dropped_blocks(), 1u);
  EXPECT_THAT(outcome.artifacts.at("metrics.json"),
              HasSubstr("\"dropped_blocks\": \"1\""));
}

TEST_F(NonFiniteTest, AClippedNormIsThatOfWhatIsLeft) {
  JobSpec spec = Spec("large.csv", DROP_BLOCK);
  spec.mutable_optimizer()->set_clip_norm(1e6f);  // not reached
  const auto outcome = Train(2, 2, spec);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_EQ(outcome.weights.at("w"), Alone().at("w"));
}

TEST_F(NonFiniteTest, SkippingAStepInSyncIsForAllShards) {
  for (const uint32_t ps : {1u, 2u}) {
    const auto outcome = Train(2, ps, Spec("large.csv", SKIP_STEP));
    ASSERT_EQ(outcome.status, absl::OkStatus());
    EXPECT_EQ(SkippedIn(outcome).skipped_clocks(), 1u);
    EXPECT_EQ(SkippedIn(outcome).dropped_blocks(), 0u);
    EXPECT_THAT(outcome.artifacts.at("metrics.json"),
                HasSubstr("\"skipped_clocks\": \"1\""));
    for (const auto& [name, values] : outcome.weights) {
      for (const float value : values) EXPECT_EQ(value, 0.0f) << name;
    }
  }
  JobSpec finite = Spec("ordinary.csv", SKIP_STEP);
  const auto outcome = Train(1, 2, finite);
  EXPECT_EQ(outcome.weights, Alone()) << "what is finite counts";
  EXPECT_EQ(SkippedIn(outcome).skipped_clocks(), 0u);
  EXPECT_THAT(outcome.artifacts.at("metrics.json"), Not(HasSubstr("skipped")));
}

TEST_F(NonFiniteTest, SkippingAStepInAsyncIsForItsWorker) {
  const auto outcome =
      Train(2, 2, Spec("opposed.csv", SKIP_STEP, ConsistencySpec::ASYNC));
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_EQ(SkippedIn(outcome).skipped_clocks(), 1u);
  EXPECT_EQ(outcome.weights, Alone());
}

// 10 * 3e38 is infinite, and so is rank 1's loss NaN.
TEST_F(NonFiniteTest, ALossThatIsNotFiniteIsAStepWithoutSamples) {
  const Weights alone = Alone(10);
  for (const auto mode : {ConsistencySpec::SYNC, ConsistencySpec::ASYNC}) {
    for (const auto policy : {FAIL_JOB, SKIP_STEP, DROP_BLOCK}) {
      SCOPED_TRACE(absl::StrCat(mode, " ", NonFinitePolicy_Name(policy)));
      JobSpec spec = Spec("large.csv", policy, mode);
      StartAt(10, &spec);
      const auto outcome = Train(2, 2, spec);
      if (policy == FAIL_JOB) {
        EXPECT_THAT(std::string(outcome.status.message()),
                    AllOf(HasSubstr("the loss is"), HasSubstr("clock 0")));
        continue;
      }
      ASSERT_EQ(outcome.status, absl::OkStatus());
      if (policy == SKIP_STEP && mode == ConsistencySpec::SYNC) {
        EXPECT_EQ(outcome.weights.at("w")[0], 10);
        EXPECT_EQ(outcome.weights.at("b")[0], 0);
      } else {
        EXPECT_EQ(outcome.weights, alone);
      }
      // In SYNC rank 0's samples count at the clock: nothing of rank 1's two
      // tensors does.
      const bool dropped =
          policy == DROP_BLOCK && mode == ConsistencySpec::SYNC;
      EXPECT_EQ(SkippedIn(outcome).skipped_clocks(), dropped ? 0u : 1u);
      EXPECT_EQ(SkippedIn(outcome).dropped_blocks(), dropped ? 2u : 0u);
      // The status of the job and its file say the same.
      const std::string& metrics = outcome.artifacts.at("metrics.json");
      if (dropped) {
        EXPECT_THAT(metrics, HasSubstr("\"dropped_blocks\": \"2\""));
      } else {
        EXPECT_THAT(metrics, Not(HasSubstr("dropped_blocks")));
      }
    }
  }
}

// The evaluation data overflow as above; the training data do not.
TEST_F(NonFiniteTest, AnEvaluationThatIsNotFiniteIsRecordedUnlessTheJobFails) {
  for (const auto policy : {FAIL_JOB, SKIP_STEP, DROP_BLOCK}) {
    SCOPED_TRACE(NonFinitePolicy_Name(policy));
    JobSpec spec = Spec("ordinary.csv", policy);
    StartAt(10, &spec);
    spec.mutable_training()->set_epochs(2);
    spec.add_metrics(ACCURACY);
    spec.add_metrics(LOG_LOSS);
    *spec.mutable_data()->mutable_test() = spec.data().train();
    spec.mutable_data()->mutable_test()->mutable_csv()->set_path("large.csv");
    const auto outcome = Train(1, 1, spec);
    if (policy == FAIL_JOB) {
      EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(
          std::string(outcome.status.message()),
          AllOf(HasSubstr("evaluation: the loss is"), HasSubstr("(Gemm)")));
      continue;
    }
    ASSERT_EQ(outcome.status, absl::OkStatus());
    ASSERT_EQ(outcome.evaluations.size(), 2u);
    for (const Evaluation& evaluation : outcome.evaluations) {
      EXPECT_TRUE(evaluation.has_loss());
      EXPECT_FALSE(std::isfinite(evaluation.loss()));
      EXPECT_EQ(evaluation.samples(), 8u);
      EXPECT_LT(evaluation.accuracy(), 1);
    }
    EXPECT_THAT(outcome.artifacts.at("metrics.json"),
                AnyOf(HasSubstr("\"loss\": \"NaN\""),
                      HasSubstr("\"loss\": \"Infinity\"")));
    EXPECT_THAT(outcome.artifacts.at("logs/chief-0.log"),
                HasSubstr("an evaluation is not finite"));
  }
}

// --- Rows of a table ---------------------------------------------------------

constexpr char kTableModel[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
rows (float[N, 1] x, int64[N] id, float[50, 3] t, float[3] b)
  => (float[N, 3] logits)
{
  row = Gather (t, id)
  scaled = Mul (x, row)
  logits = Add (scaled, b)
})";

class NonFiniteRowTest : public NonFiniteTest {
 protected:
  // Key 7's gradient overflows on rank 1; keys 1 to 4 are rank 0's.
  NonFiniteRowTest() {
    dir_.Write("rows.csv",
               "1,1,0\n1,2,1\n1,3,2\n1,4,0\n"
               "3e38,7,0\n3e38,7,0\n1,1,1\n1,8,2\n");
  }
  TrainingCluster::Outcome TrainRows(NonFinitePolicy policy,
                                     ConsistencySpec::Mode mode,
                                     float clip_norm = 0,
                                     uint32_t workers = 2) {
    JobSpec spec = Spec("rows.csv", policy, mode);
    spec.mutable_optimizer()->set_clip_norm(clip_norm);
    spec.set_wire_type(wire_type_);
    spec.mutable_model()->mutable_initialize()->DeleteSubrange(0, 1);
    spec.mutable_data()->mutable_feeds(0)->set_field("0");
    Feed* const id = spec.mutable_data()->add_feeds();
    id->set_input("id");
    id->set_field("1");
    TableSpec* const table = spec.add_tables();
    table->set_name("t");
    table->set_scheme(InitializerRule::ZEROS);
    TrainingCluster cluster({.workers = workers,
                             .ps = 2,
                             .work_dir = dir_.File(absl::StrCat(++clusters_)),
                             .data_root = dir_.path()});
    return cluster.RunJob(spec, kTableModel);
  }
  // Of the trained table; what never had a row is 0.
  static bool HasMoved(const Weights& weights, size_t key) {
    const std::vector<float>& rows = weights.at("t");
    return rows[key * 3] != 0 || rows[key * 3 + 1] != 0;
  }

  WireType wire_type_ = WIRE_FLOAT32;
};

TEST_F(NonFiniteRowTest, FailsTheJobAndNamesTheKey) {
  for (const auto mode : {ConsistencySpec::SYNC, ConsistencySpec::ASYNC}) {
    EXPECT_THAT(std::string(TrainRows(FAIL_JOB, mode).status.message()),
                AllOf(HasSubstr("the gradient of clock 0 is not finite: key 7 "
                                "of table 't', of worker:0"),
                      HasSubstr("ps:")));
  }
}

TEST_F(NonFiniteRowTest, DroppingIsOfTheRow) {
  for (const auto mode : {ConsistencySpec::SYNC, ConsistencySpec::ASYNC}) {
    const auto outcome = TrainRows(DROP_BLOCK, mode);
    ASSERT_EQ(outcome.status, absl::OkStatus());
    EXPECT_EQ(SkippedIn(outcome).skipped_clocks(), 0u);
    EXPECT_EQ(SkippedIn(outcome).dropped_blocks(), 1u);
    EXPECT_FALSE(HasMoved(outcome.weights, 7));
    for (const size_t key : {1, 2, 4, 8}) {
      EXPECT_TRUE(HasMoved(outcome.weights, key)) << key;
    }
  }
}

// Of two keys that share a virtual slot one is left.
TEST_F(NonFiniteRowTest, AClippedNormIsOfTheRowsThatAreLeft) {
  const TableMap map = *TableMap::Create(TableMap::DefaultSlots(2), 2);
  int64_t bad = 0, good = 1;
  while (map.SlotOf(bad) != map.SlotOf(good)) {
    bad = ++good < 50 ? bad : bad + 1;
    good = good < 50 ? good : bad + 1;
    ASSERT_LT(good, 50);
  }
  dir_.Write("rows.csv", absl::StrFormat("3e38,%d,0\n3e38,%d,0\n"
                                         "1,%d,1\n1,%d,2\n",
                                         bad, bad, good, good));
  constexpr float kClipNorm = 0.01f;
  for (const auto mode : {ConsistencySpec::SYNC, ConsistencySpec::ASYNC}) {
    const auto outcome = TrainRows(DROP_BLOCK, mode, kClipNorm, 1);
    ASSERT_EQ(outcome.status, absl::OkStatus());
    EXPECT_FALSE(HasMoved(outcome.weights, bad));
    double squares = 0;
    for (const auto& [name, values] : outcome.weights) {
      for (const float value : values) squares += double{value} * value;
    }
    EXPECT_NEAR(std::sqrt(squares), 0.5 * kClipNorm, 1e-8);
  }
}

// Each worker's row is finite; their sum is not.
TEST_F(NonFiniteRowTest, ASumOfRowsThatOverflowsSkipsTheStep) {
  dir_.Write("rows.csv",
             "3e38,7,0\n3e38,7,0\n1,1,1\n1,2,2\n"
             "3e38,7,0\n3e38,7,0\n1,3,1\n1,4,2\n");
  const auto outcome = TrainRows(SKIP_STEP, ConsistencySpec::SYNC);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_EQ(SkippedIn(outcome).skipped_clocks(), 1u);
  for (const size_t key : {1, 2, 3, 4, 7}) {
    EXPECT_FALSE(HasMoved(outcome.weights, key)) << key;
  }
}

TEST_F(NonFiniteRowTest, SkippingIsOfAllRowsAndTensors) {
  const auto sync = TrainRows(SKIP_STEP, ConsistencySpec::SYNC);
  ASSERT_EQ(sync.status, absl::OkStatus());
  for (const size_t key : {1, 2, 4, 7, 8}) {
    EXPECT_FALSE(HasMoved(sync.weights, key)) << key;
  }
  EXPECT_EQ(sync.weights.at("b"), std::vector<float>(3));
  const auto async = TrainRows(SKIP_STEP, ConsistencySpec::ASYNC);
  ASSERT_EQ(async.status, absl::OkStatus());
  EXPECT_TRUE(HasMoved(async.weights, 2));
  EXPECT_FALSE(HasMoved(async.weights, 7));
  EXPECT_FALSE(HasMoved(async.weights, 8));
}

// float16 ends at 65,504: key 7's gradient of 80,000 is infinite on its way.
// The worker sends it only where steps of other workers must be skipped, too.
TEST_F(NonFiniteRowTest, WhatOverflowsFloat16IsNotFinite) {
  dir_.Write("rows.csv",
             "1,1,0\n1,2,1\n1,3,2\n1,4,0\n"
             "120000,7,0\n0,6,0\n1,1,1\n1,8,2\n");
  for (const auto mode : {ConsistencySpec::SYNC, ConsistencySpec::ASYNC}) {
    EXPECT_EQ(TrainRows(FAIL_JOB, mode).status, absl::OkStatus());
    wire_type_ = WIRE_FLOAT16;
    EXPECT_THAT(std::string(TrainRows(FAIL_JOB, mode).status.message()),
                HasSubstr("key 7 of table 't', of worker:0"));
    const auto dropped = TrainRows(DROP_BLOCK, mode);
    ASSERT_EQ(dropped.status, absl::OkStatus());
    EXPECT_FALSE(HasMoved(dropped.weights, 7));
    EXPECT_TRUE(HasMoved(dropped.weights, 8));
    const auto skipped = TrainRows(SKIP_STEP, mode);
    ASSERT_EQ(skipped.status, absl::OkStatus());
    EXPECT_FALSE(HasMoved(skipped.weights, 8));
    EXPECT_EQ(HasMoved(skipped.weights, 2), mode == ConsistencySpec::ASYNC);
    wire_type_ = WIRE_FLOAT32;
  }
}

// -----------------------------------------------------------------------------

// float16 ends at 65,504: a gradient of 80,000 is infinite on its way.
TEST_F(NonFiniteTest, WhatOverflowsFloat16IsNotFinite) {
  dir_.Write("over.csv", absl::StrCat(kLines, "120000,0,0\n0,0,0\n",
                                      "0.5,0.5,1\n-0.5,0.5,2\n"));
  for (const auto mode : {ConsistencySpec::SYNC, ConsistencySpec::ASYNC}) {
    // So small that rank 1 computes the same gradient with and without rank 0's
    // step, whose order is not fixed in ASYNC.
    constexpr float kRate = 1e-7f;
    JobSpec whole = Spec("over.csv", FAIL_JOB, mode);
    whole.mutable_learning_rate()->set_base(kRate);
    EXPECT_EQ(Train(2, 1, whole).status, absl::OkStatus());
    JobSpec spec = whole;
    spec.set_wire_type(WIRE_FLOAT16);
    EXPECT_THAT(std::string(Train(2, 1, spec).status.message()),
                HasSubstr("of 'w', of worker:0"));
    JobSpec alone = Spec("ordinary.csv", FAIL_JOB, mode);
    alone.set_wire_type(WIRE_FLOAT16);
    alone.mutable_learning_rate()->set_base(kRate);
    const Weights expected = Train(1, 1, alone).weights;
    spec.set_non_finite(DROP_BLOCK);
    EXPECT_LE(
        LargestDifference(Train(2, 1, spec).weights.at("w"), expected.at("w")),
        mode == ConsistencySpec::SYNC ? 0 : 0.02 * kRate);
    spec.set_non_finite(SKIP_STEP);
    const auto skipped = Train(2, 1, spec);
    ASSERT_EQ(skipped.status, absl::OkStatus());
    if (mode == ConsistencySpec::ASYNC) {
      EXPECT_EQ(skipped.weights, expected);
    } else {
      EXPECT_EQ(skipped.weights.at("w")[0], 0);
      EXPECT_EQ(skipped.weights.at("b")[0], 0);
    }
  }
}

}  // namespace
}  // namespace syncline
