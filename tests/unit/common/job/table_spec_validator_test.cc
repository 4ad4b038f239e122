// Goal: every range and contradiction that proto/job_spec.proto documents for
// embedding tables is reported once, with its field path.
// Method: a valid job with a table, a table of edits to it and what each must
// report; both ends of each range.

#include "common/job/table_spec_validator.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kValid[] = R"(
  name: "ctr"
  model { path: "model.onnxtxt" initialize { pattern: "*" scheme: ZEROS } }
  data {
    train { csv { path: "t.csv" } }
    feeds { input: "id" field: "1" }
    label { field: "0" }
  }
  loss { kind: SIGMOID_CROSS_ENTROPY }
  optimizer { kind: ADAM }
  learning_rate { base: 0.1 }
  consistency { mode: BOUNDED_STALENESS staleness_bound: 4 }
  tables { name: "emb" }
)";

std::vector<std::string> ProblemsOf(const std::string& edit) {
  return ValidateJobSpec(JobFromText(kValid, edit));
}

// The edit is a second table.
std::vector<std::string> ProblemsOfTable(const std::string& fields) {
  return ProblemsOf(absl::StrCat("tables { name: 'b' ", fields, "}"));
}

TEST(TableSpecValidatorTest, OneProblemEach) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"name: ''", "tables[1].name: is required"},
      {"name: 'emb'", "tables[1].name: repeats tables[0]"},
      {"value: 1", "tables[1].value: is for CONSTANT only"},
      {"scheme: ZEROS scale: 1",
       "tables[1].scale: has no meaning for ZEROS and CONSTANT"},
      {"scale: -1", "tables[1].scale: -1 is negative, must be >= 0"},
      {"scheme: HE_NORMAL",
       "tables[1].scheme: HE_NORMAL is not for tables, whose rows have no "
       "inputs; use ZEROS, CONSTANT, UNIFORM, NORMAL, XAVIER_UNIFORM or "
       "XAVIER_NORMAL"},
      {"optimizer { }", "tables[1].optimizer.kind: is required"},
      {"optimizer { kind: ADAMW }",
       "tables[1].optimizer.kind: ADAMW is not for tables; use SGD, ADAGRAD, "
       "ROW_WISE_ADAGRAD, ADAM or FTRL"},
      {"optimizer { kind: SGD epsilon: 1 }",
       "tables[1].optimizer.epsilon: has no meaning for SGD, only for ADAM, "
       "ADAMW, LAMB, RMSPROP, ADAGRAD, ROW_WISE_ADAGRAD"},
      {"optimizer { kind: SGD l1: 1 }",
       "tables[1].optimizer.l1: has no meaning for SGD, only for FTRL"},
      {"optimizer { kind: FTRL l2: -1 }",
       "tables[1].optimizer.l2: -1 is negative, must be >= 0"},
      {"optimizer { kind: FTRL learning_rate_power: 0.5 }",
       "tables[1].optimizer.learning_rate_power: 0.5 is outside [-1, 0]"},
      {"optimizer { kind: SGD clip_norm: 1 }",
       "tables[1].optimizer.clip_norm: is for the whole gradient: give it in "
       "the job's optimizer"},
      {"admission { min_sightings: 256 }",
       "tables[1].admission.min_sightings: 256 is too large, at most 255"},
      {"admission { probability: 1.5 }",
       "tables[1].admission.probability: 1.5 is outside (0, 1]"},
      {"admission { probability: 0.5 min_sightings: 2 }",
       "tables[1].admission.probability: not together with min_sightings"},
      {"admission { filter_bytes: 4096 }",
       "tables[1].admission.filter_bytes: has no meaning without "
       "min_sightings > 1"},
      {"admission { min_sightings: 2 filter_bytes: 4095 }",
       "tables[1].admission.filter_bytes: 4095 is outside "
       "4096..1125899906842624"},
      {"memory_bytes: 1048576 "
       "admission { min_sightings: 2 filter_bytes: 524289 }",
       "tables[1].admission.filter_bytes: 524289 is more than half of "
       "memory_bytes, 1048576, which it is part of"},
      {"expiry { unseen_seconds: -1 }",
       "tables[1].expiry.unseen_seconds: -1 is negative, must be >= 0"},
      {"expiry { min_score: 1 }",
       "tables[1].expiry.decay_clocks: is required with min_score"},
      {"expiry { min_score: 1 decay: 1.5 decay_clocks: 1 }",
       "tables[1].expiry.decay: 1.5 is outside (0, 1]"},
      {"expiry { decay: 0.5 }",
       "tables[1].expiry.decay: has no meaning without min_score"},
      {"expiry { decay_clocks: 5 }",
       "tables[1].expiry.decay_clocks: has no meaning without min_score"},
      {"memory_bytes: 1048575",
       "tables[1].memory_bytes: 1048575 is outside 1048576..1125899906842624"},
      {"disk_bytes: 1",
       "tables[1].disk_bytes: 1 is outside 1048576..1125899906842624"},
      {"optimizer { kind: SGD } cache_rows: 10000001 cache_clocks: 1",
       "tables[1].cache_rows: 10000001 is too large, at most 10000000"},
      {"cache_rows: 1",
       "tables[1].cache_rows: has no effect: without cache_clocks it serves "
       "evaluations, and there is no data.test"},
      {"cache_clocks: 1",
       "tables[1].cache_clocks: has no meaning without cache_rows"},
      {"optimizer { kind: SGD } cache_rows: 1 cache_clocks: 5",
       "tables[1].cache_clocks: 5 is more than consistency.staleness_bound, 4"},
      {"cache_rows: 1 cache_clocks: 1",
       "tables[1].cache_clocks: is for SGD only: a worker cannot follow what "
       "ADAM makes of the rows that it pushes"},
      {"optimizer { kind: SGD } cache_rows: 1 cache_clocks: 1 "
       "admission { min_sightings: 2 }",
       "tables[1].cache_clocks: not together with admission: a worker does not "
       "know whether its push was admitted"},
  };
  for (const auto& [edit, problem] : table) {
    EXPECT_THAT(ProblemsOfTable(edit), ElementsAre(problem)) << edit;
  }
}

