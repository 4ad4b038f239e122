// Goal: every range, contradiction and not-yet-built value that
// proto/job_spec.proto documents is reported once, with its field path.
// (data_spec_validator_test and table_spec_validator_test have their parts.)
// Method: a valid job, a table of edits to it and what each must report; both
// ends of each range.

#include "common/job/job_spec_validator.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobSpec Edited(const std::string& edit) { return JobFromText(kImageJob, edit); }

TEST(JobSpecValidatorTest, TheUneditedJobIsValid) {
  EXPECT_THAT(ValidateJobSpec(Edited("")), IsEmpty());
}

TEST(JobSpecValidatorTest, OneProblemEach) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"name: ''", "name: '' is not 1..64 characters of [A-Za-z0-9._-]"},
      {"name: 'a b'", "name: 'a b' is not 1..64 characters of [A-Za-z0-9._-]"},
      {"model { path: '' }", "model.path: is required"},
      {"model { initialize { pattern: '' scheme: ZEROS } }",
       "model.initialize[1].pattern: is required"},
      {"model { initialize { pattern: 'w' } }",
       "model.initialize[1].scheme: is required"},
      {"model { initialize { pattern: 'w' scheme: ZEROS value: 1 } }",
       "model.initialize[1].value: is for CONSTANT only"},
      {"model { initialize { pattern: 'w' scheme: ZEROS scale: 1 } }",
       "model.initialize[1].scale: has no meaning for ZEROS and CONSTANT"},
      {"model { initialize { pattern: 'w' scheme: NORMAL scale: -1 } }",
       "model.initialize[1].scale: -1 is negative, must be >= 0"},
      {"model { initialize { pattern: '*' scheme: NORMAL } }",
       "model.initialize[1].pattern: repeats model.initialize[0], which wins"},
      {"model { freeze: '' }", "model.freeze[0]: is required"},
      {"model { freeze: 'a' freeze: 'a' }",
       "model.freeze[1]: repeats model.freeze[0]"},
      {"loss { kind: KIND_UNSPECIFIED }", "loss.kind: is required"},
      {"metrics: LOSS",
       "metrics[0]: LOSS is computed in any case; it is for export.best_of "
       "only"},
      {"export { best_of: PERPLEXITY }",
       "export.best_of: PERPLEXITY is not computed; add it to metrics, or use "
       "LOSS"},
      {"metrics: METRIC_UNSPECIFIED",
       "metrics[0]: METRIC_UNSPECIFIED names no metric"},
      {"metrics: ACCURACY metrics: ACCURACY",
       "metrics[1]: ACCURACY is listed twice"},
      {"metrics: AUC loss { kind: MEAN_SQUARED_ERROR }",
       "metrics[0]: AUC has no meaning for MEAN_SQUARED_ERROR"},
      {"metrics: ACCURACY loss { kind: MEAN_SQUARED_ERROR }",
       "metrics[0]: ACCURACY has no meaning for MEAN_SQUARED_ERROR"},
      {"metrics: PERPLEXITY loss { kind: MEAN_SQUARED_ERROR }",
       "metrics[0]: PERPLEXITY has no meaning for MEAN_SQUARED_ERROR"},
      {"metrics: TOP5_ACCURACY loss { kind: SIGMOID_CROSS_ENTROPY }",
       "metrics[0]: TOP5_ACCURACY has no meaning for SIGMOID_CROSS_ENTROPY"},
      {"metrics: 9", "metrics[0]: 9 is no value of Metric"},
      {"optimizer { kind: KIND_UNSPECIFIED }", "optimizer.kind: is required"},
      {"optimizer { momentum: 0.9 }",
       "optimizer.momentum: has no meaning for SGD, only for MOMENTUM, "
       "NESTEROV, RMSPROP"},
      {"optimizer { kind: MOMENTUM momentum: 1 }",
       "optimizer.momentum: 1 is outside [0, 1)"},
      {"optimizer { kind: NESTEROV momentum: -0.1 }",
       "optimizer.momentum: -0.1 is outside [0, 1)"},
      {"optimizer { kind: ADAM beta1: 1 }",
       "optimizer.beta1: 1 is outside [0, 1)"},
      {"optimizer { kind: ADAMW beta2: -1 }",
       "optimizer.beta2: -1 is outside [0, 1)"},
      {"optimizer { kind: ADAM epsilon: 0 }",
       "optimizer.epsilon: 0 must be > 0"},
      {"optimizer { kind: ADAM initial_accumulator: 1 }",
       "optimizer.initial_accumulator: has no meaning for ADAM, only for "
       "ADAGRAD, ROW_WISE_ADAGRAD, FTRL"},
      {"optimizer { kind: ADAGRAD initial_accumulator: -1 }",
       "optimizer.initial_accumulator: -1 is negative, must be >= 0"},
      {"optimizer { kind: ADAGRAD beta1: 0.5 }",
       "optimizer.beta1: has no meaning for ADAGRAD, only for ADAM, ADAMW, "
       "LAMB"},
      {"optimizer { epsilon: 1 }",
       "optimizer.epsilon: has no meaning for SGD, only for ADAM, ADAMW, "
       "LAMB, RMSPROP, ADAGRAD, ROW_WISE_ADAGRAD"},
      {"optimizer { kind: RMSPROP decay: 1 }",
       "optimizer.decay: 1 is outside [0, 1)"},
      {"optimizer { kind: RMSPROP momentum: 1 }",
       "optimizer.momentum: 1 is outside [0, 1)"},
      {"optimizer { kind: RMSPROP beta1: 0.9 }",
       "optimizer.beta1: has no meaning for RMSPROP, only for ADAM, ADAMW, "
       "LAMB"},
      {"optimizer { kind: ADAM decay: 0.9 }",
       "optimizer.decay: has no meaning for ADAM, only for RMSPROP"},
      {"optimizer { kind: ADAM centered: true }",
       "optimizer.centered: has no meaning for ADAM, only for RMSPROP"},
      {"optimizer { kind: FTRL learning_rate_power: 0.5 }",
       "optimizer.learning_rate_power: 0.5 is outside [-1, 0]"},
      {"optimizer { kind: LAMB } consistency { mode: ASYNC }",
       "optimizer.kind: LAMB is for SYNC only: its trust ratio is of whole "
       "tensors at one clock; use ADAMW"},
      {"training { sync_batch_statistics: true } consistency { mode: ASYNC }",
       "training.sync_batch_statistics: is for SYNC only: in other modes "
       "workers do not compute the same step at the same time"},
      {"optimizer { weight_decay: -1 }",
       "optimizer.weight_decay: -1 is negative, must be >= 0"},
      {"optimizer { clip_value: -1 }",
       "optimizer.clip_value: -1 is negative, must be >= 0"},
      {"optimizer { clip_norm: -1 }",
       "optimizer.clip_norm: -1 is negative, must be >= 0"},
      {"optimizer { clip_norm: 1 clip_value: 1 }",
       "optimizer.clip_norm: not together with clip_value"},
      {"learning_rate { base: 0 }", "learning_rate.base: 0 must be > 0"},
      {"learning_rate { base: -0.1 }", "learning_rate.base: -0.1 must be > 0"},
      {"learning_rate { base: inf }",
       "learning_rate.base: inf is not a finite number"},
      {"learning_rate { step_clocks: 1 }",
       "learning_rate.step_clocks: has no meaning for CONSTANT"},
      {"learning_rate { gamma: 0.5 }",
       "learning_rate.gamma: has no meaning for CONSTANT"},
      {"learning_rate { schedule: STEP }",
       "learning_rate.step_clocks: 0 must be > 0"},
      {"learning_rate { schedule: STEP step_clocks: 1 gamma: 1.5 }",
       "learning_rate.gamma: 1.5 is outside (0, 1]"},
      {"learning_rate { schedule: COSINE warmup_clocks: 5 }",
       "learning_rate.warmup_clocks: has no meaning for COSINE"},
      {"learning_rate { schedule: COSINE total_clocks: -5 }",
       "learning_rate.total_clocks: -5 is negative, must be >= 0"},
      {"learning_rate { schedule: COSINE start: 0 }",
       "learning_rate.start: has no meaning for COSINE"},
      {"learning_rate { schedule: COSINE final: 0.2 }",
       "learning_rate.final: 0.2 is above learning_rate.base, 0.1"},
      {"learning_rate { schedule: LINEAR_WARMUP warmup_clocks: -1 }",
       "learning_rate.warmup_clocks: -1 is negative, must be >= 0"},
      {"learning_rate { schedule: LINEAR_WARMUP total_clocks: 1 }",
       "learning_rate.total_clocks: has no meaning for LINEAR_WARMUP"},
      {"learning_rate { schedule: LINEAR_WARMUP start: -1 }",
       "learning_rate.start: -1 is negative, must be >= 0"},
      {"learning_rate { schedule: ONE_CYCLE warmup_clocks: 10 "
       "total_clocks: 10 }",
       "learning_rate.warmup_clocks: 10 must be less than total_clocks, 10"},
      {"learning_rate { schedule: RANGE_TEST start: 0 }",
       "learning_rate.start: must be > 0 for RANGE_TEST, which grows by a "
       "constant factor"},
      {"learning_rate { schedule: RANGE_TEST final: 0 }",
       "learning_rate.final: has no meaning for RANGE_TEST"},
      {"learning_rate { schedule: 77 }",
       "learning_rate.schedule: 77 is no value of Schedule"},
      {"consistency { local { steps: 4 } }",
       "consistency.local: is for LOCAL only"},
      {"consistency { staleness_bound: 2 }",
       "consistency.staleness_bound: is for BOUNDED_STALENESS only"},
      {"consistency { mode: BOUNDED_STALENESS staleness_bound: 1000001 }",
       "consistency.staleness_bound: 1000001 is too large, at most 1000000"},
      {"strategy: HYBRID",
       "strategy: HYBRID is for jobs with tables, whose rows are on the ps; "
       "this one has none: use ALL_REDUCE"},
      {"precision: 77", "precision: 77 is no value of Precision"},
      {"durability: REPLICATED",
       "durability: REPLICATED is not built yet; use CHECKPOINT"},
      {"checkpoint { keep_last: 3 }",
       "checkpoint: says not when one is made: set every_clocks, "
       "every_seconds or both"},
      {"checkpoint { every_seconds: 0.5 }",
       "checkpoint.every_seconds: 0.5 is out of range, must be 1 to 1e+09, or "
       "0 for none by time"},
      {"checkpoint { every_clocks: 5 keep_last: 1001 }",
       "checkpoint.keep_last: 1001 is too large, at most 1000"},
      {"checkpoint { every_clocks: 5 directory: 'c' }",
       "checkpoint.directory: 'c' is not absolute: all ps, or all workers "
       "without ps, must see the same "
       "folder there"},
      {"checkpoint { every_clocks: 5 full_tables_every: 2 }",
       "checkpoint.full_tables_every: 2 is for jobs with tables, and this one "
       "has none: leave it out"},
      {"checkpoint { every_clocks: 5 full_tables_every: 1001 }",
       "checkpoint.full_tables_every: 1001 is too large, at most 1000"},
      {"start { checkpoint: 'c' }",
       "start.checkpoint: 'c' is not an absolute path"},
      {"sharding { stage: 1 }",
       "sharding: has no meaning for PARAMETER_SERVER, only for SHARDED"},
      {"training { epochs: 1000001 }",
       "training.epochs: 1000001 is too large, at most 1000000"},
      {"training { micro_batches: 33 }",
       "training.micro_batches: 33 is too large, at most 32"},
      {"training { batch_size: 4 micro_batches: 5 }",
       "training.micro_batches: 5 is too large, at most 4"},
      {"training { recompute_segments: 1025 }",
       "training.recompute_segments: 1025 is too large, at most 1024"},
      {"training { batch_size: 1048577 }",
       "training.batch_size: 1048577 is too large, at most 1048576"},
      {"training { eval_batch_size: 1048577 }",
       "training.eval_batch_size: 1048577 is too large, at most 1048576"},
      {"training { threads: 1025 }",
       "training.threads: 1025 is too large, at most 1024"},
      {"resources { workers: 1025 }",
       "resources.workers: 1025 is too large, at most 1024"},
      {"resources { ps: 1025 }",
       "resources.ps: 1025 is too large, at most 1024"},
      {"limits { step_timeout_seconds: -1 }",
       "limits.step_timeout_seconds: -1 is negative, must be >= 0"},
      {"limits { step_timeout_seconds: 1e-9 }",
       "limits.step_timeout_seconds: 1e-09 is out of range, must be 0.1 to "
       "86400, or 0 for 60"},
      {"limits { step_timeout_seconds: 86401 }",
       "limits.step_timeout_seconds: 86401 is out of range, must be 0.1 to "
       "86400, or 0 for 60"},
      {"limits { step_timeout_seconds: nan }",
       "limits.step_timeout_seconds: nan is not a finite number"},
      {"limits { max_seconds: 2e9 }",
       "limits.max_seconds: 2e+09 is too large, at most 1e+09"},
      {"model { path: 'a\\xff' }", "model.path: 'a\\xff' is not UTF-8"},
      {"model { path: 'a\\n' }", "model.path: 'a\\n' has a control character"},
  };
  for (const auto& [edit, problem] : table) {
    SCOPED_TRACE(edit);
    EXPECT_THAT(ValidateJobSpec(Edited(edit)), ElementsAre(problem));
  }
}

