// Goal: every default of proto/job_spec.proto is written out, nothing that was
// given changes, and the result is valid again.
// Method: compare with the expected spec; idempotence over all optimizers and
// schedules.

#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::IsEmpty;

constexpr char kShort[] = R"(
  name: "a"
  model {
    path: "m"
    initialize { pattern: "b" scheme: ZEROS }
    initialize { pattern: "w" scheme: HE_NORMAL }
    initialize { pattern: "e" scheme: NORMAL }
  }
  data {
    train { csv { path: "t.csv" has_header: true } }
    test { csv { path: "t.csv" has_header: true delimiter: ";" } }
    feeds { input: "x" field: "f" }
  }
  loss { kind: SIGMOID_CROSS_ENTROPY }
)";

TEST(JobSpecDefaultsTest, EveryDefaultIsWrittenOut) {
  const JobSpec expected = JobFromText(R"(
    name: "a"
    model {
      path: "m"
      initialize { pattern: "b" scheme: ZEROS }
      initialize { pattern: "w" scheme: HE_NORMAL scale: 1 }
      initialize { pattern: "e" scheme: NORMAL scale: 0.05 }
    }
    data {
      train { csv { path: "t.csv" has_header: true delimiter: "," } }
      test { csv { path: "t.csv" has_header: true delimiter: ";" } }
      feeds { input: "x" field: "f" scale: 1 }
      label { field: "label" }
      sharing: STATIC
      shuffle: true
    }
    loss { kind: SIGMOID_CROSS_ENTROPY }
    metrics: ACCURACY
    optimizer { kind: ADAM beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }
    learning_rate { base: 0.5 schedule: ONE_CYCLE start: 0.02 final: 0 }
    consistency { mode: SYNC }
    strategy: PARAMETER_SERVER
    precision: FLOAT32
    durability: CHECKPOINT
    wire_type: WIRE_FLOAT32
    non_finite: FAIL_JOB
    training {
      epochs: 1 batch_size: 32 eval_batch_size: 256 micro_batches: 1
    }
    resources { workers: 1 ps: 1 device: AUTO }
    limits { step_timeout_seconds: 60 }
  )");
  const JobSpec full = WithDefaults(JobFromText(
      absl::StrCat(kShort,
                   "optimizer { kind: ADAM } "
                   "learning_rate { base: 0.5 schedule: ONE_CYCLE }")));
  EXPECT_TRUE(MessageDifferencer::Equals(full, expected)) << full.DebugString();
}

TEST(JobSpecDefaultsTest, WhatIsGivenStays) {
  JobSpec spec = WithDefaults(JobFromText(absl::StrCat(
      kShort, "optimizer { kind: SGD } learning_rate { base: 1 }")));
  spec.mutable_data()->set_shuffle(false);
  spec.mutable_data()->mutable_feeds(0)->set_scale(0.5f);
  spec.mutable_training()->set_batch_size(7);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::MOMENTUM);
  spec.mutable_optimizer()->set_momentum(0);
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  spec.set_metrics(0, AUC);
  EXPECT_TRUE(MessageDifferencer::Equals(WithDefaults(spec), spec));
}

TEST(JobSpecDefaultsTest, TheResultIsValidAndStable) {
  for (const auto kind :
       {OptimizerSpec::SGD, OptimizerSpec::MOMENTUM, OptimizerSpec::NESTEROV,
        OptimizerSpec::ADAGRAD, OptimizerSpec::ADAM, OptimizerSpec::ADAMW,
        OptimizerSpec::RMSPROP, OptimizerSpec::LAMB, OptimizerSpec::FTRL}) {
    for (int schedule = 0; schedule < LearningRateSpec::Schedule_ARRAYSIZE;
         ++schedule) {
      const JobSpec spec = JobFromText(absl::StrCat(
          kShort, "optimizer { kind: ", kind, " } learning_rate { base: 1 ",
          "schedule: ", schedule,
          schedule == LearningRateSpec::STEP ? " step_clocks: 10 }" : " }"));
      SCOPED_TRACE(spec.ShortDebugString());
      ASSERT_THAT(ValidateJobSpec(spec), IsEmpty());
      const JobSpec full = WithDefaults(spec);
      EXPECT_THAT(ValidateJobSpec(full), IsEmpty());
      EXPECT_TRUE(MessageDifferencer::Equals(WithDefaults(full), full));
    }
  }
}

TEST(JobSpecDefaultsTest, OfTables) {
  const JobSpec spec = JobFromText(absl::StrCat(kShort, R"(
    optimizer { kind: ADAM clip_value: 1 }
    learning_rate { base: 1 }
    tables { name: "a" }
    tables {
      name: "b"
      scheme: XAVIER_UNIFORM
      optimizer { kind: ROW_WISE_ADAGRAD }
      admission { min_sightings: 3 }
      expiry { min_score: 0.8 decay_clocks: 100 }
      memory_bytes: 4194304
    }
    tables {
      name: "c"
      scheme: ZEROS
      optimizer { kind: FTRL }
      admission { min_sightings: 2 }
    })"));
  ASSERT_THAT(ValidateJobSpec(spec), IsEmpty());
  const JobSpec full = WithDefaults(spec);
  const JobSpec expected = JobFromText(R"(
    tables {
      name: "a"
      scheme: UNIFORM
      scale: 0.05
      optimizer { kind: ADAM beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }
      admission { min_sightings: 1 probability: 1 }
      expiry {}
    }
    tables {
      name: "b"
      scheme: XAVIER_UNIFORM
      scale: 1
      optimizer {
        kind: ROW_WISE_ADAGRAD
        epsilon: 1e-10
        initial_accumulator: 0
      }
      admission { min_sightings: 3 filter_bytes: 1048576 }
      expiry { min_score: 0.8 decay: 0.98 decay_clocks: 100 }
      memory_bytes: 4194304
    }
    tables {
      name: "c"
      scheme: ZEROS
      optimizer {
        kind: FTRL
        initial_accumulator: 0
        learning_rate_power: -0.5
      }
      admission { min_sightings: 2 filter_bytes: 16777216 }
      expiry {}
    })");
  ASSERT_EQ(full.tables_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(MessageDifferencer::Equals(full.tables(i), expected.tables(i)))
        << full.tables(i).DebugString();
  }
  EXPECT_THAT(ValidateJobSpec(full), IsEmpty());
  EXPECT_TRUE(MessageDifferencer::Equals(WithDefaults(full), full));
}

TEST(JobSpecDefaultsTest, NoMetricWithoutATestSplitOrForRegression) {
  JobSpec spec = JobFromText(kShort);
  spec.mutable_data()->clear_test();
  EXPECT_THAT(WithDefaults(spec).metrics(), IsEmpty());
  spec = JobFromText(kShort);
  spec.mutable_loss()->set_kind(LossSpec::MEAN_SQUARED_ERROR);
  EXPECT_THAT(WithDefaults(spec).metrics(), IsEmpty());
}

}  // namespace
}  // namespace syncline