TEST(TableSpecValidatorTest, RangesIncludeTheirEnds) {
  for (const char* edit :
       {"", "scheme: CONSTANT value: 3", "scheme: XAVIER_NORMAL scale: 2",
        "optimizer { kind: ROW_WISE_ADAGRAD epsilon: 1 initial_accumulator: 1 "
        "}",
        "optimizer { kind: FTRL l1: 1 l2: 1 learning_rate_power: -1 }",
        "admission { min_sightings: 255 filter_bytes: 4096 }",
        "admission { probability: 1 }", "admission { min_sightings: 1 }",
        "expiry { unseen_clocks: 1 unseen_seconds: 1e9 }",
        "expiry { min_score: 0.8 decay: 1 decay_clocks: 1 }",
        "memory_bytes: 1048576 disk_bytes: 1125899906842624",
        "optimizer { kind: SGD } cache_rows: 10000000 cache_clocks: 4",
        "optimizer { kind: SGD } cache_rows: 1 cache_clocks: 1"}) {
    EXPECT_THAT(ProblemsOfTable(edit), IsEmpty()) << edit;
  }
}

TEST(TableSpecValidatorTest, TheJobsOwnOptimizerServesIfItCan) {
  EXPECT_THAT(ProblemsOf("optimizer { kind: MOMENTUM }"),
              ElementsAre("tables[0].optimizer: is required, because the job's "
                          "own, MOMENTUM, is not for tables; use SGD, ADAGRAD, "
                          "ROW_WISE_ADAGRAD, ADAM or FTRL"));
  EXPECT_THAT(ProblemsOf("optimizer { kind: ROW_WISE_ADAGRAD }"),
              ElementsAre("optimizer.kind: ROW_WISE_ADAGRAD is for tables "
                          "only; name it in tables[].optimizer"));
}

TEST(TableSpecValidatorTest, WhatSyncCannotDo) {
  EXPECT_THAT(ProblemsOf("consistency { mode: SYNC staleness_bound: 0 } "
                         "optimizer { clip_norm: 1 }"),
              IsEmpty());
  EXPECT_THAT(ProblemsOf("wire_type: WIRE_BFLOAT16"), IsEmpty());
  EXPECT_THAT(
      ProblemsOf("consistency { mode: SYNC staleness_bound: 0 } "
                 "optimizer { kind: SGD } "
                 "tables { name: 'b' cache_rows: 1 cache_clocks: 1 }"),
      ElementsAre("tables[1].cache_clocks: is not for SYNC, where a row that "
                  "is trained may not be older than its clock; use "
                  "BOUNDED_STALENESS or ASYNC"));
}

TEST(TableSpecValidatorTest, WhatACacheOfTrainedRowsCannotFollow) {
  const std::string cached =
      "tables { name: 'b' optimizer { kind: SGD } cache_rows: 1 "
      "cache_clocks: 1 } ";
  EXPECT_THAT(ProblemsOf(cached + "optimizer { clip_norm: 1 }"),
              ElementsAre("tables[1].cache_clocks: not together with "
                          "optimizer.clip_norm"));
  EXPECT_THAT(
      ProblemsOf(cached + "precision: FLOAT16"),
      Contains(::testing::HasSubstr("not together with a dynamic loss_scale: a "
                                    "worker does not know")));
  EXPECT_THAT(ProblemsOf(cached + "non_finite: SKIP_STEP"),
              Contains("tables[1].cache_clocks: not together with non_finite "
                       "SKIP_STEP: a worker does not know which steps were "
                       "skipped"));
  EXPECT_THAT(ProblemsOf(cached + "consistency { mode: ASYNC "
                                  "staleness_bound: 0 }"),
              IsEmpty());
}

TEST(TableSpecValidatorTest, EvaluationsCacheInEveryMode) {
  EXPECT_THAT(ProblemsOf("consistency { mode: SYNC staleness_bound: 0 } "
                         "data { test { csv { path: 'v.csv' } } } "
                         "tables { name: 'b' cache_rows: 1 }"),
              IsEmpty());
}

TEST(TableSpecValidatorTest, SaysWhichRowsDecay) {
  const auto note = [](const std::string& edit) {
    return DecayNote(JobFromText(kValid, edit));
  };
  EXPECT_EQ(note(""), "");
  EXPECT_THAT(note("optimizer { kind: SGD weight_decay: 0.1 }"),
              HasSubstr("table 'emb': weight_decay is of the rows that a step "
                        "has a gradient for"));
  EXPECT_EQ(note("optimizer { kind: SGD weight_decay: 0.1 } "
                 "tables { name: 'b' optimizer { kind: SGD } }")
                .find("table 'b'"),
            std::string::npos);
}

TEST(TableSpecValidatorTest, TheNumberOfTablesIsBounded) {
  std::string tables;
  for (int i = 0; i < 1024; ++i) {
    absl::StrAppend(&tables, "tables { name: 'b", i, "' }");
  }
  EXPECT_THAT(ProblemsOf(tables),
              ElementsAre("tables: 1025 are too many, at most 1024"));
}

}  // namespace
}  // namespace syncline