TEST(JobSpecValidatorTest, MetricsNeedATestSplit) {
  JobSpec spec = Edited("metrics: ACCURACY");
  spec.mutable_data()->clear_test();
  EXPECT_THAT(ValidateJobSpec(spec),
              ElementsAre("metrics: nothing is evaluated without data.test"));
}

TEST(JobSpecValidatorTest, BothEndsOfRangesAreValid) {
  for (const char* edit : {
           "name: 'a'",
           "optimizer { kind: MOMENTUM momentum: 0 }",
           "optimizer { kind: ADAM beta1: 0 beta2: 0.9999 epsilon: 1e-30 }",
           "optimizer { kind: ADAGRAD initial_accumulator: 0 }",
           "optimizer { kind: RMSPROP decay: 0 momentum: 0.9 centered: true }",
           "optimizer { kind: FTRL l1: 1 l2: 1 learning_rate_power: -1 }",
           "optimizer { kind: LAMB weight_decay: 0.01 clip_norm: 1 }",
           "wire_type: WIRE_BFLOAT16",
           "wire_type: WIRE_FLOAT16",
           "non_finite: SKIP_STEP",
           "non_finite: DROP_BLOCK",
           "optimizer { clip_norm: 1e-9 weight_decay: 0 }",
           "learning_rate { schedule: STEP step_clocks: 1 gamma: 1 }",
           "learning_rate { schedule: COSINE final: 0.1 }",
           "learning_rate { schedule: LINEAR_WARMUP start: 0 }",
           "learning_rate { schedule: WARMUP_LINEAR_DECAY warmup_clocks: 9 "
           "total_clocks: 10 }",
           "consistency { mode: BOUNDED_STALENESS }",
           "consistency { mode: BOUNDED_STALENESS staleness_bound: 1000000 }",
           "consistency { mode: ASYNC }",
           "training { epochs: 1000000 batch_size: 1048576 threads: 1024 "
           "eval_batch_size: 1048576 max_clocks: 4611686018427387904 }",
           "resources { workers: 1024 ps: 1024 }",
           "limits { step_timeout_seconds: 86400 max_seconds: 1e9 }",
       }) {
    EXPECT_THAT(ValidateJobSpec(Edited(edit)), IsEmpty()) << edit;
  }
}

TEST(JobSpecValidatorTest, AllProblemsComeAtOnce) {
  const std::vector<std::string> problems = ValidateJobSpec(JobSpec());
  EXPECT_THAT(
      problems,
      ElementsAre(
          "name: '' is not 1..64 characters of [A-Za-z0-9._-]",
          "model.path: is required",
          "data.train: needs one of idx, csv, libsvm, digits, criteo, tokens, "
          "npy",
          "data.feeds: is empty: no graph input gets data",
          "loss.kind: is required", "optimizer.kind: is required",
          "learning_rate.base: 0 must be > 0"));
  const absl::Status status = ProblemsToStatus(problems);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("model.path: is required\ndata.train"));
  EXPECT_TRUE(ProblemsToStatus({}).ok());
}

TEST(JobSpecValidatorTest, FieldsOfAnotherVersionAreRefused) {
  JobSpec spec = Edited("");
  spec.mutable_training()
      ->GetReflection()
      ->MutableUnknownFields(spec.mutable_training())
      ->AddVarint(1000, 1);
  EXPECT_THAT(ValidateJobSpec(spec),
              ElementsAre("training: has a field number 1000 that this version "
                          "does not know"));
}

TEST(JobSpecValidatorTest, ListsAreBounded) {
  JobSpec spec = Edited("");
  for (int i = 0; i < 10'001; ++i) {
    spec.mutable_model()->add_freeze(absl::StrCat("w", i));
  }
  EXPECT_THAT(ValidateJobSpec(spec),
              ElementsAre("model.freeze: 10001 entries are too many, at most "
                          "10000"));
}

}  // namespace
}  // namespace syncline
